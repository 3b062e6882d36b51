"""Uniqueness: a dedup key that holds until its message ends, or while nobody holds the message; and replacing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from ...errors import ConfigError
from ...messages import Message
from ...retry import Fixed
from ...stores.records import Dedup, Enqueued
from .base import LONG_S, SHORT_S, StoreContract, eventually, refused

_WAYS: tuple[Dedup, ...] = ("alive", "waiting")


class Uniqueness(StoreContract):
    """`enqueue(..., dedup_key="k", dedup="alive")` and `dedup="waiting"`."""

    async def test_key_holds_while_its_message_waits(self) -> None:
        queue = await self.queue(dedup_window=0.0, retry=Fixed(LONG_S))
        for way in _WAYS:
            first = await queue.enqueue(way, dedup_key=way, dedup=way, report=True)
            assert first.new
            assert await queue.enqueue("other", dedup_key=way, dedup=way, report=True) == Enqueued(first.id, False)
            held = await self.take(queue)
            assert (held.id, held.value) == (first.id, way)
            await held.fail("again")
            assert await queue.status(first.id) == "retry"
            assert await queue.enqueue("other", dedup_key=way, dedup=way) == first.id
        late = await queue.enqueue("later", dedup_key="later", dedup="alive", delay=LONG_S)
        assert await queue.enqueue("other", dedup_key="later", dedup="waiting", report=True) == Enqueued(late, False)
        assert await queue.enqueue("other", dedup_key="others", dedup="alive") != late
        stats = await queue.stats()
        assert (stats.retry, stats.delayed, stats.pending, stats.total) == (2, 1, 1, 4)

    async def test_one_in_hand_holds_its_key_or_does_not_count(self) -> None:
        queue = await self.queue()
        first = await queue.enqueue("old", dedup_key="k", dedup="alive")
        held = await self.take(queue)
        assert await queue.enqueue("news", dedup_key="k", dedup="alive", report=True) == Enqueued(first, False)
        second = await queue.enqueue("news", dedup_key="k", dedup="waiting", report=True)
        assert second.new
        assert second.id != first
        assert await queue.enqueue("more", dedup_key="k", dedup="waiting", report=True) == Enqueued(second.id, False)
        await held.complete()
        assert await queue.enqueue("more", dedup_key="k", dedup="alive", report=True) == Enqueued(second.id, False)
        again = await self.take(queue)
        assert (again.id, again.value) == (second.id, "news")
        await again.complete()
        assert (await queue.stats()).total == 2

    async def test_key_is_free_once_its_message_has_ended(self) -> None:
        queue = await self.queue(dedup_window=3600.0)
        kept: set[str] = set()
        for end in ("complete", "forget", "kill", "cancel", "cancel running", "purge"):
            made = await queue.enqueue(end, dedup_key="k", dedup="alive", report=True)
            assert made.new, f"the key is held after the end before {end}"
            assert made.id not in kept
            kept.add(made.id)
            await self._end(queue, made.id, end)
        assert (await queue.enqueue("last", dedup_key="k", dedup="waiting", report=True)).new

    async def _end(self, queue: Any, id: str, how: str) -> None:
        if how == "cancel":
            assert await queue.cancel(id)
            return
        if how == "purge":
            assert await queue.purge() == 1
            return
        held = await self.take(queue)
        assert held.id == id
        if how == "cancel running":
            assert await queue.cancel(id, running=True)
        elif how == "kill":
            await held.kill("why")
        else:
            await held.complete(keep=how == "complete")

    async def test_expired_lease_without_attempts_frees_its_key(self) -> None:
        queue = await self.queue(max_attempts=1)
        await queue.enqueue(1, dedup_key="k", dedup="alive")
        await self.take(queue, lease=SHORT_S)
        await self.advance(SHORT_S)

        async def is_free() -> bool:
            return (await queue.enqueue(2, dedup_key="k", dedup="alive", report=True)).new

        await eventually(is_free, "the end of the lease")
        held = await self.take(queue)
        assert held.value == 2

    async def test_message_that_was_given_back_holds_its_key(self) -> None:
        queue = await self.queue()
        first = await queue.enqueue(1, dedup_key="k", dedup="waiting")
        await (await self.take(queue)).release()
        assert await queue.enqueue(2, dedup_key="k", dedup="waiting") == first

    async def test_key_outlives_window_and_upkeep(self) -> None:
        queue = await self.queue(dedup_window=0.01)
        first = await queue.enqueue(1, dedup_key="k", dedup="alive", delay=LONG_S)
        done = await queue.enqueue(2, dedup_key="done", dedup="alive")
        await (await self.take(queue)).complete()
        await self.advance(0.1)
        await self.broker.maintain()
        await self.broker.maintain()
        assert await queue.enqueue(3, dedup_key="k", dedup="alive", report=True) == Enqueued(first, False)
        again = await queue.enqueue(4, dedup_key="done", dedup="alive", report=True)
        assert again.new
        assert again.id != done

    async def test_one_of_several_at_once_is_added(self) -> None:
        queue = await self.queue()
        other = await (await self.another_broker()).queue("jobs") if self.several_brokers else queue
        for round in range(3):
            calls = [
                each.enqueue([round, n], dedup_key="k", dedup="alive", report=True)
                for n, each in enumerate([queue, other] * 4)
            ]
            made = await asyncio.gather(*calls)
            assert len({each.id for each in made}) == 1
            assert [each.new for each in made].count(True) == 1
            held = await self.take(queue)
            assert made[held.value[1]].new
            await held.complete()
            assert (await queue.stats()).total == round + 1

    async def test_nothing_is_lost_while_others_take(self) -> None:
        queue = await self.queue()
        other = await (await self.another_broker()).queue("jobs") if self.several_brokers else queue
        state, seen, running, most = 0, 0, 0, 0

        async def take() -> None:
            nonlocal seen, running, most
            while seen < 25:
                held = await other.dequeue(lease=LONG_S, wait=0.2)
                if held is not None:
                    running += 1
                    most = max(most, running)
                    seen = state  # a later change enqueues again
                    await held.complete()
                    running -= 1

        async def produce() -> None:
            nonlocal state
            for _ in range(25):
                state += 1
                await queue.enqueue("look", dedup_key="k", dedup="waiting")

        await asyncio.wait_for(asyncio.gather(produce(), take(), take()), 6 * self.patience)
        assert seen == 25
        assert (await queue.stats()).total <= 25

    async def test_keys_are_of_their_queue_and_there_after_reopening(self) -> None:
        queue = await self.queue()
        first = await queue.enqueue(1, dedup_key="k", dedup="alive", delay=LONG_S)
        assert await (await self.queue("other")).enqueue(1, dedup_key="k", dedup="alive") != first
        await self.reopen()
        queue = await self.queue()
        assert await queue.enqueue(2, dedup_key="k", dedup="alive", report=True) == Enqueued(first, False)

    async def test_terms_of_a_message_count(self) -> None:
        queue = await self.queue()
        first = await queue.enqueue(Message("a", dedup_key="k", priority=3), dedup="alive")
        assert await queue.enqueue(Message("b", dedup_key="k"), dedup="alive") == first
        held = await self.take(queue)
        assert (held.id, held.value, held.priority) == (first, "a", 3)

    async def test_bad_ways_are_refused_and_add_nothing(self) -> None:
        queue = await self.queue()
        bad: list[dict[str, Any]] = [
            {"dedup": "alive"},
            {"dedup": "waiting", "replace": True},
            {"dedup_key": "k", "dedup": "for ever"},
            {"dedup_key": "k", "dedup": None},
            {"dedup_key": "k", "replace": True},
            {"dedup_key": "k", "dedup": "alive", "replace": "yes"},
            {"dedup_key": "", "dedup": "alive"},
        ]
        for how in bad:
            with refused(how, ConfigError):
                await queue.enqueue("a", **how)
        assert (await queue.stats()).total == 0


class Replacing(StoreContract):
    """`enqueue(..., replace=True)`."""

    async def test_waiting_message_becomes_the_new_one(self) -> None:
        queue = await self.queue()
        for way in _WAYS:
            first = await queue.enqueue("a", dedup_key=way, dedup=way, delay=LONG_S, headers={"k": "v"})
            how: dict[str, Any] = {"dedup_key": way, "dedup": way, "replace": True}
            made = await queue.enqueue("b", priority=9, delay=2 * LONG_S, report=True, **how)
            assert made == Enqueued(first, False, True)
            record = await queue.get(first)
            assert record is not None
            assert (record.value, record.priority, record.status, record.headers) == ("b", 9, "delayed", {"k": "v"})
            assert record.visible_at is not None
            assert record.visible_at > datetime.now(UTC) + timedelta(seconds=1.5 * LONG_S)
            assert await queue.enqueue("c", priority=1, **how) == first
            held = await self.take(queue)
            assert (held.id, held.value, held.priority, held.attempt) == (first, "c", 1, 1)
            await held.complete()
        assert (await queue.stats()).total == 2

    async def test_new_message_is_not_replaced(self) -> None:
        queue = await self.queue()
        made = await queue.enqueue("a", dedup_key="k", dedup="alive", replace=True, report=True)
        assert (made.new, made.replaced) == (True, False)
        await (await self.take(queue)).complete()
        again = await queue.enqueue("b", dedup_key="k", dedup="alive", replace=True, report=True)
        assert (again.new, again.replaced) == (True, False)

    async def test_one_in_hand_is_not_replaced(self) -> None:
        queue = await self.queue()
        first = await queue.enqueue("a", dedup_key="k", dedup="alive")
        held = await self.take(queue)
        made = await queue.enqueue("b", dedup_key="k", dedup="alive", replace=True, report=True)
        assert made == Enqueued(first, False, False)
        record = await queue.get(first)
        assert record is not None
        assert record.value == "a"
        news = await queue.enqueue("b", dedup_key="k", dedup="waiting", replace=True, report=True)
        assert (news.new, news.replaced) == (True, False)
        await held.complete()
        assert (await self.take(queue)).value == "b"

    async def test_retry_is_replaced_and_its_attempts_count_on(self) -> None:
        queue = await self.queue(retry=Fixed(LONG_S), max_attempts=2)
        first = await queue.enqueue("a", dedup_key="k", dedup="alive")
        await (await self.take(queue)).fail("first")
        made = await queue.enqueue("b", dedup_key="k", dedup="alive", replace=True, report=True)
        assert made == Enqueued(first, False, True)
        held = await self.take(queue)
        assert (held.id, held.value, held.attempt) == (first, "b", 2)
        await held.fail("second")
        assert await queue.status(first) == "dead"

    async def test_last_of_several_replacements_stays(self) -> None:
        queue = await self.queue()
        other = await (await self.another_broker()).queue("jobs") if self.several_brokers else queue
        calls = [
            each.enqueue(n, dedup_key="k", dedup="alive", replace=True, report=True)
            for n, each in enumerate([queue, other] * 4)
        ]
        made = await asyncio.gather(*calls)
        assert len({each.id for each in made}) == 1
        assert sorted((each.new, each.replaced) for each in made) == [(False, True)] * 7 + [(True, False)]
        await queue.enqueue("last", dedup_key="k", dedup="alive", replace=True)
        assert (await self.take(queue)).value == "last"
        assert await queue.dequeue() is None
