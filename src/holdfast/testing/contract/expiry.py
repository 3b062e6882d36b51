"""Expiry: after its time a message is not delivered, but ends as failed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ...deliveries import Record
from ...errors import ConfigError
from ...messages import Message
from ...queue import Queue
from ...retry import Fixed
from .base import LONG_S, PATIENCE_S, SHORT_S, StoreContract, eventually, refused, working


class Expiry(StoreContract):
    """`enqueue(…, expires=…)`: by the store's clock, counted from enqueueing."""

    soon = 3.0  # seconds in which what was enqueued can be claimed, also on a busy machine
    many = 700  # messages of one call: some stores write so many otherwise than a few

    async def expired(self, queue: Queue[Any], id: str) -> Record[Any]:
        """The record of a message that must have ended so."""
        record = await queue.get(id)
        assert record is not None
        assert (record.status, record.error) == ("failed", "expired")
        assert record.expires is not None
        assert record.finished_at is not None
        assert record.finished_at.timestamp() >= record.expires.timestamp() - 0.01
        assert (record.claimed_at, record.result) == (None, None)
        return record

    async def test_message_is_not_delivered_after_it(self) -> None:
        queue = await self.queue()
        gone = await queue.enqueue("gone", expires=self.soon, headers={"k": "v"}, priority=3)
        stays = await queue.enqueue("stays")
        assert await queue.status(gone) == "pending"
        await self.advance(self.soon + SHORT_S)  # while a store's clock is corrected, it may run slow
        assert (await self.take(queue)).id == stays
        record = await self.expired(queue, gone)
        assert (record.value, record.headers, record.priority, record.attempts) == ("gone", {"k": "v"}, 3, 0)
        assert [each.id for each in await queue.archive.list()] == [gone]
        assert (await queue.archive.list())[0].expires == record.expires
        stats = await queue.stats()
        assert (stats.failed, stats.archived, stats.dead, stats.pending, stats.total) == (1, 1, 0, 0, 2)
        assert await queue.dequeue() is None

    async def test_message_is_delivered_before_it(self) -> None:
        queue = await self.queue()
        id, plain = await queue.enqueue(1, expires=LONG_S), await queue.enqueue(2)
        records = [await queue.get(id), *await queue.peek(1), *await queue.list("ready", 1)]
        held, other = await self.take_all(queue, 2)
        assert (held.id, other.id, other.expires) == (id, plain, None)
        assert held.expires is not None
        for each in (record.expires for record in records if record is not None):
            assert each == held.expires
        assert len(records) == 3
        assert abs((held.expires - held.enqueued_at).total_seconds() - LONG_S) < 5
        await held.complete()
        for record in (await queue.get(id), (await queue.archive.list())[0]):
            assert record is not None
            assert record.expires == held.expires
        record = await queue.get(plain)
        assert record is not None
        assert record.expires is None

    async def test_it_may_be_an_instant(self) -> None:
        queue = await self.queue()
        now = await self.clock()
        soon, late, past = (datetime.fromtimestamp(now + each, UTC) for each in (3 * SHORT_S, LONG_S, -LONG_S))
        ids = [await queue.enqueue(n, expires=each) for n, each in enumerate((soon, late, past))]
        record = await queue.get(ids[1])
        assert record is not None
        assert record.expires is not None
        assert abs((record.expires - late).total_seconds()) < 0.01
        await self.advance(3 * SHORT_S)
        assert (await self.take(queue)).id == ids[1]
        assert await queue.dequeue() is None
        await self.expired(queue, ids[0])
        await self.expired(queue, ids[2])

    async def test_message_in_hand_is_not_taken_away(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1, expires=self.soon)
        held = await self.take(queue)
        await self.advance(self.soon)
        await self.broker.maintain()
        assert await queue.dequeue() is None
        assert await queue.status(id) == "processing"
        await held.complete("done")
        record = await queue.get(id)
        assert record is not None
        assert (record.status, record.result, record.expires) == ("completed", "done", held.expires)

    async def test_it_ends_once_it_is_given_back(self) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=5)
        failed, released, waits = await queue.enqueue_many(range(3), expires=self.soon)
        taken = await self.take_all(queue, 3)
        await self.advance(self.soon)
        await taken[0].fail("no")
        await taken[1].release()
        await taken[2].fail("no", retry_in=LONG_S)
        assert await queue.dequeue() is None
        await self.broker.maintain()
        for id, attempts in ((failed, 1), (released, 0), (waits, 1)):
            assert (await self.expired(queue, id)).attempts == attempts
        stats = await queue.stats()
        assert (stats.failed, stats.retry, stats.pending, stats.delayed) == (3, 0, 0, 0)

    async def test_it_ends_once_the_lease_is_over(self) -> None:
        queue = await self.queue(max_attempts=5)
        id = await queue.enqueue(1, expires=self.soon)
        held = await self.take(queue, lease=2 * self.soon)
        assert held.id == id
        await self.advance(2 * self.soon)
        await eventually(lambda: self.has_ended(queue, id))
        assert (await self.expired(queue, id)).attempts == 1

    async def has_ended(self, queue: Queue[Any], id: str) -> bool:
        assert await queue.dequeue() is None
        return await queue.status(id) == "failed"

    async def test_maintain_notices_it(self) -> None:
        queue = await self.queue(retry=Fixed(LONG_S))
        retried = await queue.enqueue("retried", expires=self.soon)
        await (await self.take(queue)).fail("not now")
        ids = await queue.enqueue_many(
            [
                Message("ready", expires=SHORT_S, priority=2),
                Message("delayed", expires=SHORT_S, delay=LONG_S),
                Message("stays", expires=LONG_S),
                Message("waits", expires=LONG_S, delay=LONG_S),
                "plain",
            ]
        )
        await self.advance(self.soon)
        await self.broker.maintain()
        for id in (retried, *ids[:2]):
            await self.expired(queue, id)
        assert [await queue.status(id) for id in ids[2:]] == ["pending", "delayed", "pending"]
        stats = await queue.stats()
        assert (stats.pending, stats.delayed, stats.retry, stats.failed, stats.total) == (2, 1, 0, 3, 6)
        assert [each.id for each in await self.take_all(queue, 2)] == [ids[2], ids[4]]

    async def test_maintain_notices_it_in_a_paused_queue(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1, expires=SHORT_S)
        await queue.pause()
        await self.advance(SHORT_S)
        await self.broker.maintain()
        assert (await queue.wait(id, PATIENCE_S)).error == "expired"
        await self.expired(queue, id)

    async def test_peek_does_not_show_it(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1, expires=SHORT_S)
        stays = await queue.enqueue(2)
        await self.advance(SHORT_S)
        assert [each.id for each in await queue.peek()] == [stays]

    async def test_it_is_kept_as_the_queue_keeps_failed_ones(self) -> None:
        for name, options in {"letters": {"dead_letter": True}, "none": {"dead_letter": False}}.items():
            queue = await self.queue(name, **options)
            id = await queue.enqueue(1, expires=SHORT_S)
            await self.advance(SHORT_S)
            assert await queue.dequeue() is None
            await self.expired(queue, id)
            assert await queue.dead.count() == 0
        queue = await self.queue("forgets", archive=False)
        id = await queue.enqueue(1, expires=SHORT_S)
        await self.advance(SHORT_S)
        assert await queue.dequeue() is None
        assert await queue.get(id) is None
        stats = await queue.stats()
        assert (stats.failed, stats.archived, stats.total) == (1, 0, 0)

    async def test_replay_drops_it(self) -> None:
        queue = await self.queue()
        expired, killed = await queue.enqueue_many(["expired", "killed"], expires=self.soon)
        taken = {each.id: each for each in await self.take_all(queue, 2)}
        await taken[killed].kill("why")
        await taken[expired].release()
        letter = (await queue.dead.list())[0]
        assert (letter.id, letter.expires) == (killed, taken[killed].expires)
        await self.advance(self.soon)
        assert await queue.dequeue() is None
        await self.expired(queue, expired)
        assert await queue.dead.count() == 1
        assert await queue.dead.replay() == 1
        assert await queue.archive.replay([expired]) == 1
        again = await self.take_all(queue, 2)
        assert {each.headers["replayed_from"] for each in again} == {expired, killed}
        assert [each.expires for each in again] == [None, None]

    async def test_of_many_each_has_its_own(self) -> None:
        queue = await self.queue()
        many = await queue.enqueue_many(range(self.many), expires=SHORT_S, priority=1)
        long = await queue.enqueue_many(range(self.many), expires=LONG_S)
        mixed = await queue.enqueue_many(
            [Message(n, expires=(None, SHORT_S, LONG_S)[n % 3], dedup_key=f"key {n}") for n in range(6)]
        )
        await self.advance(SHORT_S)
        await self.broker.maintain()
        stats = await queue.stats()
        assert (stats.failed, stats.pending) == (self.many + 2, self.many + 4)
        for id in (many[0], many[-1], mixed[1], mixed[4]):
            await self.expired(queue, id)
        taken = await self.take_all(queue, self.many + 4)
        assert [each.id for each in taken] == [*long, mixed[0], mixed[2], mixed[3], mixed[5]]
        assert [each.expires is None for each in taken[-4:]] == [True, False, True, False]

    async def test_many_single_ones_do_not_hide_the_next(self) -> None:
        queue = await self.queue()
        for n in range(40):
            await queue.enqueue(n, expires=SHORT_S)
        stays = await queue.enqueue("stays")
        await self.advance(SHORT_S)
        assert [each.id for each in await queue.peek(3)] == [stays]
        assert (await self.take(queue)).id == stays
        await self.broker.maintain()
        assert (await queue.stats()).failed == 40

    async def test_end_is_an_event(self) -> None:
        heard: list[Any] = []
        for name in ("message.failed", "message.dead", "message.recovered"):
            self.broker.on(name, heard.append)
        queue = await self.queue()
        id = await queue.enqueue(1, expires=SHORT_S)
        await self.advance(SHORT_S)
        assert await queue.dequeue() is None
        await eventually(lambda: bool(heard), "the event")
        assert [dict(event) for event in heard] == [{"queue": "jobs", "id": id, "attempts": 0, "error": "expired"}]
        assert heard[0].name == "message.failed"

    async def test_worker_does_not_run_it(self) -> None:
        queue = await self.queue()
        await queue.enqueue("gone", expires=SHORT_S)
        await self.advance(SHORT_S)
        stays = await queue.enqueue("stays", expires=LONG_S)
        ran: list[Any] = []
        async with working(queue.worker(ran.append)):
            await queue.wait(stays, PATIENCE_S)
        assert ran == ["stays"]

    async def test_it_is_there_after_closing(self) -> None:
        queue = await self.queue()
        ids = [await queue.enqueue(1, expires=SHORT_S), await queue.enqueue(2, expires=LONG_S)]
        await self.reopen()
        queue = await self.queue()
        await self.advance(SHORT_S)
        held = await self.take(queue)
        assert held.id == ids[1]
        assert held.expires is not None
        await self.expired(queue, ids[0])

    async def test_bad_expiry_is_refused_and_nothing_added(self) -> None:
        queue = await self.queue()
        bad: tuple[Any, ...] = (0, -1, float("nan"), float("inf"), "5", True, b"5", [5])
        for expires in (*bad, datetime(2030, 1, 1)):
            with refused(expires, ConfigError):
                await queue.enqueue(1, expires=expires)
            with refused(expires, ConfigError):
                await queue.enqueue_many([Message(1, expires=LONG_S), Message(2, expires=expires)])
        assert (await queue.stats()).total == 0

    async def test_message_that_expired_frees_its_key(self) -> None:
        queue = await self.queue()
        first = await queue.enqueue("old", dedup_key="k", dedup="alive", expires=self.soon)
        assert await queue.enqueue("new", dedup_key="k", dedup="alive") == first
        await self.advance(self.soon)
        assert await queue.dequeue() is None  # a claim notices at once
        second = await queue.enqueue("new", dedup_key="k", dedup="alive", report=True, expires=LONG_S)
        assert second.new
        await self.expired(queue, first)
        assert (await self.take(queue)).id == second.id
