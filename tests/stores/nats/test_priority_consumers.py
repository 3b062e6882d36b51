"""Delayed messages lie in their consumer: they keep their place, and a long run of them holds nobody up."""

from __future__ import annotations

import asyncio
import time

import holdfast
from holdfast.testing.contract.base import eventually
from tests.servers.nats import Server


async def test_delayed_message_keeps_its_place_once_it_is_due(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    await queue.enqueue("first, and not due", delay=0.5)
    await queue.enqueue_many(["second", "third"])

    async def due() -> bool:
        return (await queue.stats()).pending == 3

    await eventually(due, "the delay to be over")
    taken = [await queue.dequeue(wait=5) for _ in range(3)]
    assert [one.value for one in taken if one] == ["first, and not due", "second", "third"]


async def test_delayed_message_that_was_looked_at_too_early_keeps_its_place(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    await queue.enqueue("first, and not due", delay=1)
    assert await queue.dequeue() is None
    await queue.enqueue_many(["second", "third"])

    async def due() -> bool:
        return (await queue.stats()).pending == 3

    await eventually(due, "the delay to be over")
    await asyncio.sleep(0.5)  # the server's timer may be as late as that
    taken = [await queue.dequeue(wait=5) for _ in range(3)]
    assert [one.value for one in taken if one] == ["first, and not due", "second", "third"]


async def test_long_run_of_delayed_messages_is_passed_at_once(own: Server) -> None:
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs")
        for _ in range(4):
            await queue.enqueue_many(range(1000), delay=3600)
        await queue.enqueue("ready")
        stats = await queue.stats()
        assert (stats.delayed, stats.pending, stats.exact) == (4000, 1, True)
        started = time.monotonic()
        delivery = await queue.dequeue(wait=10)
        assert delivery is not None
        assert delivery.value == "ready"
        assert time.monotonic() - started < 5
        await delivery.complete()
        assert await queue.dequeue() is None
        stats = await queue.stats()
        assert (stats.delayed, stats.pending, stats.processing, stats.exact) == (4000, 0, 0, True)
        assert (await broker.store.purge("jobs"), (await queue.stats()).total) == (4000, 1)
        await queue.enqueue("next")
        assert await queue.dequeue(wait=5) is not None


async def test_purge_spares_a_delayed_message_in_hand(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    await queue.enqueue("held", delay=0.1)
    held = await queue.dequeue(wait=5)
    assert held is not None
    await queue.enqueue("waits", delay=3600)
    await queue.enqueue("ready")
    assert await queue.purge() == 2
    await held.complete()
    stats = await queue.stats()
    assert (stats.total, stats.completed) == (1, 1)


async def test_released_messages_come_in_their_order(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    await queue.enqueue_many(range(60))
    held = await queue.dequeue_many(40, wait=5)
    for delivery in held[::-1][:25] + held[:15][::-1]:
        await delivery.release()
    taken = [await queue.dequeue(wait=5) for _ in range(60)]
    assert [one.value for one in taken if one] == list(range(60))
