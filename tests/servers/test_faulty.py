"""The bucket in this process fails as the proxy does, and is the bucket underneath otherwise."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError
from obstore.store import MemoryStore

from tests.servers.faulty import FaultyBucket
from tests.servers.proxy import Faults


def test_without_faults_it_is_the_bucket_underneath() -> None:
    bucket = FaultyBucket(MemoryStore())
    tag = bucket.put("a/key", b"1", mode="create")["e_tag"]
    bucket.put("a/key", b"2", mode={"e_tag": tag})
    with pytest.raises(AlreadyExistsError):
        bucket.put("a/key", b"3", mode="create")
    with pytest.raises(BaseError):
        bucket.put("a/key", b"3", mode={"e_tag": tag})
    assert bytes(bucket.get("a/key").bytes()) == b"2"
    assert bucket.head("a/key")["size"] == 1
    assert [row["path"] for page in bucket.list("a") for row in page] == ["a/key"]
    bucket.delete("a/key")
    assert [row for page in bucket.list("a") for row in page] == []
    assert bucket.requests["create"] == bucket.requests["swap"] == 2
    assert not bucket.hits


@pytest.mark.parametrize(("fault", "applied"), [("unavailable", False), ("conflict", False), ("dropped", True)])
def test_a_write_that_fails(fault: str, applied: bool) -> None:
    under = MemoryStore()
    bucket = FaultyBucket(under, Faults(**{fault: 1.0}))
    with pytest.raises(AlreadyExistsError if fault == "conflict" else GenericError):
        bucket.put("key", b"1", mode="create")
    assert bool(under.list().collect()) == applied
    assert bucket.hits == Counter({fault: 1})


def test_a_refusal_is_not_a_lost_reply() -> None:
    under = MemoryStore()
    under.put("key", b"0")
    bucket = FaultyBucket(under, Faults(dropped=1.0))
    with pytest.raises(AlreadyExistsError):
        bucket.put("key", b"1", mode="create")
    assert not bucket.hits


def test_bodies_break_off() -> None:
    bucket = FaultyBucket(MemoryStore())
    bucket.put("key", b"1")
    bucket.faults = Faults(truncated=1.0)
    with pytest.raises(GenericError):
        bucket.get("key").bytes()
    with pytest.raises(GenericError):
        list(bucket.list())
    assert bucket.head("key")["size"] == 1


def test_late_answers_and_the_same_faults_for_the_same_seed() -> None:
    def late(seed: int) -> list[bool]:
        bucket, seen = FaultyBucket(MemoryStore(), Faults(delayed=0.5, delay=0.01), seed=seed), []
        for number in range(30):
            before, begun = bucket.hits["delayed"], time.monotonic()
            bucket.put(f"key-{number}", b"")
            seen.append(bucket.hits["delayed"] > before)
            assert not seen[-1] or time.monotonic() - begun >= 0.01
        return seen

    assert late(3) == late(3)
    assert len(set(late(3))) == 2
