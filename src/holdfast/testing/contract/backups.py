"""Backup and restore: everything that a store keeps comes back, under the same ids, in this store and in others.

And a scrub, which must know everything that a store keeps.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ... import admin
from ...backups import reading, targets, writing
from ...broker import connect
from ...errors import ConfigError, Damaged, QueueExists
from ...messages import Message
from ...queue import Queue
from ...retry import Fixed, NoRetry
from ...schedules import Plan, Schedule
from ...stores.base import PAGE_ROWS, Store
from ...stores.records import Stored, View
from ...stores.scheduling import Scheduled
from ...stores.worker_reports import ProcessReport, WorkerReport
from .base import LONG_S, SHORT_S, StoreContract, eventually, working

_VIEWS: tuple[View, ...] = ("ready", "delayed", "processing", "retry", "dead", "archive")
_SOON_S = 1.0  # instants that may differ: a bucket lets neighbours share a block
_LATE_S = 0.03 * LONG_S  # and the part of a delay
_WORKER = WorkerReport(id="worker", queues=["jobs"], slots=1, busy=0)


class Backups(StoreContract):
    """What was copied is what was there."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "backup"

    async def backed_up(self) -> writing.Backup:
        if self.store.backups is None:
            pytest.skip("this store does not serve backups")
        return await writing.backup(self.store, targets.opened(self.folder), source="")

    async def restored(self, store: Store, prefix: str = "") -> reading.Restored:
        source = targets.opened(self.folder)
        found = await reading.manifest(source, None)
        await reading.verified(source, found)
        return await reading.restore(store, source, found, reading.new_queues(found, prefix))

    async def all_states(self) -> Queue[Any]:
        """A queue with messages in every state, but for those in hand."""
        queue = await self.queue("jobs", retry=Fixed(LONG_S), max_attempts=3, lease=LONG_S, dedup_window=LONG_S)
        plain = await queue.enqueue_many([{"n": n} for n in range(40)])
        await queue.enqueue_many(
            [
                Message({"p": n}, priority=n % 3, headers={"n": str(n)}, max_attempts=7 if n % 2 else None)
                for n in range(12)
            ]
        )
        await queue.enqueue_many([b"later"] * 3, delay=LONG_S)
        await queue.enqueue("keyed", dedup_key="the key")
        taken = {delivery.id: delivery for delivery in await self.take_all(queue, 30)}
        deliveries = list(taken.values())
        for delivery in deliveries[:6]:
            await delivery.complete({"sent": delivery.id})
        for delivery in deliveries[6:10]:
            await delivery.fail("not now")
        for delivery in deliveries[10:14]:
            await delivery.kill("never")
        for delivery in deliveries[14:]:
            await delivery.release()
        assert await queue.cancel(plain[-1])
        return queue

    async def test_scrub_finds_nothing_wrong_with_whatever_a_sound_store_holds(self) -> None:
        queue = await self.all_states()
        await queue.enqueue_many(range(3), expires=LONG_S)
        await self.broker.schedules.put(Schedule(name="head", queue=queue.name, every=LONG_S))
        if self.store.values is not None:
            await self.store.values.put("some", b"thing")
        if self.store.worker_reports is not None:
            said = ProcessReport(
                id="a" * 32, host="here", pid=1, version="1", started_at=1.0, at=2.0, workers=[_WORKER]
            )
            await self.store.worker_reports.put(said)
        assert (await admin.scrub(self.broker)).wrong == []

    async def test_restored_queue_is_the_one_that_was_backed_up(self) -> None:
        queue = await self.all_states()
        other = await self.queue("other", dead_letter="jobs", max_attempts=9, archive=False)
        await other.enqueue(1)
        await other.pause()
        made = await self.backed_up()
        before = await self.store.stats("jobs")
        assert made.queues == 2
        assert made.messages == before.total + 1
        assert (await self.restored(self.store, "copy-")).queues == ["copy-jobs", "copy-other"]
        await must_be_alike(self.store, "jobs", self.store, "copy-jobs")
        await must_be_alike(self.store, "other", self.store, "copy-other")
        info = await self.store.queue("copy-other")
        assert info is not None
        assert info.paused
        assert info.options.dead_letter == "copy-jobs"
        after = await self.store.stats("copy-jobs")
        assert (after.completed, after.failed, after.total) == (before.completed, before.failed, before.total)
        assert (after.dead, after.archived, after.delayed) == (before.dead, before.archived, before.delayed)
        assert await queue.enqueue("keyed", dedup_key="the key") in await records(self.store, "jobs")

    async def test_restored_messages_expire(self) -> None:
        queue = await self.queue("jobs", retry=Fixed(LONG_S), max_attempts=3, lease=LONG_S)
        await queue.enqueue_many(range(4), expires=LONG_S)
        taken = await self.take_all(queue, 4)
        await taken[0].complete()
        await taken[1].kill("never")
        await taken[2].fail("not now")
        await taken[3].release()
        later = datetime.fromtimestamp(await self.clock() + LONG_S, UTC)
        ready = await queue.enqueue("ready", expires=later)
        await queue.enqueue("delayed", expires=LONG_S, delay=LONG_S)
        [soon] = await queue.enqueue_many([Message("soon", expires=20 * SHORT_S, priority=9)])
        await self.backed_up()
        await self.restored(self.store, "copy-")
        await must_be_alike(self.store, "jobs", self.store, "copy-jobs")
        found = await records(self.store, "copy-jobs")
        assert all(one.expires is not None for _, one in found.values()), found
        await self.advance(20 * SHORT_S)
        copy = await self.queue("copy-jobs")
        await self.broker.maintain()
        record = await copy.get(soon)
        assert record is not None
        assert (record.status, record.error) == ("failed", "expired")
        assert {each.id for each in await self.take_all(copy, 2)} == {taken[3].id, ready}

    async def test_restored_messages_are_claimed_in_the_same_order_and_can_end(self) -> None:
        queue = await self.all_states()
        await self.backed_up()
        await self.restored(self.store, "copy-")
        copy = await self.queue("copy-jobs")
        count = (await queue.stats()).pending
        one, two = await self.take_all(queue, count), await self.take_all(copy, count)
        assert [(each.priority, each.id, each.attempt) for each in one] == [
            (each.priority, each.id, each.attempt) for each in two
        ] or self.is_sharded(queue)
        assert all(await copy.complete_many(two))
        assert await copy.status(two[0].id) == "completed"
        delayed = (await self.store.scan("copy-jobs", "delayed"))[0].id
        assert await copy.cancel(delayed)
        assert await copy.status(delayed) == "failed"
        assert await copy.dead.replay() == 4
        assert {each.value["n"] for each in await self.take_all(copy, 4)} <= set(range(40))

    def is_sharded(self, queue: Queue[Any]) -> bool:
        return queue.options.shards > 1

    async def test_it_comes_back_from_another_kind_of_store(self) -> None:
        await self.all_states()
        await self.backed_up()
        async with connect("memory://") as memory:
            await self.restored(memory.store)
            await must_be_alike(self.store, "jobs", memory.store, "jobs")
            self.folder = self.folder.with_name("again")
            await writing.backup(memory.store, targets.opened(self.folder), source="")
        await self.restored(self.store, "back-")
        await must_be_alike(self.store, "jobs", self.store, "back-jobs")

    async def test_message_in_hand_comes_back_with_its_attempt_counted(self) -> None:
        queue = await self.queue("jobs", max_attempts=2)
        first, second = await queue.enqueue_many([1, 2])
        delivery = await self.take(queue)
        await delivery.fail("once", retry_in=0)
        await self.advance(SHORT_S)
        held = await self.take_all(queue, 2)
        assert {each.id: each.attempt for each in held} == {first: 2, second: 1}
        await self.backed_up()
        await self.restored(self.store, "copy-")
        copy = await self.queue("copy-jobs")
        record = await copy.get(second)
        assert record is not None
        assert (record.status, record.attempts) == ("pending", 1)
        spent = await copy.get(first)  # it had no attempt left: as any lease that ends by itself
        assert spent is not None
        assert (spent.status, spent.attempts, spent.error) == ("dead", 2, "lease expired")
        assert (await self.take(copy)).attempt == 2

    async def test_message_in_hand_that_must_not_run_again_does_not(self) -> None:
        queue = await self.queue("jobs", retry=NoRetry(), dead_letter=False)
        id = await queue.enqueue(1)
        await self.take(queue)
        await self.backed_up()
        await self.restored(self.store, "copy-")
        assert await (await self.queue("copy-jobs")).status(id) == "failed"

    async def test_dedup_key_is_remembered_for_what_was_left(self) -> None:
        queue = await self.queue("jobs", dedup_window=LONG_S)
        id = await queue.enqueue(1, dedup_key="k")
        await self.backed_up()
        await self.restored(self.store, "copy-")
        async with connect("memory://") as memory:  # which knows only the hash of a key
            await self.restored(memory.store)
            self.folder = self.folder.with_name("again")
            await writing.backup(memory.store, targets.opened(self.folder), source="")
        await self.restored(self.store, "back-")
        for name in ("copy-jobs", "back-jobs"):
            copy = await self.queue(name)
            assert await copy.enqueue(2, dedup_key="k") == id
            assert await copy.enqueue(3, dedup_key="other") != id
            assert (await copy.stats()).pending == 2

    async def with_schedule(self, name: str = "tick", **said: Any) -> Scheduled:
        """A schedule of `jobs` that was made a minute ago, and fired since if something was due."""
        said = {"every": 86400.0, "start": datetime.fromtimestamp(await self.clock() - 30.0, UTC), **said}
        await self.broker.schedules.put(Schedule(name=name, queue="jobs", value={"n": 1}, **said))
        return await self.as_if_made_before(name)

    async def as_if_made_before(self, name: str) -> Scheduled:
        assert self.store.schedules is not None
        before = await self.clock() - 60.0
        change = partial(_made_at, before)
        await self.store.schedules.change(name, "jobs", change)
        await self.broker.schedules.tick()
        return await self.kept(self.store, name)

    async def kept(self, store: Store, name: str) -> Scheduled:
        assert store.schedules is not None
        found = await store.schedules.find(name)
        assert found is not None, f"there is no schedule {name}"
        return found

    async def test_schedules_come_back_with_their_last_slot_and_pause(self) -> None:
        await self.queue("jobs", dedup_window=LONG_S, shards=3)
        await (await self.queue("jobs")).enqueue("keyed", dedup_key="the key")
        was = {"tick": await self.with_schedule()}
        assert was["tick"].mark.fired == 1
        await self.with_schedule("held", headers={"a": "b"}, priority=3, jitter=1.0, overlap="skip", missed="all")
        await self.broker.schedules.pause("held", until=datetime(2090, 1, 1, tzinfo=UTC))
        await self.with_schedule("far", every=None, cron="0 9 * * MON-FRI", tz="Europe/Berlin", start=None)
        await self.broker.schedules.pause("far")
        was |= {name: await self.kept(self.store, name) for name in ("held", "far")}
        await self.backed_up()
        await self.restored(self.store, "copy-")
        async with connect("memory://") as memory:
            await self.restored(memory.store)
            for name, each in was.items():
                assert await self.kept(memory.store, name) == each
            assert await memory.schedules.tick() == 0
            self.folder = self.folder.with_name("again")
            await writing.backup(memory.store, targets.opened(self.folder), source="")
        await self.restored(self.store, "back-")
        assert await self.broker.schedules.tick() == 0, "no slot that has its message fires again"
        for prefix in ("copy-", "back-"):
            for name, each in was.items():
                plan = msgspec.structs.replace(each.plan, name=prefix + name, queue=f"{prefix}jobs")
                assert await self.kept(self.store, prefix + name) == Scheduled(plan, each.mark)
            found = await records(self.store, f"{prefix}jobs")
            assert {each.mark.id for each in was.values() if each.mark.id} <= set(found)
            assert len(found) == 3
        await self.broker.schedules.resume("copy-held")
        assert not (await self.broker.schedules.get("copy-held")).paused
        assert (await self.broker.schedules.get("back-held")).paused
        await self.broker.delete_queue("copy-jobs", force=True)
        names = {each.schedule.name for each in await self.broker.schedules.list()}
        assert names == {*was, *(f"back-{name}" for name in was)}

    async def test_schedule_of_another_queue_is_not_replaced_by_a_restore(self) -> None:
        await self.queue("jobs")
        await self.with_schedule()
        await self.backed_up()
        await self.broker.delete_queue("jobs", force=True)
        await self.queue("other")
        await self.broker.schedules.put(Schedule(name="tick", queue="other", every=60))
        with pytest.raises(ConfigError, match="'tick' of queue 'other'"):
            await self.restored(self.store)
        assert await self.store.queue("jobs") is None
        assert [each.schedule.queue for each in await self.broker.schedules.list()] == ["other"]

    async def test_backup_while_a_schedule_fires_has_each_slot_once(self) -> None:
        """What the mark says was fired is there, and nothing that would fire again."""
        queue = await self.queue("jobs")
        await self.with_schedule(every=1.0)
        async with working(queue.worker(lambda value: None, concurrency=2)):
            await self.backed_up()
            later = (await self.kept(self.store, "tick")).mark.slot
            await eventually(partial(self._has_fired_since, later), "a slot", within=self.patience)
            await self.backed_up()
        async with connect("memory://") as memory:
            await self.restored(memory.store)
            each = await self.kept(memory.store, "tick")
            found = await records(memory.store, "jobs")
            slots = [stored.headers["scheduled_for"] for _, stored in found.values() if stored.headers]
            instants = sorted(datetime.fromisoformat(slot).timestamp() for slot in slots)
            assert instants[-1] == each.mark.slot > later
            assert [instants[0] + number for number in range(len(instants))] == pytest.approx(instants)
            assert each.mark.fired == len(instants)

    async def _has_fired_since(self, slot: float) -> bool:
        return (await self.kept(self.store, "tick")).mark.slot > slot

    async def test_restore_refuses_queues_that_are_there_and_a_repeat_adds_nothing(self) -> None:
        queue = await self.queue("jobs")
        await queue.enqueue_many(range(5))
        await self.backed_up()
        with pytest.raises(QueueExists, match="jobs"):
            await self.restored(self.store)
        assert (await queue.stats()).pending == 5
        await self.restored(self.store, "copy-")
        again = await self.restored(self.store, "copy-")
        assert again.already
        assert again.messages == 0
        assert (await self.store.stats("copy-jobs")).pending == 5

    async def test_restore_that_was_interrupted_is_repeated(self) -> None:
        await self.all_states()
        await self.backed_up()
        source = targets.opened(self.folder)
        found = await reading.manifest(source, None)
        queues = reading.new_queues(found, "copy-")

        async def interrupted() -> None:
            assert self.store.backups is not None
            async with self.store.backups.restoring(found.id, list(queues.values())) as restoring:
                for file in found.queues[0].sections["open"]:
                    await reading.add(restoring, source, found.queues[0], queues["jobs"], "open", file)
                raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await interrupted()
        assert await self.store.queue("copy-jobs") is None
        await self.restored(self.store, "copy-")
        await must_be_alike(self.store, "jobs", self.store, "copy-jobs")

    async def test_damaged_backup_is_refused_and_changes_nothing(self) -> None:
        await self.all_states()
        await self.backed_up()
        file = next((self.folder / "data").iterdir())
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(bytes(data))
        with pytest.raises(Damaged, match=file.name):
            await self.restored(self.store, "copy-")
        assert await self.store.queue("copy-jobs") is None

    async def test_second_backup_beside_the_first(self) -> None:
        queue = await self.all_states()
        await self.backed_up()
        more = await queue.enqueue("more")
        second = await self.backed_up()
        assert second.number == 2
        await self.restored(self.store, "copy-")
        assert await (await self.queue("copy-jobs")).status(more) == "pending"
        await must_be_alike(self.store, "jobs", self.store, "copy-jobs")

    async def test_backup_under_load_has_every_message_in_one_state(self) -> None:
        queue = await self.queue("jobs", retry=Fixed(0.01), max_attempts=2)
        acknowledged = [await queue.enqueue(n) for n in range(20)]
        done = asyncio.Event()

        async def produce() -> None:
            while not done.is_set():
                acknowledged.extend(await queue.enqueue_many(list(range(20))))

        async def handle(value: int) -> int:
            if value % 5 == 0:
                raise ValueError("no")
            return value

        async with working(queue.worker(handle, concurrency=4)):
            producing = asyncio.create_task(produce())
            try:
                await eventually(lambda: len(acknowledged) >= 200, "enough messages")
                known = set(acknowledged)
                await self.backed_up()
            finally:
                done.set()
                await producing
        await self.restored(self.store, "copy-")
        found = await records(self.store, "copy-jobs")  # raises where one is in two states
        assert known <= set(found) <= set(acknowledged)


