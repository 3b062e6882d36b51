"""Consumers hear of messages a little later than their stream; what this process knows itself is waited for."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import holdfast
from holdfast.stores.nats.store import NatsStore
from tests.servers.nats import Server


def store_of(broker: holdfast.Broker) -> NatsStore:
    store = broker.store
    assert isinstance(store, NatsStore)
    return store


async def test_a_claim_waits_for_what_this_process_has_just_stored(own: Server) -> None:
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs")
        consumers = store_of(broker).parts("jobs").partition.consumers
        fetch, misses = consumers.fetch, 1

        async def behind(limit: int, ahead: int = 0) -> Any:
            nonlocal misses
            misses -= 1
            return [] if misses >= 0 else await fetch(limit, ahead)

        await queue.enqueue(1)
        consumers.fetch = behind  # type: ignore[method-assign]  # the server's consumer, a moment late
        delivery = await queue.dequeue()
        assert delivery is not None
        assert delivery.value == 1
        await delivery.complete()
        begun = time.monotonic()
        assert await queue.dequeue() is None
        assert await queue.dequeue() is None
        assert time.monotonic() - begun < 2


async def test_stats_wait_for_what_this_process_has_just_stored(own: Server) -> None:
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs")
        consumers = store_of(broker).parts("jobs").partition.consumers
        look, late = consumers.look, 4

        async def behind() -> Any:
            nonlocal late
            late -= 1
            found = await look()
            return (
                [{**consumer, "num_pending": max(0, consumer["num_pending"] - 1)} for consumer in found]
                if late >= 0
                else found
            )

        await queue.enqueue_many([1, 2])
        consumers.look = behind  # type: ignore[method-assign]  # the server's consumers, a moment late
        assert (await queue.stats()).pending == 2
        late = 1 << 30
        await asyncio.sleep(0.2)
        begun = time.monotonic()
        assert (await queue.stats()).pending == 1, "only this process's own, and only for a moment"
        await queue.enqueue(3)
        assert (await queue.stats()).pending == 2, "it does not wait for ever"
        assert time.monotonic() - begun < 2


async def test_what_is_expected_is_bounded(own: Server) -> None:
    """A worker that always finds something never has a reason to look back."""
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue_many(range(300))
        partition = store_of(broker).parts("jobs").partition
        begun = time.monotonic()
        for _ in range(300):
            delivery = await queue.dequeue()
            assert delivery is not None
            await delivery.complete()
        assert len(partition._visible) <= 2 + (time.monotonic() - begun) / 0.1
        now = store_of(broker).connection.now()
        for number in range(30_000):
            partition.expect(now + 60 + number)
        partition.expect(now + 1)
        assert len(partition._visible) <= 10_000
        assert min(partition._visible) * 0.1 <= now + 31
