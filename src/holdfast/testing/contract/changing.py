"""Changing: a waiting message is replaced in one step, under its id."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from ...errors import ConfigError, InvalidPriority, LeaseLost, MessageNotFound, MessageTooLarge
from ...retry import Fixed
from .base import LONG_S, SHORT_S, StoreContract, eventually, refused
from .basics import STRANGERS


class Changing(StoreContract):
    """`queue.change`."""

    async def test_priority_is_changed_and_the_id_stays(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many(range(4), headers={"k": "v"})
        assert await queue.change(ids[2], priority=9)
        record = await queue.get(ids[2])
        assert record is not None
        assert (record.id, record.priority, record.status, record.value) == (ids[2], 9, "pending", 2)
        assert record.headers == {"k": "v"}
        assert [each.id for each in await queue.peek()] == [ids[2], ids[0], ids[1], ids[3]]
        assert [each.id for each in await queue.list("ready")] == ids
        taken = await self.take_all(queue, 4)
        assert [each.id for each in taken] == [ids[2], ids[0], ids[1], ids[3]]
        assert (taken[0].priority, taken[0].attempt, taken[0].headers) == (9, 1, {"k": "v"})
        assert abs((taken[0].enqueued_at - taken[1].enqueued_at).total_seconds()) < 1
        assert await queue.complete_many(taken, [each.value for each in taken]) == [True] * 4
        assert [(each.id, each.result) for each in await queue.archive.list()] == [
            (id, value) for value, id in enumerate(ids)
        ]
        assert (await queue.stats()).total == 4

    async def test_changed_message_keeps_its_place_by_age(self) -> None:
        queue = await self.queue()
        low = await queue.enqueue("low")
        urgent = await queue.enqueue("urgent", priority=5)
        newer = await queue.enqueue("newer", priority=5)
        assert await queue.change(low, priority=5)
        assert await queue.change(newer, priority=0)
        assert [each.id for each in await self.take_all(queue, 3)] == [low, urgent, newer]

    async def test_value_is_changed(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue({"n": 1}, priority=3)
        for value in ({"n": 2}, None, b"bytes", "x" * 100_000):
            assert await queue.change(id, value=value)
            record = await queue.get(id)
            assert record is not None
            assert (record.value, record.priority) == (value, 3)
        held = await self.take(queue)
        assert (held.id, held.value) == (id, "x" * 100_000)
        await held.complete()
        assert (await queue.stats()).total == 1

    async def test_changed_message_still_expires(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many(range(3), expires=10 * SHORT_S)
        before = await queue.get(ids[0])
        assert before is not None
        assert await queue.change(ids[0], priority=5)
        assert await queue.change(ids[1], delay=LONG_S)
        assert await queue.change(ids[2], value="new")
        for id in ids:
            record = await queue.get(id)
            assert record is not None
            assert record.expires == before.expires
        await self.advance(10 * SHORT_S)
        assert await queue.dequeue() is None
        await self.broker.maintain()
        assert [(each.status, each.error) for each in await queue.archive.list()] == [("failed", "expired")] * 3

    async def test_delay_is_changed_both_ways(self) -> None:
        queue = await self.queue()
        soon, late = await queue.enqueue(1, delay=LONG_S), await queue.enqueue(2)
        assert await queue.change(soon, delay=0)
        assert await queue.change(late, delay=LONG_S)
        assert [await queue.status(id) for id in (soon, late)] == ["pending", "delayed"]
        stats = await queue.stats()
        assert (stats.pending, stats.delayed, stats.total) == (1, 1, 2)
        assert (await self.take(queue)).id == soon
        assert await queue.dequeue() is None
        assert await queue.change(late, at=datetime.now(UTC))
        assert (await self.take(queue)).id == late

    async def test_changed_due_time_is_kept_to(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1, delay=LONG_S)
        assert await queue.change(id, delay=2 * SHORT_S)
        assert await queue.dequeue() is None
        await self.advance(2 * SHORT_S)
        assert (await self.take(queue)).id == id

    async def test_what_is_not_said_stays(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue("a", delay=LONG_S, priority=7, headers={"k": "v"}, max_attempts=9)
        before = await queue.get(id)
        assert await queue.change(id, value="b")
        after = await queue.get(id)
        assert before is not None
        assert after is not None
        assert (after.value, after.status, after.priority, after.headers) == ("b", "delayed", 7, {"k": "v"})
        assert after.max_attempts == 9
        assert before.visible_at is not None
        assert after.visible_at is not None
        assert abs((after.visible_at - before.visible_at).total_seconds()) < 5
        assert abs((after.enqueued_at - before.enqueued_at).total_seconds()) < 0.01

    async def test_retry_is_changed_and_its_attempts_count_on(self) -> None:
        queue = await self.queue(retry=Fixed(LONG_S), max_attempts=2)
        id = await queue.enqueue("a")
        await (await self.take(queue)).fail("first")
        assert await queue.change(id, priority=200, delay=0, value="b")
        record = await queue.get(id)
        assert record is not None
        assert (record.status, record.attempts, record.error, record.priority) == ("pending", 1, "first", 200)
        held = await self.take(queue)
        assert (held.attempt, held.value, held.priority) == (2, "b", 200)
        await held.fail("second")
        [letter] = await queue.dead.list()
        assert (letter.id, letter.value, letter.priority, letter.attempts) == (id, "b", 200, 2)
        assert await queue.dead.replay([id]) == 1
        again = await self.take(queue)
        assert (again.value, again.priority, again.headers["replayed_from"]) == ("b", 200, id)

    async def test_holder_whose_lease_was_over_is_refused_after_a_change(self) -> None:
        queue = await self.queue(max_attempts=5)
        id = await queue.enqueue(1)
        late = await self.take(queue, lease=SHORT_S)
        await self.advance(SHORT_S)
        await eventually(lambda: queue.change(id, priority=3), "the end of the lease")
        answers = [late.release(), late.fail("late"), late.kill("late"), late.complete()]
        for answer in answers:
            with pytest.raises(LeaseLost):
                await answer
        again = await self.take(queue)
        assert (again.id, again.attempt, again.priority) == (id, 2, 3)
        await again.complete()

    async def test_held_and_ended_messages_are_left_alone(self) -> None:
        queue = await self.queue()
        done, dead, held, cancelled = await queue.enqueue_many(range(4))
        taken = await self.take_all(queue, 3)
        await taken[0].complete()
        await taken[1].kill("why")
        await queue.cancel(cancelled)
        for id in (done, dead, held, cancelled):
            assert await queue.change(id, priority=9, value="other") is False
        assert [await queue.status(id) for id in (done, dead, held, cancelled)] == [
            *("completed", "dead", "processing", "failed")
        ]
        await taken[2].complete()
        assert [record.value for record in await queue.archive.list()] == [0, 2, 3]

    async def test_changed_message_is_found_cancelled_taken_back_and_purged_by_its_id(self) -> None:
        queue = await self.queue(max_attempts=9)
        ids = await queue.enqueue_many(range(4))
        for id in ids:
            assert await queue.change(id, priority=7)
        assert await queue.cancel(ids[0])
        assert await queue.status(ids[0]) == "failed"
        held = await self.take(queue)
        assert held.id == ids[1]
        await held.extend(2 * LONG_S)
        assert await queue.take_back(ids[1]) == 1
        with pytest.raises(LeaseLost):
            await held.complete()
        again = await self.take(queue)
        assert (again.id, again.attempt) == (ids[1], 2)
        assert await queue.cancel(ids[1], running=True)
        third = await self.take(queue)
        await queue.complete(third.receipt)
        with pytest.raises(LeaseLost):
            await queue.fail(held.receipt, "late")
        assert await queue.purge() == 1
        assert [await queue.status(id) for id in ids] == ["failed", "failed", "completed", None]

    async def test_changes_follow_each_other(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(0)
        for n in range(1, 12):
            assert await queue.change(id, value=n, priority=n * 20, delay=LONG_S * (n % 2))
        record = await queue.get(id)
        assert record is not None
        assert (record.value, record.priority, record.status) == (11, 220, "delayed")
        assert (await queue.stats()).total == 1
        assert await queue.change(id, delay=0)
        assert (await self.take(queue)).value == 11
        assert await queue.dequeue() is None

    async def test_many_changed_messages_come_once_each_in_order(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many(range(700))
        changed = ids[::2]
        for start in range(0, len(changed), 50):
            await asyncio.gather(*(queue.change(id, priority=1) for id in changed[start : start + 50]))
        assert (await queue.stats()).pending == 700
        taken = [each.id for each in await self.take_all(queue, 700)]
        assert sorted(taken) == ids
        assert taken[:350] == changed
        assert await queue.dequeue() is None

    async def test_claims_and_changes_at_once_lose_and_double_nothing(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many(range(60))
        other = await (await self.another_broker()).queue("jobs") if self.several_brokers else queue
        values: dict[str, Any] = {}

        async def take() -> None:
            while len(values) < len(ids):
                for each in await other.dequeue_many(7, lease=LONG_S, wait=0.2):
                    assert each.id not in values
                    values[each.id] = each.value
                    await each.complete()

        async def change() -> list[bool]:
            return [await queue.change(id, value=-n, priority=n % 3) for n, id in enumerate(ids)]

        answers, _ = await asyncio.wait_for(asyncio.gather(change(), take()), 6 * self.patience)
        assert sorted(values) == sorted(ids)
        assert [values[id] for id in ids] == [-n if done else n for n, done in enumerate(answers)]
        assert (await queue.stats()).completed == len(ids)

    async def test_changed_messages_are_there_after_reopening(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many(range(3))
        await queue.change(ids[1], priority=9, value="other")
        await queue.change(ids[2], delay=LONG_S)
        await self.reopen()
        queue = await self.queue()
        assert [await queue.status(id) for id in ids] == ["pending", "pending", "delayed"]
        assert [(each.id, each.value) for each in await self.take_all(queue, 2)] == [(ids[1], "other"), (ids[0], 0)]

    async def test_bad_changes_are_refused_and_change_nothing(self) -> None:
        queue = await self.queue(max_message_size=1000)
        id = await queue.enqueue("a")
        bad: list[tuple[dict[str, Any], type[Exception]]] = [
            ({}, ConfigError),
            ({"priority": 256}, InvalidPriority),
            ({"priority": "5"}, InvalidPriority),
            ({"delay": -1}, ConfigError),
            ({"delay": float("nan")}, ConfigError),
            ({"at": "tomorrow"}, ConfigError),
            ({"at": datetime(2030, 1, 1)}, ConfigError),
            ({"delay": 5, "at": datetime.now(UTC)}, ConfigError),
            ({"value": "x" * 2000}, MessageTooLarge),
        ]
        for how, error in bad:
            with refused(how, error):
                await queue.change(id, **how)
        for stranger in STRANGERS[:3]:
            with refused(stranger, MessageNotFound):
                await queue.change(stranger, priority=1)
        record = await queue.get(id)
        assert record is not None
        assert (record.value, record.priority, record.status) == ("a", 0, "pending")
