"""The queue as a whole: stats, pause, purge, create and delete."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from ...errors import QueueExists, QueueNotEmpty, QueueNotFound
from ...retry import Fixed
from ...stores.records import Stats
from .base import LONG_S, PATIENCE_S, SHORT_S, StoreContract, eventually, working


class Whole(StoreContract):
    """Counts are true, and verbs on a queue do what they say and no more."""

    async def test_stats_of_an_empty_queue_are_zero(self) -> None:
        stats = await (await self.queue()).stats()
        others = ("oldest_age", "exact", "usage")
        counts = {name: getattr(stats, name) for name in Stats.__struct_fields__ if name not in others}
        assert counts == dict.fromkeys(counts, 0)
        assert stats.oldest_age is None

    async def test_stats_follow_the_messages(self) -> None:
        queue = await self.queue()
        await queue.enqueue_many(range(3))
        assert await self.counts() == (3, 3, 0, 0)
        delivery = await self.take(queue)
        assert await self.counts() == (3, 2, 1, 0)
        await delivery.complete()
        assert await self.counts() == (3, 2, 0, 1)

    async def counts(self) -> tuple[int, int, int, int]:
        stats = await (await self.queue()).stats()
        return stats.total, stats.pending, stats.processing, stats.completed

    async def test_stats_agree_with_a_full_scan(self) -> None:
        queue = await self.queue(retry=Fixed(LONG_S), max_attempts=2)
        ids = await queue.enqueue_many(range(8))
        ids += await queue.enqueue_many(range(2), delay=LONG_S)
        taken = await self.take_all(queue, 6)
        await queue.complete_many(taken[:2])
        await taken[2].fail("later")
        await taken[3].kill("never")
        await taken[4].complete(keep=False)
        await queue.cancel(ids[7])
        found = Counter([await queue.status(id) for id in ids])
        stats = await queue.stats()
        for name in ("pending", "delayed", "processing", "retry", "dead"):
            assert getattr(stats, name) == found[name], name
        assert stats.archived == found["completed"] + found["failed"] == len(await queue.archive.list())
        assert stats.total == len(ids) - found[None]
        assert (stats.completed, stats.failed, stats.dead) == (3, 1, len(await queue.dead.list()))

    async def test_stats_tell_the_age_of_the_oldest_pending_message(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        await self.advance(SHORT_S)
        await queue.enqueue(2)
        age = (await queue.stats()).oldest_age
        assert age is not None
        assert SHORT_S - 0.01 <= age < SHORT_S + 5

    async def test_broker_counts_every_queue(self) -> None:
        await (await self.queue("a")).enqueue_many([1, 2])
        await self.queue("b")
        stats = await self.broker.stats()
        assert {name: one.pending for name, one in stats.items()} == {"a": 2, "b": 0}
        assert [info.name for info in await self.broker.queues()] == ["a", "b"]

    async def test_paused_queue_takes_messages_and_gives_none(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        held = await self.take(queue)
        await queue.pause()
        await queue.enqueue(2)
        assert await queue.dequeue() is None
        await held.complete()
        assert (await queue.stats()).pending == 1
        await queue.resume()
        assert (await self.take(queue)).value == 2

    async def test_resume_wakes_a_waiting_claim(self) -> None:
        queue = await self.queue()
        await queue.pause()
        await queue.enqueue(1)
        waiting = asyncio.create_task(queue.dequeue(wait=PATIENCE_S))
        await asyncio.sleep(0)
        await queue.resume()
        assert await asyncio.wait_for(waiting, PATIENCE_S / 2) is not None

    async def test_paused_workers_rest_until_resumed(self) -> None:
        queue = await self.queue()
        seen: list[int] = []
        async with working(queue.worker(seen.append)):
            await queue.wait(await queue.enqueue(1), PATIENCE_S)
            await queue.pause()
            await queue.enqueue(2)
            await asyncio.sleep(SHORT_S)
            assert seen == [1]
            await queue.resume()
            await eventually(lambda: seen == [1, 2], "the second message")

    async def test_purge_drops_what_waits_and_nothing_else(self) -> None:
        queue = await self.queue(retry=Fixed(LONG_S))
        await self.bury(queue, "dead")
        await self.finish(queue, "archived")
        await queue.enqueue("retrying")
        await (await self.take(queue)).fail("later")
        await queue.enqueue("held")
        held = await self.take(queue)
        waiting = [await queue.enqueue("pending"), await queue.enqueue("delayed", delay=LONG_S)]
        assert await queue.purge() == 3
        assert [await queue.status(id) for id in waiting] == [None, None]
        stats = await queue.stats()
        assert (stats.pending, stats.delayed, stats.retry, stats.processing) == (0, 0, 0, 1)
        assert (stats.dead, stats.archived) == (1, 1)
        await held.complete()
        assert await queue.purge() == 0
        assert await queue.dequeue() is None

    async def test_messages_after_a_purge_are_delivered(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        await queue.purge()
        await queue.enqueue(2)
        assert (await self.take(queue)).value == 2

    async def test_delete_refuses_a_queue_with_messages_unless_forced(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        with pytest.raises(QueueNotEmpty):
            await self.broker.delete_queue("jobs")
        assert (await self.take(queue)).value == 1
        await self.broker.delete_queue("jobs", force=True)
        assert await self.broker.queues() == []

    async def test_delete_refuses_a_queue_with_dead_letters(self) -> None:
        await self.bury(await self.queue(), 1)
        with pytest.raises(QueueNotEmpty):
            await self.broker.delete_queue("jobs")

    async def test_deleted_queue_is_created_empty_again(self) -> None:
        queue = await self.queue(max_attempts=9)
        await self.finish(queue, 1)
        await self.bury(queue, 2)
        old = await queue.enqueue(3, dedup_key="k")
        await self.broker.delete_queue("jobs", force=True)
        queue = await self.queue()
        stats = await queue.stats()
        assert (stats.total, stats.completed) == (0, 0)
        assert queue.options.max_attempts == 3
        assert await queue.status(old) is None
        assert await queue.enqueue(4, dedup_key="k") != old
        assert (await self.take(queue)).value == 4

    async def test_absent_queue_is_not_found(self) -> None:
        with pytest.raises(QueueNotFound):
            await self.broker.queue("absent", create=False)
        with pytest.raises(QueueNotFound):
            await self.broker.delete_queue("absent")
        with pytest.raises(QueueNotFound):
            await self.broker.configure_queue("absent", lease=5)
        queue = await self.queue("gone")
        await self.broker.delete_queue("gone")
        with pytest.raises(QueueNotFound):
            await queue.enqueue(1)

    async def test_creating_twice_raises_queue_exists(self) -> None:
        await self.broker.create_queue("jobs")
        with pytest.raises(QueueExists):
            await self.broker.create_queue("jobs")
        await self.queue()

    async def test_concurrent_opening_creates_one_queue(self) -> None:
        handles = await asyncio.gather(*[self.queue("shared") for _ in range(8)])
        await asyncio.gather(*[handle.enqueue(n) for n, handle in enumerate(handles)])
        assert (await handles[0].stats()).total == 8
        assert [info.name for info in await self.broker.queues()] == ["shared"]

    async def test_uninstall_removes_everything_of_ours_and_says_that_nothing_is_left(self) -> None:
        await self.queue("other")
        queue = await self.queue(retry=Fixed(LONG_S), max_attempts=2, dead_letter=True)
        await queue.enqueue_many([1, 2, 3, 4, b"x" * 3_000_000], delay=0)
        await queue.enqueue("later", delay=LONG_S, dedup_key="k", headers={"k": "v"})
        one, two, three, four = (await self.take_all(queue, 5))[:4]
        await one.complete("x" * 100_000)
        await two.fail("why")
        await three.kill("why")
        await four.complete()
        await queue.dead.replay([three.id])
        await queue.archive.replay([one.id])
        await self.broker.maintain()
        await (await self.queue("dropped")).enqueue(1)
        await self.broker.delete_queue("dropped", force=True)
        assert await self.broker.uninstall() == []
        await self.broker.close()
        self.broker = await self.another_broker(first=True)
        assert await self.broker.queues() == []
