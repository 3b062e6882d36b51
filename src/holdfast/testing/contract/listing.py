"""Listing: what waits and what is held can be seen without claiming it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ...deliveries import Record
from ...errors import ConfigError
from ...queue import Queue
from ...retry import Fixed
from .base import LONG_S, SHORT_S, StoreContract, refused

STATES: list[Any] = ["ready", "pending", "delayed", "processing", "retry"]


class Listing(StoreContract):
    """`queue.list` and `queue.peek`."""

    async def pages(self, queue: Queue[Any], state: Any, limit: int) -> list[Record[Any]]:
        """All of a state, page by page."""
        found: list[Record[Any]] = []
        while page := await queue.list(state, limit, after=found[-1].id if found else None):
            assert len(page) <= limit
            found += page
        return found

    async def test_every_state_is_listed_and_nothing_is_claimed(self) -> None:
        queue = await self.queue(retry=Fixed(LONG_S), max_attempts=5)
        ids = await queue.enqueue_many(range(5), headers={"k": "v"})
        delayed = await queue.enqueue(5, delay=LONG_S, priority=9)
        taken = await self.take_all(queue, 2)
        await taken[0].fail("why")
        expected = {
            "ready": ids[2:],
            "pending": ids[2:],
            "delayed": [delayed],
            "processing": ids[1:2],
            "retry": ids[:1],
        }
        for _ in range(2):  # looking changes nothing
            for state in STATES:
                assert [record.id for record in await queue.list(state)] == expected[state], state
        [retried] = await queue.list("retry")
        assert (retried.value, retried.status, retried.attempts, retried.error) == (0, "retry", 1, "why")
        assert retried.headers == {"k": "v"}
        assert retried.visible_at is not None
        [held] = await queue.list("processing")
        assert (held.status, held.attempts) == ("processing", 1)
        assert held.visible_at is not None
        assert abs(held.visible_at - taken[1].expires_at) < timedelta(seconds=5)
        [waiting] = await queue.list("delayed")
        assert (waiting.value, waiting.status, waiting.priority) == (5, "delayed", 9)
        await taken[1].complete()
        assert [each.value for each in await self.take_all(queue, 3)] == [2, 3, 4]

    async def test_ready_is_in_id_order_whatever_the_priority(self) -> None:
        queue = await self.queue()
        ids = [await queue.enqueue(n, priority=n % 3) for n in range(9)]
        for limit in (1, 2, 4, 9, 100):
            assert [record.id for record in await self.pages(queue, "ready", limit)] == sorted(ids)

    async def test_many_are_paged_through_once_each(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many(range(2500))
        ids += await queue.enqueue_many(range(300), priority=7)
        assert [record.id for record in await self.pages(queue, "ready", 400)] == sorted(ids)
        assert [record.id for record in await queue.list("ready", 3, after=ids[1999])] == ids[2000:2003]

    async def test_delayed_and_retry_are_listed_by_due_time(self) -> None:
        queue = await self.queue(max_attempts=5)
        later = [await queue.enqueue(n, delay=LONG_S * (5 - n)) for n in range(4)]
        await queue.enqueue_many(range(4))
        held = await self.take_all(queue, 4)
        for n, delivery in enumerate(held):
            await delivery.fail("why", retry_in=LONG_S * (5 - n))
        for state, ids in (("delayed", later), ("retry", [each.id for each in held])):
            for limit in (1, 3, 100):
                found = await self.pages(queue, state, limit)
                assert [record.id for record in found] == ids[::-1], (state, limit)
                instants = [record.visible_at for record in found]
                assert instants == sorted(instants, key=lambda at: at or found[0].enqueued_at)

    async def test_those_due_together_are_paged_through_once_each(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many(range(25), delay=LONG_S)
        ids += await queue.enqueue_many(range(25), delay=LONG_S)
        found = [record.id for record in await self.pages(queue, "delayed", 7)]
        assert sorted(found) == sorted(ids)

    async def test_page_after_one_that_is_no_longer_delayed_begins_again(self) -> None:
        queue = await self.queue()
        first, second = await queue.enqueue(1, delay=LONG_S), await queue.enqueue(2, delay=2 * LONG_S)
        assert await queue.cancel(first)
        assert [record.id for record in await queue.list("delayed", after=first)] == [second]

    async def test_due_messages_are_ready_and_expired_leases_too(self) -> None:
        queue = await self.queue(max_attempts=5)
        due = await queue.enqueue(1, delay=SHORT_S)
        held = await queue.enqueue(2)
        assert await queue.dequeue(lease=SHORT_S, wait=self.patience) is not None
        await self.advance(2 * SHORT_S)
        assert {record.id for record in await queue.list("ready")} == {due, held}
        assert (await queue.list("delayed"), await queue.list("processing")) == ([], [])
        assert {record.id for record in await queue.peek()} == {due, held}

    async def test_peek_shows_the_next_in_claim_order(self) -> None:
        queue = await self.queue(max_attempts=5)
        for n in range(12):
            await queue.enqueue(n, priority=n % 3)
        await queue.enqueue("later", delay=LONG_S, priority=255)
        back = await self.take(queue)
        await back.release()
        for limit in (1, 5, 100):
            seen = await queue.peek(limit)
            assert {record.status for record in seen} == {"pending"}
            assert [record.value for record in seen] == [2, 5, 8, 11, 1, 4, 7, 10, 0, 3, 6, 9][:limit]
        assert len(await queue.peek()) == 10
        seen = await queue.peek(12)
        assert [each.id for each in await self.take_all(queue, 12)] == [record.id for record in seen]
        assert await queue.peek() == []

    async def test_paused_queue_is_listed_and_peeked_into(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many(range(3))
        await queue.pause()
        assert [record.id for record in await queue.list("ready")] == ids
        assert [record.id for record in await queue.peek(2)] == ids[:2]

    async def test_empty_queue_has_empty_lists(self) -> None:
        queue = await self.queue()
        assert [await queue.list(state) for state in STATES] == [[]] * len(STATES)
        assert await queue.peek() == []

    async def test_bad_states_limits_and_ids_are_refused(self) -> None:
        queue = await self.queue()
        bad: list[Any] = ["dead", "", "redy", None, 5, "completed"]
        for state in bad:
            with refused(state, ConfigError):
                await queue.list(state)
        numbers: list[Any] = [0, -1, 1.5, "5", None]
        for limit in numbers:
            with refused(limit, ConfigError):
                await queue.list("ready", limit)
            with refused(limit, ConfigError):
                await queue.peek(limit)
        ids: list[Any] = ["", "x", 5]
        for after in ids:
            with refused(after, ConfigError):
                await queue.list("ready", after=after)