def _made_at(instant: float, old: Plan | None) -> Plan | None:
    return None if old is None else msgspec.structs.replace(old, created_at=instant)


async def records(store: Store, queue: str) -> dict[str, tuple[View, Stored]]:
    """Everything of a queue by id, and in which view it is; each id is in one."""
    found: dict[str, tuple[View, Stored]] = {}
    for view in _VIEWS:
        after = None
        while page := await store.scan(queue, view, after=after, limit=PAGE_ROWS):
            after = page[-1].id
            for each in page:
                assert each.id not in found, f"{each.id} is {found[each.id][0]} and {view}"
                found[each.id] = (view, each)
    return found


async def must_be_alike(store: Store, queue: str, other: Store, copy: str) -> None:
    """That two queues hold the same messages in the same states."""
    was, now = await records(store, queue), await records(other, copy)
    assert set(was) == set(now)
    for id, (view, one) in was.items():
        other_view, two = now[id]
        assert ("ready" if view == "processing" else view) == other_view
        assert _said(one) == _said(two)
        for name in ("enqueued_at", "finished_at", "claimed_at", "expires"):
            assert _near(getattr(one, name), getattr(two, name), 0.002), (name, one, two)
        if view in ("delayed", "retry"):
            assert _near(one.visible_at, two.visible_at, _SOON_S + _LATE_S), (one, two)


def _said(one: Stored) -> tuple[Any, ...]:
    return (
        *(one.payload, one.content_type, one.headers or None, one.priority, one.attempts, one.max_attempts),
        *(one.result, one.error, one.worker if one.attempts else None),  # who gave it back untried may be forgotten
    )


def _near(one: float | None, two: float | None, within: float) -> bool:
    if one is None or two is None:
        return one is two
    return abs(one - two) <= within
