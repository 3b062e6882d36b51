"""Single calls that linger on a bucket share one object."""

from __future__ import annotations

import asyncio
import time

import pytest

import holdfast
from holdfast.testing.contract.base import eventually
from tests.servers.bucket import BucketServer


async def test_single_calls_wait_for_company_and_share_one_block() -> None:
    with BucketServer() as server:
        async with holdfast.connect(server.url("jobs"), linger=0.3) as broker:
            queue = await broker.queue("jobs")
            await queue.stats()
            before, began = broker.store.requests()["put"], time.monotonic()
            calls = []
            for n in range(10):
                calls.append(asyncio.ensure_future(queue.enqueue(n, priority=n % 2)))
                await asyncio.sleep(0.001)
            ids = await asyncio.gather(*calls)
            assert time.monotonic() - began >= 0.3
            assert broker.store.requests()["put"] - before == 2  # a block for each priority
            taken = await queue.dequeue_many(20)
            assert [each.value for each in taken] == [1, 3, 5, 7, 9, 0, 2, 4, 6, 8]
            assert sorted(each.id for each in taken) == sorted(ids)


async def test_who_brings_several_or_a_key_takes_the_others_along() -> None:
    with BucketServer() as server:
        async with holdfast.connect(server.url("jobs"), linger=3600) as broker:
            queue = await broker.queue("jobs")
            for more in (queue.enqueue_many([1, 2]), queue.enqueue(3, dedup_key="k")):
                single = asyncio.ensure_future(queue.enqueue(0))
                await eventually(lambda: broker.store._log("jobs").appender._lingering, "the single call waits")
                assert not single.done()
                await asyncio.gather(more, single)  # not after an hour
            assert (await queue.stats()).pending == 5


async def test_nobody_lingers_unless_told_to() -> None:
    with BucketServer() as server:
        async with holdfast.connect(server.url("jobs")) as broker:
            queue = await broker.queue("jobs")
            before = broker.store.requests()["put"]
            for n in range(5):
                await queue.enqueue(n)
            assert broker.store.requests()["put"] - before == 5


async def test_bad_lingers_are_refused() -> None:
    for bad in (-1, float("nan"), "long"):
        with pytest.raises(holdfast.ConfigError, match="linger"):
            await holdfast.connect("memory://", linger=bad)
