"""Several queues at once: one wait for all of them, and workers that take turns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ...errors import ConfigError, QueueNotFound
from ...retry import Fixed
from .base import PATIENCE_S, SHORT_S, StoreContract, eventually, refused, working


class SeveralQueues(StoreContract):
    """The clock of these tests is real."""

    async def test_dequeue_takes_from_the_first_that_has_something(self) -> None:
        first, second = await self.queue("first"), await self.queue("second")
        await second.enqueue("later")
        await first.enqueue("sooner")
        found = [await self.broker.dequeue(["first", "second"]) for _ in range(3)]
        assert [(each.queue, each.value) for each in found if each is not None] == [
            ("first", "sooner"),
            ("second", "later"),
        ]
        for each in found[:2]:
            assert each is not None
            await each.complete()
        assert (await first.stats()).completed == (await second.stats()).completed == 1

    async def test_dequeue_waits_for_all_of_them(self) -> None:
        names = ["first", "second", "third"]
        third = await self.queue("third")
        for number in range(3):
            waiting = asyncio.ensure_future(self.broker.dequeue(names, wait=self.patience))
            await asyncio.sleep(0.1)
            await third.enqueue(number)
            found = await waiting
            assert found is not None
            assert (found.queue, found.value) == ("third", number)
            await found.complete()

    async def test_dequeue_hears_of_what_others_enqueue(self) -> None:
        other = await self.another_broker()
        await self.queue("second")
        waiting = asyncio.ensure_future(self.broker.dequeue(["first", "second"], wait=self.patience))
        await asyncio.sleep(0.3)
        await (await other.queue("second")).enqueue("news")
        found = await waiting
        assert found is not None
        assert found.queue == "second"
        await found.complete()

    async def test_dequeue_gets_what_becomes_due(self) -> None:
        queue = await self.queue("second")
        await queue.enqueue("delayed", delay=SHORT_S)
        found = await self.broker.dequeue(["first", "second"], lease=SHORT_S, wait=self.patience)
        assert found is not None
        assert found.value == "delayed"
        again = await self.broker.dequeue(["first", "second"], wait=self.patience)  # its lease ends
        assert again is not None
        assert (again.id, again.attempt) == (found.id, 2)
        await again.complete()

    async def test_dequeue_ends_with_nothing(self) -> None:
        paused = await self.queue("paused")
        await paused.enqueue("kept")
        await paused.pause()
        assert await self.broker.dequeue(["empty", "paused"]) is None
        assert await self.broker.dequeue(["empty", "paused"], wait=SHORT_S) is None
        waiting = asyncio.ensure_future(self.broker.dequeue(["empty", "paused"], wait=self.patience))
        await asyncio.sleep(0.1)
        await paused.resume()
        found = await waiting
        assert found is not None
        assert found.value == "kept"
        await found.complete()

    async def test_bad_queues_are_refused_and_nothing_is_made(self) -> None:
        for queues in ("jobs", None, {"jobs": 1}, [], [1], ["tenant-*"], ["good", "no good"]):
            with refused(queues, ConfigError):
                await self.broker.dequeue(queues)  # type: ignore[arg-type] # that is the point
        for wanted in ("jobs", [], {}, {"a": 0}, {"a": -1}, {"a": True}, {"a": "4"}, ["no good"], [1]):
            with refused(wanted, ConfigError):
                self.broker.worker(print, wanted)  # type: ignore[arg-type] # that is the point
        assert await self.broker.queues() == []

    async def test_worker_on_names_and_patterns(self) -> None:
        for name in ("tenant-1", "tenant-2", "other"):
            await (await self.queue(name)).enqueue(name)
        seen: dict[str, str] = {}
        ended: dict[str, str] = {}

        def handle(value: str, context: Any) -> str:
            seen[value] = context.queue
            return value.upper()

        def note(delivery: Any, result: str) -> None:
            ended[delivery.queue] = result

        worker = self.broker.worker(handle, ["named", "tenant-*"], on_complete=note)
        async with working(worker):
            await (await self.queue("named")).enqueue("named")
            await eventually(lambda: len(ended) == 3, "three messages")
            assert set(worker.queues) == {"named", "tenant-1", "tenant-2"}
        assert seen == {name: name for name in ("tenant-1", "tenant-2", "named")}
        assert ended == {name: name.upper() for name in seen}
        stats = await self.broker.stats()
        assert {name: each.completed for name, each in stats.items()} == {**dict.fromkeys(seen, 1), "other": 0}

    async def test_worker_notices_new_queues(self) -> None:
        seen: list[str] = []
        async with working(self.broker.worker(seen.append, ["tenant-*"], maintenance_interval=SHORT_S)):
            await asyncio.sleep(0.1)
            for name in ("tenant-1", "tenant-2"):
                await (await self.queue(name)).enqueue(name)
            await eventually(lambda: len(seen) == 2, "messages of new queues", within=self.patience)
        assert set(seen) == {"tenant-1", "tenant-2"}

    async def test_list_gives_the_order(self) -> None:
        low, high = await self.queue("low"), await self.queue("high")
        await low.enqueue_many(range(5))
        await high.enqueue_many(range(5))
        order: list[str] = []

        async def handle(value: int, context: Any) -> None:
            order.append(context.queue)

        async with working(self.broker.worker(handle, ["high", "low"], concurrency=1, prefetch=0)):
            await eventually(lambda: len(order) == 10, "ten messages", within=self.patience)
        assert order == ["high"] * 5 + ["low"] * 5

    async def test_weights_give_shares(self) -> None:
        low, high = await self.queue("low"), await self.queue("high")
        await low.enqueue_many(range(100))
        await high.enqueue_many(range(100))
        order: list[str] = []

        async def handle(value: int, context: Any) -> None:
            order.append(context.queue)

        async with working(self.broker.worker(handle, {"high": 4, "low": 1}, concurrency=2, prefetch=0)):
            await eventually(lambda: len(order) >= 60, "sixty messages", within=self.patience)
        assert 43 <= order[:60].count("high") <= 53  # 48 with small differences at both ends

    async def test_worker_retries_and_keeps_leases_by_queue(self) -> None:
        slow, bad = await self.queue("slow", lease=SHORT_S), await self.queue("bad", retry=Fixed(0), max_attempts=2)
        attempts: list[tuple[str, int]] = []

        async def handle(value: str, context: Any) -> None:
            attempts.append((context.queue, context.attempt))
            if value == "bad":
                raise ValueError("broken")
            await asyncio.sleep(4 * SHORT_S)

        ids = [await slow.enqueue("slow"), await bad.enqueue("bad")]
        async with working(self.broker.worker(handle, ["slow", "bad"])):
            assert (await slow.wait(ids[0], PATIENCE_S)).status == "completed"
            assert (await bad.wait(ids[1], PATIENCE_S)).status == "dead"
        assert sorted(attempts) == [("bad", 1), ("bad", 2), ("slow", 1)]

    async def test_worker_survives_a_deleted_queue(self) -> None:
        await self.queue("first")
        second = await self.queue("second")
        seen: list[int] = []
        async with working(self.broker.worker(seen.append, ["first", "second"])):
            await second.enqueue(1)
            await eventually(lambda: seen == [1], "the message before")
            await self.broker.delete_queue("first", force=True)
            await second.enqueue(2)
            await eventually(lambda: seen == [1, 2], "the message after", within=self.patience)
        with pytest.raises(QueueNotFound):
            await self.broker.queue("first", create=False)
