"""The S3 in memory: honest where it says so, and each lie is the lie it claims to be."""

from __future__ import annotations

import asyncio

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, NotFoundError, NotModifiedError, PreconditionError

from tests.servers.bucket import LIES, BucketServer
from tests.servers.s3 import driver

REFUSED = (AlreadyExistsError, PreconditionError)


def accepts(store, key: str, data: bytes, mode) -> bool:
    try:
        store.put(key, data, mode=mode)
    except REFUSED:
        return False
    return True


def test_the_honest_one_keeps_conditions() -> None:
    with BucketServer() as server:
        store = driver(server.endpoint)
        first = store.put("key", b"1", mode="create")["e_tag"]
        assert not accepts(store, "key", b"2", "create")
        assert accepts(store, "key", b"2", {"e_tag": first})
        assert not accepts(store, "key", b"3", {"e_tag": first})
        assert not accepts(store, "nothing", b"3", {"e_tag": first})
        assert bytes(store.get("key").bytes()) == b"2"


@pytest.mark.parametrize("lie", ["", *LIES])
async def test_lies(lie) -> None:
    with BucketServer(lie) as server:
        store = driver(server.endpoint)
        tag = store.put("key", b"1", mode="create")["e_tag"]
        assert accepts(store, "key", b"1", "create") == (lie == "ignores If-None-Match")
        store.put("key", b"2", mode={"e_tag": tag})
        assert accepts(store, "key", b"3", {"e_tag": tag}) == (lie == "ignores If-Match")
        won = await asyncio.gather(
            *(obstore.put_async(store, "race", str(n).encode(), mode="create") for n in range(8)),
            return_exceptions=True,
        )
        winners = sum(not isinstance(answer, BaseException) for answer in won)
        honest = lie in ("", "ignores If-Match")
        assert (winners == 1) == honest


def test_lists_in_pages_and_groups() -> None:
    with BucketServer() as server:
        store = driver(server.endpoint)
        keys = [f"a/{number:05}" for number in range(2500)]

        async def fill() -> None:
            await asyncio.gather(*(obstore.put_async(store, key, b"") for key in [*keys, "a & <b>/x", "b"]))

        asyncio.run(fill())
        assert [row["path"] for row in store.list("a").collect()] == keys
        assert [row["path"] for row in store.list("a", offset="a/02497").collect()] == keys[2498:]
        grouped = store.list_with_delimiter()
        assert sorted(grouped["common_prefixes"]) == ["a", "a & <b>"]
        assert [row["path"] for row in grouped["objects"]] == ["b"]
        store.delete(keys)
        assert store.list("a").collect() == []
        with pytest.raises((NotFoundError, FileNotFoundError)):
            store.get("a/00000")


def test_what_is_unchanged_is_not_sent_again() -> None:
    with BucketServer() as server:
        store = driver(server.endpoint)
        tag = store.put("key", b"1")["e_tag"]
        with pytest.raises(NotModifiedError):
            store.get("key", options={"if_none_match": tag})
        store.put("key", b"2")
        assert bytes(store.get("key", options={"if_none_match": tag}).bytes()) == b"2"


def test_ranges() -> None:
    with BucketServer() as server:
        store = driver(server.endpoint)
        store.put("key", b"0123456789")
        assert bytes(store.get_range("key", start=2, end=5)) == b"234"
        assert bytes(store.get("key", options={"range": {"suffix": 3}}).bytes()) == b"789"
        assert bytes(store.get("key", options={"range": {"offset": 7}}).bytes()) == b"789"
