"""Who waits at an empty queue is handed what comes by the server, and looks for itself more and more rarely."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import holdfast
from holdfast.testing.contract.base import eventually
from tests.servers.nats import Server

POLL_SECONDS = 0.1


@contextmanager
def looks(broker: holdfast.Broker, queue: str) -> Iterator[list[float]]:
    """When a claim of this queue looked for messages."""
    claimer, at = broker.store.parts(queue).claimer, list[float]()
    once = claimer._once

    async def counted(*args):
        at.append(time.monotonic())
        return await once(*args)

    claimer._once = counted
    yield at


async def test_looks_in_vain_grow_rarer_and_what_comes_is_taken_at_once(own: Server) -> None:
    async with holdfast.connect(own.url) as here, holdfast.connect(own.url, poll_interval=POLL_SECONDS) as there:
        producer, consumer = await here.queue("jobs"), await there.queue("jobs")
        with looks(there, "jobs") as at:
            waiting = asyncio.create_task(consumer.dequeue(wait=30))
            await eventually(lambda: len(at) >= 6, "looks at 0.1, 0.2, 0.4, 0.8 and 1.6 s from each other")
            assert at[5] - at[4] >= 1.5, "every look came after 0.1 s before"
            for priority in (0, 7):  # 7 has no consumer yet
                began = time.monotonic()
                await producer.enqueue(priority, priority=priority)
                delivery = await waiting
                assert delivery is not None
                assert time.monotonic() - began < 1.5
                await delivery.complete()
                waiting = asyncio.create_task(consumer.dequeue(wait=30))
            waiting.cancel()


async def test_rare_looks_go_on_from_wait_to_wait_until_something_comes(own: Server) -> None:
    async with holdfast.connect(own.url, poll_interval=POLL_SECONDS) as broker:
        queue = await broker.queue("jobs")
        for _ in range(3):
            assert await queue.dequeue(wait=1) is None
        with looks(broker, "jobs") as at:
            assert await queue.dequeue(wait=1) is None
            assert len(at) <= 3, "ten before"
        await queue.enqueue(1)
        delivery = await queue.dequeue()
        assert delivery is not None
        with looks(broker, "jobs") as at:
            assert await queue.dequeue(wait=1) is None
            assert len(at) >= 4, "often at first"


async def test_delay_that_ends_between_two_rare_looks(own: Server) -> None:
    async with holdfast.connect(own.url, poll_interval=POLL_SECONDS) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue("later", delay=2.0)
        began = time.monotonic()
        delivery = await queue.dequeue(wait=20)
        assert delivery is not None
        assert time.monotonic() - began < 2 + 1.5


async def test_upkeep_rests_while_nothing_happens(own: Server) -> None:
    async with holdfast.connect(own.url) as here, holdfast.connect(own.url, poll_interval=POLL_SECONDS) as there:
        producer, consumer = await here.queue("jobs"), await there.queue("jobs")

        async def rests() -> bool:
            await there.store.maintain("jobs")
            assert await consumer.dequeue(wait=3 * POLL_SECONDS) is None
            return there.store.is_resting("jobs")

        await producer.enqueue(1)
        held = await consumer.dequeue()
        assert held is not None
        for _ in range(2):
            assert not await rests(), "a message is held"
        await held.complete()
        await eventually(rests, "upkeep with nothing to do", within=40)
        await here.queue("jobs", max_attempts=7)
        await eventually(lambda: not there.store.is_resting("jobs"), "options that must be read")
        await eventually(rests, "upkeep with nothing to do", within=40)
        await producer.enqueue(1)
        assert await consumer.dequeue(wait=10) is not None
        assert not there.store.is_resting("jobs")
