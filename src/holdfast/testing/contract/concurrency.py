"""Concurrency: many producers, consumers and brokers at once; nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

from ...queue import Queue
from ...retry import NoRetry
from .base import LONG_S, Gate, StoreContract, eventually, working


class Concurrency(StoreContract):
    """Who does what is open; how often is not."""

    async def test_ten_concurrent_producers_are_all_counted(self) -> None:
        queue = await self.queue()

        async def produce(producer: int) -> None:
            for n in range(10):
                await queue.enqueue([producer, n])

        await asyncio.gather(*[produce(producer) for producer in range(10)])
        stats = await queue.stats()
        assert (stats.total, stats.pending) == (100, 100)
        order = [delivery.value for delivery in await self.take_all(queue, 100)]
        assert all([n for who, n in order if who == producer] == list(range(10)) for producer in range(10))

    async def test_three_consumers_share_thirty_messages(self) -> None:
        queue = await self.queue()
        await queue.enqueue_many(range(30))

        async def consume() -> list[Any]:
            seen = []
            while delivery := await queue.dequeue(lease=LONG_S):
                seen.append(delivery.value)
                await delivery.complete()
            return seen

        seen = [value for values in await asyncio.gather(*[consume() for _ in range(3)]) for value in values]
        assert sorted(seen) == list(range(30))
        stats = await queue.stats()
        assert (stats.completed, stats.pending, stats.processing) == (30, 0, 0)

    async def test_twenty_five_workers_do_thirty_messages_once_each(self) -> None:
        queue = await self.queue()
        seen: Counter[int] = Counter()
        await queue.enqueue_many(range(30))
        async with AsyncExitStack() as running:
            for _ in range(25):
                await running.enter_async_context(working(queue.worker(lambda n: seen.update([n]), concurrency=1)))
            await self.completed(queue, 30)
        assert seen == Counter(range(30))

    async def completed(self, queue: Queue[Any], count: int) -> None:
        async def done() -> bool:
            return (await queue.stats()).completed >= count

        await eventually(done, f"{count} completed messages")
        assert (await queue.stats()).completed == count

    async def test_mixed_outcomes_add_up(self) -> None:
        queue = await self.queue(retry=NoRetry())
        await queue.enqueue_many(range(30))

        async def handle(n: int) -> None:
            if n % 3 == 0:
                raise ValueError(n)

        async with working(queue.worker(handle, concurrency=8)):
            await self.completed(queue, 20)
            await eventually(lambda: self.dead_are(queue, 10), "10 dead letters")
        stats = await queue.stats()
        assert (stats.completed, stats.dead, stats.total) == (20, 10, 30)
        assert sorted(record.value for record in await queue.dead.list()) == list(range(0, 30, 3))

    async def dead_are(self, queue: Queue[Any], count: int) -> bool:
        return await queue.dead.count() == count

    async def test_work_spreads_over_workers(self) -> None:
        queue = await self.queue()
        busy: Counter[str] = Counter()
        together = Gate()

        async def handle(_: int, context: Any) -> None:
            busy[context.worker_id] += 1
            if len(busy) == 3:
                together.open()
            await together.wait()

        await queue.enqueue_many(range(12))
        async with AsyncExitStack() as running:
            for _ in range(3):
                await running.enter_async_context(working(queue.worker(handle, concurrency=2)))
            await self.completed(queue, 12)
        assert len(busy) == 3

    async def test_producers_and_consumers_at_once_end_empty(self) -> None:
        queue = await self.queue()
        seen: list[int] = []

        async def produce(producer: int) -> None:
            for n in range(20):
                await queue.enqueue(producer * 20 + n, priority=n % 3)

        async with working(queue.worker(seen.append, concurrency=4)):
            await asyncio.gather(*[produce(producer) for producer in range(5)])
            await self.completed(queue, 100)
        assert sorted(seen) == list(range(100))
        stats = await queue.stats()
        assert stats.pending + stats.processing + stats.retry + stats.delayed == 0

    async def test_conflicting_writers_recover_unseen(self) -> None:
        handles = [await self.queue(), *[await (await self.another_broker()).queue("jobs") for _ in range(3)]]

        async def work(queue: Queue[Any], number: int) -> list[int]:
            done = []
            for n in range(10):
                await queue.enqueue(number * 10 + n)
                if delivery := await queue.dequeue(lease=LONG_S):
                    await delivery.complete()
                    done.append(delivery.value)
            return done

        done = await asyncio.gather(*[work(queue, number) for number, queue in enumerate(handles)])
        rest = [d.value for d in await self.take_all(handles[0], 40 - sum(map(len, done)))]
        assert sorted([value for values in done for value in values] + rest) == list(range(40))
