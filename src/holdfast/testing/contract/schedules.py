"""Schedules: every slot once, missed ones by their policy, and nothing changed by what is refused."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from ... import schedules as core
from ...errors import ConfigError, InvalidPriority, MessageTooLarge, QueueNotFound, ScheduleNotFound
from ...queue import Queue
from ...schedules import Mark, Plan, Schedule
from ...stores.scheduling import Fire, Scheduled
from ...stores.scheduling import Schedules as Stored
from .base import LONG_S, StoreContract, eventually, working

_HOUR_S = 3600.0  # of `catch_up`


class Schedules(StoreContract):
    """What `broker.schedules` promises."""

    async def scheduled(self, **said: Any) -> Queue[Any]:
        """A queue, and a schedule of it."""
        queue = await self.queue()
        await self.broker.schedules.put(_schedule(**said))
        return queue

    @property
    def book(self) -> Stored:
        assert self.store.schedules is not None
        return self.store.schedules

    async def stored_schedules(self) -> list[Scheduled]:
        """All that a store keeps of schedules. What `list` says besides, the next slots, moves on with the clock."""
        return await self.book.all()

    async def as_if_made(self, seconds_ago: float, name: str = "tick") -> None:
        """Nobody has fired it since."""
        now = await self.clock()

        def change(old: Plan | None) -> Plan | None:
            return None if old is None else msgspec.structs.replace(old, created_at=now - seconds_ago)

        await self.book.change(name, "jobs", change)

    async def waiting(self, queue: Queue[Any]) -> list[str]:
        """For which slots messages wait, in order; they are taken."""
        found = await queue.dequeue_many(1000, lease=LONG_S)
        return sorted(each.headers["scheduled_for"] for each in found)

    # ------------------------------------------------------------------ keeping

    async def test_a_schedule_is_kept_as_it_was_said(self) -> None:
        start = datetime(2030, 1, 1, tzinfo=UTC)
        said = Schedule(
            name="daily-report", queue="jobs", cron="0 9 * * MON-FRI", tz="Europe/Berlin", value={"kind": "daily"},
            missed="all", catch_up=7200.0, overlap="skip", jitter=30.0, start=start, end=start + timedelta(days=900),
            priority=7, headers={"a": "b"}, max_attempts=5,
        )  # fmt: skip
        await self.queue()
        await self.broker.schedules.put(said)
        found = await self.broker.schedules.get("daily-report")
        assert found.schedule == said
        assert found.next_slot == datetime(2030, 1, 1, 8, tzinfo=UTC)
        assert (found.last_slot, found.fired, found.missed, found.paused, found.orphaned) == (None, 0, 0, False, False)

    async def test_schedules_are_listed_by_name_and_deleted(self) -> None:
        await self.queue("other")
        for name, queue in (("b", "jobs"), ("a", "other"), ("c.d", "jobs")):
            await self.queue(queue)
            await self.broker.schedules.put(_schedule(name=name, queue=queue))
        assert [each.schedule.name for each in await self.broker.schedules.list()] == ["a", "b", "c.d"]
        await self.broker.schedules.delete("b")
        assert [each.schedule.name for each in await self.broker.schedules.list()] == ["a", "c.d"]
        with pytest.raises(ScheduleNotFound, match="'b'"):
            await self.broker.schedules.delete("b")

    async def test_another_client_sees_the_same_schedules(self) -> None:
        await self.scheduled()
        other = await self.another_broker()
        assert await other.schedules.get("tick") == await self.broker.schedules.get("tick")
        await other.schedules.pause("tick")
        assert (await self.broker.schedules.get("tick")).paused

    async def test_a_deleted_queue_takes_its_schedules_along(self) -> None:
        await self.scheduled()
        await self.broker.delete_queue("jobs", force=True)
        assert await self.broker.schedules.list() == []
        await self.queue()
        assert await self.broker.schedules.list() == []
        await self.broker.schedules.put(_schedule())
        assert [each.schedule.name for each in await self.broker.schedules.list()] == ["tick"]

    async def test_options_of_the_queue_and_schedules_do_not_disturb_each_other(self) -> None:
        await self.scheduled()
        await self.broker.configure_queue("jobs", lease=17.0)
        queue = await self.queue()
        await queue.pause()
        await queue.resume()
        assert (await self.broker.schedules.get("tick")).schedule == _schedule()
        await self.broker.schedules.put(_schedule(every=60.0))
        assert [info.options.lease for info in await self.broker.queues()] == [17.0]

    async def test_schedules_outlive_their_broker(self) -> None:
        queue = await self.scheduled(every=10.0)
        await self.as_if_made(30.0)
        assert await self.broker.schedules.tick() > 0
        before = await self.broker.schedules.get("tick")
        await self.reopen()
        after = await self.broker.schedules.get("tick")
        assert (after.last_slot, after.last_id, after.fired) == (before.last_slot, before.last_id, before.fired)
        assert queue.name == after.schedule.queue

    # ------------------------------------------------------------------ firing

    async def test_a_slot_becomes_one_message(self) -> None:
        queue = await self.scheduled(every=10.0, value={"n": 1}, headers={"own": "yes"}, priority=9)
        await self.as_if_made(35.0)
        assert await self.broker.schedules.tick() in (3, 4)
        assert await self.broker.schedules.tick() <= 1
        info = await self.broker.schedules.get("tick")
        taken = await queue.dequeue_many(100, lease=LONG_S)
        assert {each.value["n"] for each in taken} == {1}
        assert {each.priority for each in taken} == {9}
        assert {each.headers["own"] for each in taken} == {"yes"}
        assert {each.headers["schedule"] for each in taken} == {"tick"}
        slots = [datetime.fromisoformat(each.headers["scheduled_for"]) for each in taken]
        assert slots == sorted(slots)
        assert len(set(slots)) == len(slots)
        assert all(slot.timestamp() % 10 == 0 for slot in slots)
        assert info.last_slot == slots[-1]
        assert info.last_id == taken[-1].id
        assert info.fired == len(taken)
        assert [await queue.status(each.id) for each in taken] == ["processing"] * len(taken)
        assert all(await queue.complete_many(taken))

    async def test_many_clients_fire_each_slot_once(self) -> None:
        queue = await self.scheduled(every=1.0, missed="all")
        await self.broker.schedules.put(_schedule(name="other", every=2.0))
        await self.as_if_made(40.0)
        await self.as_if_made(40.0, "other")
        brokers = [self.broker]
        if self.several_brokers:
            brokers += [await self.another_broker() for _ in range(3)]
        await asyncio.gather(*(broker.schedules.tick() for broker in brokers for _ in range(2)))
        taken = await queue.dequeue_many(1000, lease=LONG_S)
        slots = [(each.headers["schedule"], each.headers["scheduled_for"]) for each in taken]
        assert len(set(slots)) == len(slots) == sum(each.fired for each in await self.broker.schedules.list())
        for name, every in (("tick", 1), ("other", 2)):
            own = sorted(datetime.fromisoformat(slot).timestamp() for each, slot in slots if each == name)
            assert own == [own[0] + every * number for number in range(len(own))]
            assert len(own) >= 38 // every

    async def test_every_schedule_of_a_queue_with_shards_is_delivered(self) -> None:
        """Wherever its mark is, its messages are where the queue has them."""
        queue = await self.queue(shards=4)
        names = [f"tick{number}" for number in range(12)]
        for name in names:
            await self.broker.schedules.put(_schedule(name=name, every=10.0))
            await self.as_if_made(15.0, name)
        assert await self.broker.schedules.tick() >= len(names)
        taken = await self.take_all(queue, (await self.fired()))
        assert {each.headers["schedule"] for each in taken} == set(names)

    async def fired(self) -> int:
        return sum(each.fired for each in await self.broker.schedules.list())

    async def test_a_mark_that_has_moved_refuses_a_late_writer(self) -> None:
        """What is decided on an old look changes nothing: neither messages nor the mark."""
        queue = await self.scheduled(every=10.0)
        await self.as_if_made(25.0)
        old = await self.book.find("tick")
        assert old is not None
        await self.broker.schedules.tick()
        before = await self.stored_schedules()
        assert await self.book.fire("jobs", [_late(old, await self.clock())]) == [False]
        assert await self.stored_schedules() == before
        assert len(await self.waiting(queue)) == before[0].mark.fired

    async def test_of_several_fires_each_counts_by_itself(self) -> None:
        queue = await self.scheduled(every=10.0)
        await self.broker.schedules.put(_schedule(name="other", every=10.0))
        for name in ("tick", "other"):
            await self.as_if_made(25.0, name)
        seen = {each.plan.name: each for each in await self.book.of("jobs")}
        now = await self.clock()
        gone = Fire("nobody", Mark(), Mark(1.0), [])
        stale = _late(Scheduled(seen["other"].plan, Mark(1.0)), now)
        assert await self.book.fire("jobs", [stale, _late(seen["tick"], now), gone]) == [False, True, False]
        assert {each["schedule"] for each in [d.headers for d in await queue.dequeue_many(100)]} == {"tick"}

    async def test_a_schedule_that_is_gone_fires_nothing(self) -> None:
        queue = await self.scheduled(every=10.0)
        await self.as_if_made(25.0)
        old = await self.book.find("tick")
        assert old is not None
        await self.broker.schedules.delete("tick")
        assert await self.book.fire("jobs", [_late(old, await self.clock())]) == [False]
        assert await self.waiting(queue) == []

    async def test_a_change_keeps_the_last_slot(self) -> None:
        queue = await self.scheduled(every=1.0, missed="all")
        await self.as_if_made(20.0)
        await self.broker.schedules.tick()
        last = (await self.broker.schedules.get("tick")).last_slot
        await self.broker.schedules.put(_schedule(every=2.0, value="new"))
        assert (await self.broker.schedules.get("tick")).last_slot == last
        await self.broker.schedules.tick()
        slots = await self.waiting(queue)
        assert len(set(slots)) == len(slots)

    # ------------------------------------------------------------------ what is missed

    @pytest.mark.parametrize(("missed", "fired"), [("latest", (1, 2)), ("all", (9, 10, 11)), ("none", (0, 1))])
    async def test_a_downtime_of_three_hours(self, missed: str, fired: tuple[int, ...]) -> None:
        """Every six minutes: 30 slots, ten of them within the hour of `catch_up`, the newest perhaps still young."""
        heard: list[Any] = []
        self.broker.on("schedule.missed", heard.append)
        queue = await self.scheduled(every=360.0, missed=missed)
        await self.as_if_made(3 * _HOUR_S)
        before = await self.clock()
        added = await self.broker.schedules.tick()
        assert added in fired
        assert await self.broker.schedules.tick() == 0
        info = await self.broker.schedules.get("tick")
        assert info.fired == added
        assert info.fired + info.missed in (30, 31)
        stats = await queue.stats()
        assert (stats.slots_fired, stats.slots_missed) == (info.fired, info.missed)
        [event] = heard
        assert (event.schedule, event.queue, event.count, event.reason) == ("tick", "jobs", info.missed, "late")
        assert before - 3 * _HOUR_S < event.slot.timestamp() < before
        assert len(await self.waiting(queue)) == added

    async def test_at_most_a_hundred_missed_slots_fire(self) -> None:
        await self.scheduled(every=20.0, missed="all", catch_up=3 * _HOUR_S)
        await self.as_if_made(2.5 * _HOUR_S)
        assert 100 <= await self.broker.schedules.tick() <= 104

    async def test_what_is_before_its_making_or_outside_its_span_is_no_slot(self) -> None:
        now = datetime.fromtimestamp(await self.clock(), UTC)
        await self.scheduled(every=10.0, start=now + timedelta(hours=1))
        assert await self.broker.schedules.tick() == 0
        await self.broker.schedules.put(_schedule(name="over", every=10.0, end=now - timedelta(hours=1)))
        await self.as_if_made(1800.0, "over")
        assert await self.broker.schedules.tick() == 0
        assert (await self.broker.schedules.get("over")).next_slot is None
        await self.broker.schedules.put(_schedule(name="new", every=1800.0))
        assert await self.broker.schedules.tick() <= 1

    async def test_overlap_skips_while_the_last_message_lives(self) -> None:
        heard: list[Any] = []
        self.broker.on("schedule.missed", heard.append)
        queue = await self.scheduled(every=10.0, overlap="skip")
        await self.as_if_made(45.0)
        assert await self.broker.schedules.tick() == 1
        [held] = await queue.dequeue_many(10, lease=LONG_S)
        await self._back(10.0)
        assert await self.broker.schedules.tick() == 0
        assert (await self.broker.schedules.get("tick")).last_id == held.id
        await held.complete()
        await self._back(10.0)
        assert await self.broker.schedules.tick() == 1
        assert [each.reason for each in heard][1:2] == ["overlap"]

    async def _back(self, seconds: float) -> None:
        """As if the last slot had been decided on earlier."""
        found = await self.book.find("tick")
        assert found is not None
        earlier = msgspec.structs.replace(found.mark, slot=found.mark.slot - seconds)
        assert await self.book.fire("jobs", [Fire("tick", found.mark, earlier, [])]) == [True]

    async def test_a_pause_with_an_end(self) -> None:
        queue = await self.scheduled(every=10.0)
        now = datetime.fromtimestamp(await self.clock(), UTC)
        await self.broker.schedules.pause("tick", until=now + timedelta(hours=1))
        await self.as_if_made(35.0)
        assert await self.broker.schedules.tick() == 0
        info = await self.broker.schedules.get("tick")
        assert info.paused
        assert info.paused_until == now + timedelta(hours=1)
        assert info.last_slot is None
        await self.broker.schedules.pause("tick", until=now - timedelta(seconds=1))
        assert not (await self.broker.schedules.get("tick")).paused
        assert await self.broker.schedules.tick() >= 3
        assert len(await self.waiting(queue)) >= 3

    async def test_resume_lets_missed_decide(self) -> None:
        await self.scheduled(every=600.0)
        await self.broker.schedules.pause("tick")
        await self.as_if_made(_HOUR_S)
        assert await self.broker.schedules.tick() == 0
        await self.broker.schedules.resume("tick")
        assert await self.broker.schedules.tick() in (1, 2)

    async def test_jitter_delays_a_message_by_the_same_for_everybody(self) -> None:
        queue = await self.scheduled(every=10.0, jitter=5000.0)
        await self.as_if_made(15.0)
        added = await self.broker.schedules.tick()
        assert added >= 1
        assert (await queue.stats()).delayed == added
        info = await self.broker.schedules.get("tick")
        assert info.last_slot is not None
        assert info.last_id is not None
        plan = (await self.book.of("jobs"))[0].plan
        due = core.visible_at(plan, info.last_slot.timestamp())
        assert info.last_slot.timestamp() <= due <= info.last_slot.timestamp() + 5000.0
        [stored] = await self.store.get("jobs", [info.last_id])
        assert stored is not None
        assert stored.visible_at is not None
        assert abs(stored.visible_at - due) < 0.1

    # ------------------------------------------------------------------ by hand

    async def test_trigger_is_no_slot(self) -> None:
        queue = await self.scheduled(every=3600.0, value="now")
        before = await self.stored_schedules()
        id = await self.broker.schedules.trigger("tick")
        delivery = await self.take(queue)
        assert (delivery.id, delivery.value, delivery.headers["schedule"]) == (id, "now", "tick")
        assert await self.stored_schedules() == before

    async def test_backfill_twice_adds_nothing(self) -> None:
        queue = await self.scheduled(every=60.0)
        now = datetime.fromtimestamp(await self.clock(), UTC)
        since, until = now - timedelta(hours=2), now - timedelta(hours=1)
        ids = await self.broker.schedules.backfill("tick", since, until)
        assert len(ids) in (60, 61)
        assert len(set(ids)) == len(ids)
        assert await self.broker.schedules.backfill("tick", since, until) == ids
        more = await self.broker.schedules.backfill("tick", since - timedelta(minutes=10), until)
        assert more[-len(ids) :] == ids
        assert len(more) in (len(ids) + 10, len(ids) + 11)
        taken = await self.take_all(queue, len(more))
        assert sorted(each.id for each in taken) == sorted(more)
        assert all(await queue.complete_many(taken, keep=False))
        assert await self.broker.schedules.backfill("tick", since, until) == ids
        assert await self.waiting(queue) == []

    async def test_backfill_leaves_out_what_has_fired(self) -> None:
        queue = await self.scheduled(every=10.0)
        await self.as_if_made(35.0)
        fired = await self.broker.schedules.tick()
        now = datetime.fromtimestamp(await self.clock(), UTC)
        ids = await self.broker.schedules.backfill("tick", now - timedelta(seconds=30), now)
        assert len(await self.waiting(queue)) == fired
        assert len(ids) >= 2

    # ------------------------------------------------------------------ what is refused

    @pytest.mark.parametrize(
        ("said", "words"),
        [
            ({"cron": "61 * * * *"}, "cron"),
            ({"cron": "* * *"}, "cron"),
            ({"cron": "@reboot"}, "@reboot"),
            ({"cron": "0 0 31 2 *"}, "cron"),
            ({"cron": "* * * * *", "tz": "Europe/Atlantis"}, "Europe/Atlantis"),
            ({"cron": "* * * * *", "every": 5.0}, "one of them"),
            ({}, "one of them"),
            ({"every": 0.0}, "every"),
            ({"every": 5.0, "missed": "some"}, "missed"),
            ({"every": 5.0, "overlap": "perhaps"}, "overlap"),
            ({"every": 5.0, "jitter": -1.0}, "jitter"),
            ({"every": 5.0, "start": datetime(2026, 1, 1)}, "time zone"),
            ({"every": 5.0, "name": "a/b"}, "name"),
        ],
    )
    async def test_what_makes_no_schedule_is_refused(self, said: dict[str, Any], words: str) -> None:
        await self.scheduled(every=7.0)
        before = await self.stored_schedules()
        with pytest.raises(ConfigError, match=words):
            await self.broker.schedules.put(Schedule(**{"name": "tick", "queue": "jobs", **said}))
        assert await self.stored_schedules() == before

    async def test_bad_terms_and_values_are_refused(self) -> None:
        await self.scheduled()
        before = await self.stored_schedules()
        with pytest.raises(InvalidPriority):
            await self.broker.schedules.put(_schedule(priority=256))
        with pytest.raises(MessageTooLarge, match="65536"):
            await self.broker.schedules.put(_schedule(value="x" * 70_000))
        assert await self.stored_schedules() == before

    async def test_an_unknown_queue_is_refused(self) -> None:
        with pytest.raises(QueueNotFound, match="nowhere"):
            await self.broker.schedules.put(_schedule(queue="nowhere"))
        assert await self.broker.schedules.list() == []
        assert await self.broker.queues() == []

    async def test_two_schedules_of_one_name_are_refused(self) -> None:
        await self.scheduled(value="first")
        await self.queue("other")
        with pytest.raises(ConfigError, match="'tick' of queue 'jobs'"):
            await self.broker.schedules.put(_schedule(queue="other", value="second"))
        assert [each.schedule for each in await self.broker.schedules.list()] == [_schedule(value="first")]
        await self.broker.schedules.delete("tick")
        await self.broker.schedules.put(_schedule(queue="other"))
        assert [each.schedule.queue for each in await self.broker.schedules.list()] == ["other"]

    async def test_an_unknown_schedule_is_not_found(self) -> None:
        public = self.broker.schedules
        for call in (public.get, public.pause, public.resume, public.trigger, public.delete):
            with pytest.raises(ScheduleNotFound, match="'nobody'"):
                await call("nobody")

    # ------------------------------------------------------------------ workers

    async def test_a_worker_fires_what_is_due(self) -> None:
        fired: list[Any] = []
        late: list[float] = []

        def note(event: Any) -> None:
            fired.append(event)
            late.append(time.time() - event.slot.timestamp())

        self.broker.on("schedule.fired", note)
        queue = await self.scheduled(cron="* * * * * *")
        handled: list[str] = []

        async def handle(value: Any, context: Any) -> None:
            handled.append(context.headers["scheduled_for"])

        async with working(queue.worker(handle)):
            await eventually(lambda: len(handled) >= 3, "three slots", within=2 * self.patience)
        assert len(set(handled)) == len(handled)
        assert {each.schedule for each in fired} == {"tick"}
        assert {each.queue for each in fired} == {"jobs"}
        assert fired[0].id is not None
        assert min(late[1:]) < 2.0


def _schedule(**said: Any) -> Schedule:
    if "cron" not in said:
        said = {"every": 300.0, **said}
    return Schedule(**{"name": "tick", "queue": "jobs", "value": {"n": 0}, **said})


def _late(each: Scheduled, now: float) -> Fire:
    """What somebody would do who looked then."""
    from ...scheduling import _fire_of

    due = core.due(each.plan, each.mark, now)
    assert due is not None
    assert due.fires
    return _fire_of(each, due)
