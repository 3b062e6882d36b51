"""A server whose clock is set while processes run: what was acknowledged is delivered, or kept and told of."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import holdfast
from holdfast import admin
from tests.servers.bucket import BucketServer

HOUR = timedelta(hours=1)


async def values(queue: holdfast.Queue[str], count: int) -> list[str]:
    """So many messages, and whatever comes with them."""
    found: list[str] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            deliveries = await queue.dequeue_many(100, wait=1.0)
            found += [each.value for each in deliveries]
            assert all(await queue.complete_many(deliveries))
    return sorted(found + [each.value for each in await queue.dequeue_many(100)])


async def test_what_was_acknowledged_right_after_a_step_forward_is_kept_and_recovered_once() -> None:
    with BucketServer() as server:
        async with holdfast.connect(server.url("jobs")) as broker:
            queue = await broker.queue("jobs")
            await queue.enqueue("before")
            server.ahead = HOUR
            unseen = [await queue.enqueue(f"unseen {number}") for number in range(3)]
            assert await values(queue, 1) == ["before"]
            async with asyncio.timeout(20):
                while (await queue.stats()).set_aside < len(unseen):
                    await queue.dequeue()
            told = {check.name: check for check in await admin.doctor(server.url("jobs"))}
            assert any(check.state == "warn" and "holdfast recover" in check.detail for check in told.values())
            (done,) = (await admin.recover(broker)).values()
            assert (done.recovered, done.known) == (len(unseen), 0)
            assert await values(queue, 3) == [f"unseen {number}" for number in range(3)]
            assert (await queue.stats()).set_aside == 0


async def test_a_clock_that_is_set_back_sets_nothing_aside() -> None:
    with BucketServer() as server:
        async with holdfast.connect(server.url("jobs")) as broker:
            queue = await broker.queue("jobs")
            await queue.enqueue("before")
            server.ahead = -HOUR
            await queue.enqueue_many(["unseen", "after"])
            assert await values(queue, 3) == ["after", "before", "unseen"]
            assert (await queue.stats()).set_aside == 0
