"""Archive: what is settled can be read, counted, replayed and removed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from ...messages import Message
from ...retry import Fixed
from .base import LONG_S, SHORT_S, StoreContract


class Archive(StoreContract):
    """The end of a message is a record."""

    async def test_archive_lists_in_pages_and_counts(self) -> None:
        queue = await self.queue()
        ids = await self.finish(queue, *range(5))
        first = await queue.archive.list(limit=3)
        rest = await queue.archive.list(limit=3, after=first[-1].id)
        assert [record.id for record in [*first, *rest]] == ids
        assert await queue.archive.list(after=ids[-1]) == []
        assert await queue.archive.count() == 5

    async def test_archive_order_is_that_of_ids_not_of_completion(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many(range(4))
        for delivery in reversed(await self.take_all(queue, 4)):
            await delivery.complete()
        assert [record.id for record in await queue.archive.list()] == ids

    @pytest.mark.parametrize("end", ["complete", "kill"])
    async def test_record_says_when_the_attempt_that_ended_it_was_claimed(self, end: str) -> None:
        """Not an earlier one, and an extension of the lease does not matter."""
        queue = await self.queue(retry=Fixed(0), max_attempts=3)
        id = await queue.enqueue(1)
        await (await self.take(queue)).fail("once")
        await self.advance(SHORT_S)
        before = await self.clock()
        delivery = await self.take(queue)
        after = await self.clock()
        assert [one.claimed_at for one in (await queue.get(id),) if one] == [None]
        await self.advance(SHORT_S)
        await delivery.extend(LONG_S)
        await (delivery.complete() if end == "complete" else delivery.kill("enough"))
        for _ in range(2):  # as it is, and once it is filed
            [listed] = await (queue.archive if end == "complete" else queue.dead).list()
            for record in (await queue.get(id), listed):
                assert record is not None
                assert record.claimed_at is not None
                assert record.finished_at is not None
                assert before - SHORT_S / 2 < record.claimed_at.timestamp() < after + SHORT_S / 2
                assert record.claimed_at < record.finished_at
            await self.broker.maintain()

    async def test_record_names_no_claim_when_nobody_held_the_message(self) -> None:
        queue = await self.queue(retry=Fixed(60))
        fresh, tried = await queue.enqueue_many([1, 2])
        await queue.cancel(fresh)
        await (await self.take(queue)).fail("once")
        await queue.cancel(tried)
        records = [await queue.get(id) for id in (fresh, tried)]
        assert [record and (record.status, record.claimed_at) for record in records] == [("failed", None)] * 2

    async def test_archive_replay_copies(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue({"n": 1}, priority=6, headers={"k": "v"})
        await (await self.take(queue)).complete("done")
        assert await queue.archive.replay([id, id, "no-such-id"]) == 1
        again = await self.take(queue)
        assert (again.value, again.priority, again.attempt) == ({"n": 1}, 6, 1)
        assert again.headers == {"k": "v", "replayed_from": id}
        record = await queue.get(id)
        assert record is not None
        assert (record.status, record.result) == ("completed", "done")

    async def test_archive_replay_keeps_the_attempts_a_message_asked_for(self) -> None:
        queue = await self.queue(max_attempts=3)
        ids = await queue.enqueue_many(
            [Message("own", max_attempts=5), Message("plain"), Message("same", max_attempts=3)]
        )
        for _ in ids:
            await (await self.take(queue)).complete()
        queue = await self.queue(queue.name, max_attempts=7)
        assert await queue.archive.replay(ids) == 3
        again = [await self.take(queue) for _ in ids]
        assert {each.value: each.max_attempts for each in again} == {"own": 5, "plain": 7, "same": 3}

    async def test_archive_replay_tells_the_new_ids(self) -> None:
        queue = await self.queue()
        ids = await self.finish(queue, 1, 2)
        done = await queue.archive.replay([*ids, ids[0], "no-such-id"])
        assert (done, set(done.ids or ())) == (2, set(ids))
        found = {delivery.headers["replayed_from"]: delivery.id for delivery in await self.take_all(queue, 2)}
        assert found == done.ids

    async def test_second_replay_of_the_archive_adds_nothing(self) -> None:
        queue = await self.queue()
        ids = await self.finish(queue, 1, 2)
        assert await queue.archive.replay(ids) == 2
        assert await queue.archive.replay(ids) == 0
        await queue.complete_many(await self.take_all(queue, 2))
        assert await queue.archive.replay(ids) == 0
        assert await queue.dequeue() is None

    async def test_archive_replays_a_span_of_time(self) -> None:
        queue = await self.queue()
        await self.finish(queue, "before")
        await self.advance(SHORT_S)
        since = datetime.fromtimestamp(await self.clock(), UTC)
        await self.advance(0.01)
        await self.finish(queue, "within")
        await self.advance(SHORT_S)
        until = datetime.fromtimestamp(await self.clock(), UTC)
        await self.advance(0.01)
        await self.finish(queue, "after")
        assert await queue.archive.replay(since=since, until=until) == 1
        assert (await self.take(queue)).value == "within"

    async def test_archive_is_deleted_by_id_and_purged(self) -> None:
        queue = await self.queue()
        ids = await self.finish(queue, *range(4))
        assert await queue.archive.delete([ids[0], ids[0], "no-such-id"]) == 1
        assert await queue.status(ids[0]) is None
        assert [record.id for record in await queue.archive.list()] == ids[1:]
        assert await queue.archive.purge() == 3
        assert (await queue.archive.count(), await queue.archive.list()) == (0, [])
        assert (await queue.stats()).completed == 4

    async def test_retention_removes_only_what_is_old(self) -> None:
        queue = await self.queue()
        [old] = await self.finish(queue, "old")
        await self.advance(
            3
        )  # retention counts days; a store may gather outcomes for some seconds before it files them
        await self.broker.maintain()
        await self.advance(1)
        [new] = await self.finish(queue, "new")
        await self.broker.configure_queue("jobs", archive_days=0.5 / 86400)
        await self.broker.maintain()
        assert [await queue.status(id) for id in (old, new)] == [None, "completed"]

    async def test_cleanup_removes_only_settled_messages(self) -> None:
        queue = await self.queue()
        await self.bury(queue, "dead")
        await self.finish(queue, 1, 2)
        await queue.enqueue("held")
        await self.take(queue)
        await queue.enqueue("pending")
        await queue.enqueue("delayed", delay=60)
        await queue.cancel(await queue.enqueue("cancelled"))
        assert await queue.cleanup() == 3
        stats = await queue.stats()
        assert (stats.dead, stats.processing, stats.pending, stats.delayed) == (1, 1, 1, 1)
        assert (stats.archived, stats.total) == (0, 4)
        assert await queue.cleanup() == 0

    async def test_cleanup_spares_what_is_younger(self) -> None:
        queue = await self.queue()
        [old] = await self.finish(queue, "old")
        await self.advance(4 * SHORT_S)
        [new] = await self.finish(queue, "new")
        assert await queue.cleanup(older_than=2 * SHORT_S) == 1
        assert [await queue.status(id) for id in (old, new)] == [None, "completed"]

    @pytest.mark.parametrize(("kept", "keep"), [(True, False), (False, None)], ids=["keep=False", "archive=False"])
    async def test_message_that_is_not_kept_leaves_only_a_count(self, kept: bool, keep: bool | None) -> None:
        queue = await self.queue(archive=kept)
        id = await queue.enqueue(1)
        delivery = await self.take(queue)
        await delivery.complete("gone", keep=keep)
        await delivery.complete("gone", keep=keep)
        assert await queue.status(id) is None
        stats = await queue.stats()
        assert (stats.completed, stats.archived, stats.total) == (1, 0, 0)

    async def test_one_message_is_kept_although_the_queue_keeps_none(self) -> None:
        queue = await self.queue(archive=False)
        id = await queue.enqueue(1)
        await (await self.take(queue)).complete("precious", keep=True)
        record = await queue.get(id)
        assert record is not None
        assert record.result == "precious"

    async def test_results_come_back_equal(self) -> None:
        queue = await self.queue()
        results: list[Any] = [None, 0, "ü", [1, {"a": None}], "x" * 100_000]
        for result in results:
            id = await queue.enqueue(1)
            await (await self.take(queue)).complete(result)
            record = await queue.get(id)
            assert record is not None
            assert record.result == result
        assert [record.result for record in await queue.archive.list()] == results
