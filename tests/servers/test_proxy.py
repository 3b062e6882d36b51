"""The proxy between a client and a bucket: each fault does what it says, the rest passes unchanged."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError

from tests.servers.bucket import BucketServer
from tests.servers.proxy import Faults, Proxy
from tests.servers.s3 import Server, driver


@pytest.fixture
def bucket():
    with BucketServer() as server:
        yield server


def test_a_real_server_works_through_it(s3_server: Server) -> None:
    """Signatures hold, large bodies and many keys pass, and everything is counted."""
    prefix, large = f"t{os.urandom(6).hex()}", os.urandom(3_000_000)
    with Proxy(s3_server.port) as proxy:
        store = s3_server.driver(prefix, endpoint=proxy.endpoint)
        store.put("large", large, use_multipart=False)
        tag = store.put("new", b"1", mode="create")["e_tag"]
        store.put("new", b"2", mode={"e_tag": tag})
        for number in range(30):
            store.put(f"many/{number:02}", b"x" * number)
        assert bytes(store.get("large").bytes()) == large
        assert bytes(store.get_range("large", start=10, length=5)) == large[10:15]
        assert len(store.list("many").collect()) == 30
        assert store.head("new")["size"] == 1
        sent = proxy.counts.sent
        store.delete("new")
        assert proxy.counts.requests == Counter(put=31, create=1, swap=1, get=2, list=1, head=1, delete=1)
        assert sent == len(large) + 2 + sum(range(30))
        assert proxy.counts.received > len(large)
        assert not proxy.counts.faults


def test_unavailable_never_reaches_the_server(bucket: BucketServer) -> None:
    with Proxy(bucket.port, Faults(unavailable=1.0)) as proxy:
        with pytest.raises(BaseError, match="503"):
            driver(proxy.endpoint).put("key", b"x")
        assert bucket.items == {}
        assert proxy.counts.faults == Counter(unavailable=1)


def test_a_dropped_reply_leaves_the_write_applied(bucket: BucketServer) -> None:
    with Proxy(bucket.port, Faults(dropped=1.0)) as proxy:
        store = driver(proxy.endpoint)
        with pytest.raises(BaseError):
            store.put("key", b"x", mode="create")
        assert bucket.items["key"].data == b"x"
        assert bytes(store.get("key").bytes()) == b"x"  # reads are not hit
        with pytest.raises(AlreadyExistsError):  # nor is a refusal: nothing was applied
            store.put("key", b"y", mode="create")
        assert proxy.counts.faults == Counter(dropped=1)


def test_a_conflict_hits_conditional_writes(bucket: BucketServer) -> None:
    with Proxy(bucket.port, Faults(conflict=1.0)) as proxy:
        store = driver(proxy.endpoint)
        tag = store.put("key", b"x")["e_tag"]
        for mode in ("create", {"e_tag": tag}):
            with pytest.raises(BaseError, match="409"):
                store.put("key", b"y", mode=mode)
        assert bucket.items["key"].data == b"x"
        assert proxy.counts.faults == Counter(conflict=2)


async def test_delays_come_before_and_after_the_write(bucket: BucketServer) -> None:
    with Proxy(bucket.port, Faults(delayed=1.0, delay=0.6), seed=1) as proxy:
        store, begun = driver(proxy.endpoint), time.monotonic()
        puts = [asyncio.ensure_future(obstore.put_async(store, f"key-{n}", b"x")) for n in range(20)]
        while not bucket.items:
            assert time.monotonic() - begun < 0.6
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        early = len(bucket.items)
        assert not any(put.done() for put in puts)
        await asyncio.gather(*puts)
        assert 0 < early < len(bucket.items) == 20
        assert proxy.counts.faults == Counter(delayed=20)


def test_a_truncated_body_is_noticed(bucket: BucketServer) -> None:
    with Proxy(bucket.port) as proxy:
        store = driver(proxy.endpoint)
        store.put("key", os.urandom(100_000))
        store.put("empty", b"")
        proxy.faults = Faults(truncated=1.0)
        for _ in range(5):
            with pytest.raises(BaseError):
                store.get("key").bytes()
        assert bytes(store.get("empty").bytes()) == b""
        assert proxy.counts.faults == Counter(truncated=5)


def test_latency_is_added_to_every_request(bucket: BucketServer) -> None:
    with Proxy(bucket.port, latency=0.06) as proxy:
        store, begun = driver(proxy.endpoint), time.monotonic()
        for number in range(5):
            store.put(f"key-{number}", b"x")
        assert 0.3 <= time.monotonic() - begun < 5.0


def test_the_same_seed_gives_the_same_faults(bucket: BucketServer) -> None:
    def outcomes(seed: int) -> list[str]:
        with Proxy(bucket.port, Faults(unavailable=0.3, dropped=0.3), seed=seed) as proxy:
            store, seen = driver(proxy.endpoint), []
            for _ in range(40):
                try:
                    store.put("key", b"x")
                    seen.append("ok")
                except BaseError as error:
                    seen.append("503" if "503" in str(error) else "dropped")
            return seen

    first = outcomes(5)
    assert first == outcomes(5)
    assert first != outcomes(6)
    assert {"ok", "503", "dropped"} == set(first)


def test_a_server_that_is_away_is_a_dropped_connection() -> None:
    with BucketServer() as gone:
        port = gone.port
    with Proxy(port) as proxy, pytest.raises(BaseError):
        driver(proxy.endpoint).put("key", b"x")
