"""Order of a claim where several sources meet: ready, due, and messages whose last lease is over."""

from __future__ import annotations

import holdfast
from holdfast.stores.records import Claims
from holdfast.testing.contract.base import eventually

from .fixtures import Database


async def lapsed(queue: holdfast.Queue, count: int) -> None:
    """So many claimed messages whose lease is over."""
    assert len(await queue.dequeue_many(count, lease=0.05)) == count

    async def over() -> bool:
        return (await queue.stats()).processing == 0

    await eventually(over, "the end of the leases")


async def test_due_message_of_higher_priority_stands_before_ready_ones(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue_many(
            [holdfast.Message("low"), holdfast.Message("high", priority=255, delay=0.05), holdfast.Message("low too")]
        )

        async def due() -> bool:
            return (await queue.stats()).pending == 3

        await eventually(due, "the delayed message")
        assert [delivery.value for delivery in await queue.dequeue_many(4)] == ["high", "low", "low too"]


async def test_dead_messages_in_front_do_not_let_later_ones_pass(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue_many([holdfast.Message(f"spent {n}", priority=9, max_attempts=1) for n in range(40)])
        await lapsed(queue, 40)
        await queue.enqueue("first")
        await queue.enqueue("second", delay=0.01)
        delivery = await queue.dequeue(wait=5)
        assert delivery is not None
        assert delivery.value == "first"
        assert (await queue.stats()).dead == 40


async def test_a_worker_with_default_settings_learns_to_claim_many(postgres: Database) -> None:
    """Handlers that run dry let the claims grow beyond 100 messages, without any setting."""
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue_many(range(8000))
        sizes: list[int] = []
        claim = broker.store.claim

        async def counted(*args: object, **options: object) -> Claims:
            claims = await claim(*args, **options)
            sizes.append(len(claims.messages))
            return claims

        broker.store.claim = counted
        seen: list[int] = []

        async def handle(value: int) -> None:
            seen.append(value)

        async with queue.worker(handle):
            await eventually(lambda: len(seen) == 8000, "every message done")
        assert sorted(seen) == list(range(8000))
        assert 500 <= max(sizes) <= 1000
