"""SlateDB in a bucket: who is refused, and who is fenced."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

import holdfast
from holdfast.config import StoreOptions
from holdfast.errors import Fenced, StoreError, UnsafeStore
from holdfast.stores.log import slatedb
from holdfast.stores.log.slatedb import SlateSpace
from holdfast.stores.opening import locate, store_options
from tests.servers.bucket import LIES, BucketServer
from tests.servers.proxy import Faults, Proxy
from tests.servers.s3 import ABSENT, Server
from tests.stores.log.bucket.fixtures import Place

pytest.importorskip("slatedb", reason="the extra slatedb is not installed")


async def opened(place: Place, **given: object) -> SlateSpace:
    """A writer of its own, as another process would be."""
    found = locate(f"slatedb+{place.url}")
    options = store_options({}, found.options, given)
    return await SlateSpace.open(slatedb.in_bucket(found.place, options), options, alone=True)


@pytest.mark.parametrize("lie", LIES)
async def test_servers_that_lie_are_refused(lie):
    with BucketServer(lie) as server, pytest.raises(UnsafeStore, match="conditional writes"):
        await holdfast.connect(f"slatedb+{server.url('jobs')}")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [({"bucket": ABSENT}, "no such bucket"), ({"key": ("limited", "canary")}, "refuses our credentials")],
)
async def test_a_missing_bucket_and_wrong_keys_say_so_at_once(s3: Place, wrong, sentence):
    began = time.monotonic()
    with pytest.raises(StoreError, match=sentence) as caught:
        await holdfast.connect(f"slatedb+{s3.server.url(s3.prefix, **wrong)}")
    assert time.monotonic() - began < 5
    assert "canary" not in str(caught.value)


async def test_an_endpoint_that_does_not_answer(s3: Place):
    url = f"slatedb+{s3.server.url(s3.prefix, endpoint='http://127.0.0.1:9')}"
    began = time.monotonic()
    with pytest.raises(holdfast.Unavailable) as caught:
        await holdfast.connect(url, connect_timeout=2)
    assert time.monotonic() - began < 5
    assert "canary" not in str(caught.value)


async def test_a_second_writer_fences_the_first(s3: Place):
    first = await opened(s3)
    data = os.urandom(300_000)
    await first.transact(lambda tx: (tx.put("a", b"1"), tx.create("b", data)))
    second = await opened(s3)
    for _ in range(2):
        with pytest.raises(Fenced):
            await first.transact(lambda tx: tx.put("a", b"old"))
    assert await second.read(lambda view: (view.get("a").data, view.get("b").data)) == (b"1", data)
    await first.close()
    await second.transact(lambda tx: tx.put("a", b"2"))
    await second.close()


@pytest.mark.parametrize("faults", [Faults(dropped=0.1), Faults(unavailable=0.1)])
async def test_dropped_replies_and_503_are_not_felt(s3: Place, faults: Faults):
    with Proxy(s3.server.port) as proxy:
        url = f"slatedb+{s3.server.url(s3.prefix, endpoint=proxy.endpoint)}&flush_interval=0"
        async with holdfast.connect(url) as broker:
            queue = await broker.queue("jobs")
            proxy.faults = faults
            ids = [await queue.enqueue(n) for n in range(40)]
            assert proxy.counts.faults.total() > 0
            proxy.faults = Faults()
            assert {await queue.status(id) for id in ids} == {"pending"}
            assert (await queue.stats()).pending == 40


async def test_a_conflict_that_nobody_caused_is_no_fence(s3: Place):
    """SlateDB takes a 409, which means "try again", for another writer."""
    with Proxy(s3.server.port) as proxy:
        url = f"slatedb+{s3.server.url(s3.prefix, endpoint=proxy.endpoint)}&flush_interval=0"
        async with holdfast.connect(url) as broker:
            queue = await broker.queue("jobs")
            ids = []
            for n in range(3):
                proxy.faults = Faults(conflict=1.0)
                with pytest.raises(holdfast.Unavailable, match="but none does; try again"):
                    await queue.enqueue(n)
                proxy.faults = Faults()
                ids.append(await enqueued(queue, n))
            assert {await queue.status(id) for id in ids} == {"pending"}


async def enqueued(queue: holdfast.Queue[object], value: object) -> str:
    """Once the store takes it again."""
    async with asyncio.timeout(40):
        while True:
            try:
                return await queue.enqueue(value)
            except holdfast.Unavailable:
                await asyncio.sleep(0.2)


async def test_a_bucket_is_flushed_every_50_ms_at_most(s3: Place):
    space = await opened(s3)
    assert space._core.flush_interval == 0.05
    began = time.monotonic()
    for n in range(6):
        await space.transact(lambda tx, n=n: tx.put(f"a/{n}", b""))
    assert time.monotonic() - began > 0.2
    await space.close()
    assert slatedb.local("/x").flush_interval(StoreOptions()) == 0.0


async def test_a_server_that_was_away():
    """Calls end within their deadline, readers go on meanwhile, and the store works again when the server does."""
    with Server() as server:
        async with holdfast.connect(f"slatedb+{server.url('jobs')}", operation_timeout=2) as broker:
            queue = await broker.queue("jobs")
            first = await queue.enqueue(1)
            await asyncio.to_thread(server.stop, signal.SIGKILL)
            began = time.monotonic()
            with pytest.raises(holdfast.Unavailable, match="whether it took effect is unknown"):
                await queue.enqueue("in doubt")
            with pytest.raises(holdfast.Unavailable, match="nothing was done"):
                await queue.enqueue("never")
            assert time.monotonic() - began < 10
            assert await queue.status(first) == "pending"
            await asyncio.to_thread(server.start)
            last = await enqueued(queue, 2)
            assert [await queue.status(id) for id in (first, last)] == ["pending", "pending"]
            assert (await queue.stats()).pending in (2, 3)  # with or without what is in doubt, never with the other


async def test_uninstall_leaves_nothing_in_the_bucket(s3: Place):
    space = await opened(s3)
    await asyncio.gather(*[space.transact(lambda tx, n=n: tx.put(f"a/{n}", os.urandom(2000))) for n in range(5)])
    await space.uninstall()
    left = [item["path"] for page in s3.driver().list() for item in page]
    assert left == []
