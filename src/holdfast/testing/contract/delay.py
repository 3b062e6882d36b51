"""Delay and dedup: not before its time, and not twice."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from .base import LONG_S, PATIENCE_S, SHORT_S, StoreContract


class DelayAndDedup(StoreContract):
    """The time is the store's."""

    async def moment(self, seconds: float) -> datetime:
        """An instant so many seconds from the store's now."""
        return datetime.fromtimestamp(await self.clock() + seconds, UTC)

    async def test_delayed_message_is_invisible_before_and_visible_after(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue("later", delay=SHORT_S)
        assert await queue.status(id) == "delayed"
        assert await queue.dequeue() is None
        await self.advance(SHORT_S)
        assert (await self.take(queue)).id == id

    async def test_waiting_claim_gets_a_message_when_it_is_due(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue("later", delay=SHORT_S)
        waiting = asyncio.create_task(queue.dequeue(wait=PATIENCE_S))
        await self.advance(SHORT_S)
        delivery = await waiting
        assert delivery is not None
        assert delivery.id == id

    async def test_zero_delay_is_visible_at_once(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1, delay=0)
        assert await queue.status(id) == "pending"
        assert await queue.dequeue() is not None

    async def test_at_in_the_past_is_visible_at_once(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1, at=datetime(2001, 1, 1, tzinfo=UTC))
        assert await queue.status(id) == "pending"
        assert await queue.dequeue() is not None

    async def test_at_in_the_future_waits_until_then(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1, at=await self.moment(SHORT_S))
        assert await queue.dequeue() is None
        await self.advance(SHORT_S + 0.01)  # a datetime counts microseconds
        await self.take(queue)

    async def test_an_hour_is_accepted(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1, delay=3600)
        record = await queue.get(id)
        assert record is not None
        assert record.visible_at is not None
        assert record.status == "delayed"
        assert abs(record.visible_at.timestamp() - await self.clock() - 3600) < 5
        assert (await queue.stats()).delayed == 1

    async def test_due_messages_come_by_priority(self) -> None:
        queue = await self.queue()
        await queue.enqueue("low", delay=SHORT_S)
        await queue.enqueue("high", delay=SHORT_S, priority=9)
        await queue.enqueue("ready", priority=5)
        await self.advance(SHORT_S)
        assert [d.value for d in await self.take_all(queue, 3)] == ["high", "ready", "low"]

    async def test_due_message_of_higher_priority_comes_before_those_that_waited(self) -> None:
        queue = await self.queue()
        await queue.enqueue_many(["first", "second"])
        await queue.enqueue("later", delay=SHORT_S)
        await queue.enqueue("third")
        await queue.enqueue("urgent", delay=SHORT_S, priority=7)
        await self.advance(SHORT_S)
        assert [(await self.take(queue)).value for _ in range(2)] == ["urgent", "first"]

    async def test_same_dedup_key_within_the_window_is_one_message(self) -> None:
        queue = await self.queue()
        first = await queue.enqueue("a", dedup_key="k")
        assert await queue.enqueue("b", dedup_key="k") == first
        assert await queue.enqueue("c", dedup_key="other") != first
        assert (await queue.stats()).total == 2
        assert [d.value for d in await self.take_all(queue, 2)] == ["a", "c"]

    async def test_dedup_key_is_remembered_after_completion(self) -> None:
        queue = await self.queue()
        first = await queue.enqueue("a", dedup_key="k")
        await (await self.take(queue)).complete(keep=False)
        assert await queue.enqueue("b", dedup_key="k") == first
        assert await queue.dequeue() is None

    async def test_dedup_key_is_forgotten_after_the_window(self) -> None:
        queue = await self.queue(dedup_window=SHORT_S)
        first = await queue.enqueue("a", dedup_key="k")
        await self.advance(SHORT_S)
        second = await queue.enqueue("b", dedup_key="k")
        assert first != second
        assert [d.value for d in await self.take_all(queue, 2)] == ["a", "b"]

    async def test_concurrent_enqueues_with_one_key_are_one_message(self) -> None:
        queue = await self.queue()
        ids = await asyncio.gather(*[queue.enqueue(n, dedup_key="k") for n in range(10)])
        assert len(set(ids)) == 1
        assert (await queue.stats()).total == 1

    async def test_brokers_share_dedup_keys(self) -> None:
        queue = await self.queue()
        other = await (await self.another_broker()).queue("jobs")
        ids = await asyncio.gather(*[q.enqueue(n, dedup_key="k") for n, q in enumerate([queue, other] * 3)])
        assert len(set(ids)) == 1
        assert (await queue.stats()).total == 1

    async def test_dedup_keys_belong_to_their_queue(self) -> None:
        one, two = await self.queue("one"), await self.queue("two")
        assert await one.enqueue(1, dedup_key="k") != await two.enqueue(1, dedup_key="k")

    async def test_delayed_message_holds_its_dedup_key(self) -> None:
        queue = await self.queue()
        first = await queue.enqueue("a", dedup_key="k", delay=LONG_S)
        assert await queue.enqueue("b", dedup_key="k") == first
        assert await queue.dequeue() is None
