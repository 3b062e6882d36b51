"""Reopening: everything is as it was, and still deliverable."""

from __future__ import annotations

import pytest

from ...errors import LeaseLost
from ...retry import Fixed
from .base import LONG_S, SHORT_S, StoreContract


class Reopening(StoreContract):
    """What was acknowledged is there after closing and opening again."""

    async def test_status_attempts_and_records_survive(self) -> None:
        queue = await self.queue(retry=Fixed(LONG_S), max_attempts=2)
        ids = await queue.enqueue_many(range(5), headers={"k": "v"})
        ids.append(await queue.enqueue(5, delay=LONG_S))
        done, failing, dead, _held = await self.take_all(queue, 4)
        await done.complete({"n": 1})
        await failing.fail("later")
        await dead.kill("never")
        before = [await queue.get(id) for id in ids]
        await self.reopen()
        after = [await (await self.queue()).get(id) for id in ids]
        assert [record.status for record in after if record] == [
            *("completed", "retry", "dead", "processing", "pending", "delayed")
        ]
        for old, new in zip(before, after, strict=True):
            assert old is not None
            assert new is not None
            for name in ("status", "payload", "headers", "priority", "attempts", "result", "error", "enqueued_at"):
                assert getattr(new, name) == getattr(old, name), name

    async def test_order_survives(self) -> None:
        queue = await self.queue()
        for n in range(10):
            await queue.enqueue(n, priority=n % 2)
        await self.reopen()
        assert [d.value for d in await self.take_all(await self.queue(), 10)] == [1, 3, 5, 7, 9, 0, 2, 4, 6, 8]

    async def test_lease_survives_and_its_receipt_still_settles(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1)
        receipt = (await self.take(queue)).receipt
        await self.reopen()
        queue = await self.queue()
        assert await queue.dequeue() is None
        await queue.extend(receipt, LONG_S)
        await queue.complete(receipt, "after all")
        record = await queue.get(id)
        assert record is not None
        assert (record.status, record.result, record.attempts) == ("completed", "after all", 1)

    async def test_lease_expires_while_nobody_is_there(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        receipt = (await self.take(queue, lease=SHORT_S)).receipt
        await self.reopen()
        await self.advance(SHORT_S)
        queue = await self.queue()
        again = await self.take(queue)
        assert again.attempt == 2
        with pytest.raises(LeaseLost):
            await queue.complete(receipt)
        await again.complete()

    async def test_delayed_messages_survive(self) -> None:
        queue = await self.queue()
        soon, late = await queue.enqueue("soon", delay=SHORT_S), await queue.enqueue("late", delay=LONG_S)
        await self.reopen()
        await self.advance(SHORT_S)
        queue = await self.queue()
        assert (await self.take(queue)).id == soon
        assert await queue.status(late) == "delayed"

    async def test_retrying_messages_survive(self) -> None:
        queue = await self.queue(retry=Fixed(SHORT_S))
        await queue.enqueue(1)
        await (await self.take(queue)).fail("once")
        await self.reopen()
        await self.advance(SHORT_S)
        assert (await self.take(await self.queue())).attempt == 2

    async def test_dead_letters_and_archive_survive(self) -> None:
        queue = await self.queue()
        dead = await self.bury(queue, 1, 2)
        done = await self.finish(queue, 3)
        await self.reopen()
        queue = await self.queue()
        assert [record.id for record in await queue.dead.list()] == dead
        assert [record.id for record in await queue.archive.list()] == done
        assert await queue.dead.replay() == 2
        assert [d.value for d in await self.take_all(queue, 2)] == [1, 2]

    async def test_counts_options_pause_and_dedup_survive(self) -> None:
        queue = await self.queue(lease=7)
        await self.finish(queue, 1, 2)
        first = await queue.enqueue("a", dedup_key="k")
        await queue.pause()
        before = await queue.stats()
        await self.reopen()
        queue = await self.queue()
        after = await queue.stats()
        assert (after.total, after.completed, after.pending) == (before.total, before.completed, before.pending)
        assert queue.options.lease == 7
        assert await queue.dequeue() is None
        assert await queue.enqueue("b", dedup_key="k") == first
        await queue.resume()
        assert (await self.take(queue)).id == first

    async def test_replay_after_reopening_adds_nothing_twice(self) -> None:
        queue = await self.queue()
        ids = await self.finish(queue, 1)
        assert await queue.archive.replay(ids) == 1
        await self.reopen()
        queue = await self.queue()
        assert await queue.archive.replay(ids) == 0
        assert (await queue.stats()).pending == 1

    async def test_deleted_queues_stay_deleted(self) -> None:
        await (await self.queue("gone")).enqueue(1)
        await self.broker.delete_queue("gone", force=True)
        await self.reopen()
        assert await self.broker.queues() == []
