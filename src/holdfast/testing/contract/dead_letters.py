"""Dead letters: what failed for good is kept, seen, replayed and processed."""

from __future__ import annotations

from typing import Any

import pytest

from ...messages import Message
from ...retry import Fixed
from .base import LONG_S, PATIENCE_S, SHORT_S, StoreContract, eventually, working


class DeadLetters(StoreContract):
    """Nothing dies unseen."""

    async def test_dead_record_keeps_everything(self) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=2)
        id = await queue.enqueue({"to": "ü"}, priority=9, headers={"trace": "1"})
        for reason in ("first", "second"):
            await (await self.take(queue)).fail(reason)
        [record] = await queue.dead.list()
        assert (record.id, record.value, record.headers, record.priority) == (id, {"to": "ü"}, {"trace": "1"}, 9)
        assert (record.status, record.attempts, record.error) == ("dead", 2, "second")
        assert record.finished_at is not None
        assert record.enqueued_at <= record.finished_at
        assert await queue.dead.count() == 1

    async def test_dead_letter_tells_of_the_claim_that_ended_it(self) -> None:
        """Of the one it died in, whatever a worker on dead letters tries, until that completes it."""
        queue = await self.queue(retry=Fixed(0))
        [id] = await self.bury(queue, 1)
        [died] = await queue.dead.list()
        await self.advance(SHORT_S)
        seen: list[Any] = []

        async def mend(value: int) -> None:
            seen.extend([record.claimed_at for record in await queue.dead.list()])
            if len(seen) == 1:
                raise ValueError("not yet")

        async with working(queue.dead.worker(mend)):
            await eventually(lambda: self.is_now(queue, id, "completed"), "the mended message")
        mended = await queue.get(id)
        assert seen == [died.claimed_at] * 2
        assert mended is not None
        instants = [died.claimed_at, died.finished_at, mended.claimed_at, mended.finished_at]
        told = [instant for instant in instants if instant is not None]
        assert (len(told), told) == (4, sorted(told))

    async def test_killed_message_is_dead_at_once(self) -> None:
        queue = await self.queue(max_attempts=9)
        id = await queue.enqueue(1)
        await (await self.take(queue)).kill("poison")
        record = await queue.wait(id, PATIENCE_S)
        assert (record.status, record.attempts, record.error) == ("dead", 1, "poison")
        assert await queue.dequeue() is None

    async def test_dead_letters_are_listed_in_pages(self) -> None:
        queue = await self.queue()
        ids = await self.bury(queue, *range(5))
        first = await queue.dead.list(limit=2)
        second = await queue.dead.list(limit=2, after=first[-1].id)
        third = await queue.dead.list(after=second[-1].id)
        assert [record.id for record in [*first, *second, *third]] == ids

    async def test_replay_of_one_brings_it_back_fresh(self) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=2)
        await queue.enqueue([1], priority=4, headers={"k": "v"})
        for _ in range(2):
            await (await self.take(queue)).fail("x")
        [dead] = await queue.dead.list()
        assert await queue.dead.replay([dead.id]) == 1
        again = await self.take(queue)
        assert (again.value, again.priority, again.attempt, again.max_attempts) == ([1], 4, 1, 2)
        assert again.headers == {"k": "v", "replayed_from": dead.id}
        assert again.id != dead.id
        assert await queue.dead.count() == 0

    async def test_replay_keeps_the_attempts_a_message_asked_for(self) -> None:
        """Its own number; the others have what the queue says when they run again."""
        queue = await self.queue(retry=Fixed(0), max_attempts=1)
        await queue.enqueue_many([Message("own", max_attempts=2), Message("plain"), Message("same", max_attempts=1)])
        for _ in range(4):
            await (await self.take(queue)).fail("x")
        queue = await self.queue(queue.name, max_attempts=7)
        assert await queue.dead.replay() == 3
        again = [await self.take(queue) for _ in range(3)]
        assert {each.value: each.max_attempts for each in again} == {"own": 2, "plain": 7, "same": 1}

    async def test_replay_of_some_leaves_the_others_dead(self) -> None:
        queue = await self.queue()
        ids = await self.bury(queue, *range(4))
        assert await queue.dead.replay([ids[3], ids[1], ids[3], "no-such-id"]) == 2
        assert [d.value for d in await self.take_all(queue, 2)] == [1, 3]
        assert [record.id for record in await queue.dead.list()] == [ids[0], ids[2]]

    async def test_replay_of_all_empties_the_dead_letters(self) -> None:
        queue = await self.queue()
        await self.bury(queue, *range(5))
        assert await queue.dead.replay() == 5
        assert await queue.dead.count() == 0
        assert sorted(d.value for d in await self.take_all(queue, 5)) == [0, 1, 2, 3, 4]

    async def test_second_replay_of_a_dead_letter_adds_nothing(self) -> None:
        queue = await self.queue()
        ids = await self.bury(queue, 1, 2)
        assert await queue.dead.replay(ids) == 2
        assert await queue.dead.replay(ids) == 0
        assert (await queue.stats()).pending == 2
        await queue.complete_many(await self.take_all(queue, 2))
        assert await queue.dead.replay(ids) == 0
        assert await queue.dequeue() is None

    async def test_replay_tells_the_new_ids(self) -> None:
        queue = await self.queue()
        ids = await self.bury(queue, 1, 2, 3)
        done = await queue.dead.replay(ids[:2])
        assert (done, done.count, done + 1, set(done.ids or ())) == (2, 2, 3, set(ids[:2]))
        again = await queue.dead.replay(ids)  # the first two have moved already, and are where they were said to be
        assert (again, again.ids) == (1, {**(done.ids or {}), ids[2]: (again.ids or {}).get(ids[2])})
        found = {delivery.headers["replayed_from"]: delivery.id for delivery in await self.take_all(queue, 3)}
        assert found == again.ids

    async def test_replayed_message_can_die_and_be_replayed_again(self) -> None:
        queue = await self.queue()
        await self.bury(queue, "cat")
        for _ in range(3):
            assert await queue.dead.replay() == 1
            await (await self.take(queue)).kill("again")
        assert await queue.dead.count() == 1

    async def test_dead_letters_are_deleted_by_id(self) -> None:
        queue = await self.queue()
        ids = await self.bury(queue, *range(3))
        assert await queue.dead.delete([ids[1], ids[1], "no-such-id"]) == 1
        assert [record.id for record in await queue.dead.list()] == [ids[0], ids[2]]
        assert await queue.status(ids[1]) is None

    async def test_dead_letters_are_purged(self) -> None:
        queue = await self.queue()
        await self.bury(queue, *range(3))
        await queue.enqueue("alive")
        assert await queue.dead.purge() == 3
        stats = await queue.stats()
        assert (stats.dead, stats.pending, await queue.dead.list()) == (0, 1, [])

    async def test_dead_letters_survive_cleanup_purge_and_retention(self) -> None:
        queue = await self.queue(archive_days=1e-9)
        await self.bury(queue, 1)
        await self.advance(SHORT_S)
        assert (await queue.cleanup(), await queue.purge()) == (0, 0)
        await self.broker.maintain()
        assert await queue.dead.count() == 1

    async def test_worker_on_dead_letters_completes_them(self) -> None:
        queue = await self.queue(retry=Fixed(0))
        [id] = await self.bury(queue, "mend me")
        seen: list[Any] = []

        def mend(value: Any) -> str:
            seen.append(value)
            return "mended"

        async with working(queue.dead.worker(mend)):
            await eventually(lambda: self.is_now(queue, id, "completed"), "the mended message")
        record = await queue.get(id)
        assert record is not None
        assert (seen, record.result) == (["mend me"], "mended")
        stats = await queue.stats()
        assert (stats.dead, stats.completed, stats.archived) == (0, 1, 1)

    async def test_failing_worker_on_dead_letters_leaves_them_dead(self) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=1)
        [id] = await self.bury(queue, 1)
        tries: list[int] = []

        def fail(value: int) -> None:
            tries.append(value)
            raise ValueError("still broken")

        async with working(queue.dead.worker(fail)):
            await eventually(lambda: len(tries) >= 3, "three tries, although one attempt was its limit")
        assert await queue.status(id) == "dead"
        stats = await queue.stats()
        assert (stats.dead, stats.completed, stats.total) == (1, 0, 1)

    async def test_failing_dead_letter_comes_back_after_the_backoff(self) -> None:
        queue = await self.queue(retry=Fixed(LONG_S))
        await self.bury(queue, 1)
        tries: list[int] = []

        def fail(value: int) -> None:
            tries.append(value)
            raise ValueError("still broken")

        async with working(queue.dead.worker(fail)):
            await eventually(lambda: tries, "a try")
            await self.advance(SHORT_S)
        assert tries == [1]

    async def test_without_dead_letters_a_message_ends_as_failed(self) -> None:
        queue = await self.queue(dead_letter=False, max_attempts=1)
        failing, killed = await queue.enqueue_many([1, 2])
        one, two = await self.take_all(queue, 2)
        await one.fail("broken")
        await two.kill("poison")
        for id, reason in ((failing, "broken"), (killed, "poison")):
            record = await queue.wait(id, PATIENCE_S)
            assert (record.status, record.error) == ("failed", reason)
        stats = await queue.stats()
        assert (stats.dead, stats.failed, stats.archived) == (0, 2, 2)
        assert sorted(record.id for record in await queue.archive.list()) == sorted([failing, killed])

    @pytest.mark.parametrize("exists", [True, False], ids=["existing", "new"])
    async def test_dead_letters_of_a_named_queue_move_there(self, exists: bool) -> None:
        if exists:
            await self.queue("graves", max_attempts=7)
        queue = await self.queue(dead_letter="graves", max_attempts=1)
        id = await queue.enqueue({"n": 1}, priority=3, headers={"k": "v"})
        await (await self.take(queue)).fail("broken")
        moved = await self.take(await self.queue("graves"))
        assert (moved.value, moved.priority, moved.attempt) == ({"n": 1}, 3, 1)
        assert moved.headers.items() >= {"k": "v"}.items()
        assert {"jobs", "broken"} <= set(moved.headers.values())
        assert await queue.status(id) not in ("pending", "processing", "retry")
        assert (await queue.stats()).dead == 0

    async def test_crashed_message_moves_to_the_named_queue_too(self) -> None:
        queue = await self.queue(dead_letter="graves", max_attempts=1)
        await queue.enqueue("killer")
        await self.take(queue, lease=SHORT_S)
        await self.advance(SHORT_S)
        assert await queue.dequeue() is None
        moved = await self.take(await self.queue("graves"))
        assert moved.value == "killer"
        assert {"jobs", "lease expired"} <= set(moved.headers.values())
