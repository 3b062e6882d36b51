"""Schedules as users hold them (`broker.schedules`); `worker/schedule_rounds.py` fires what is due.

There is no leader: the first to see a slot asks the store to add its message and to move the schedule's mark, and the
store does that once.
"""

from __future__ import annotations

import builtins
import math
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from . import config, message_events, schedules
from .codecs import codec_for
from .errors import CodecError, ConfigError, ScheduleNotFound, UnknownOutcome
from .escaping import logger_named
from .events import Emitter, Event
from .messages import instant, terms
from .schedules import Due, Mark, Plan, Schedule
from .stores.opening import in_time
from .stores.records import Envelope
from .stores.scheduling import Fire, Scheduled
from .stores.scheduling import Schedules as StoredSchedules

if TYPE_CHECKING:
    from .codecs import Codec
    from .lifetime import Lifetime

T = TypeVar("T")
_LOG = logger_named("holdfast.schedules")
_ALIVE = ("delayed", "pending", "processing", "retry")
_TOGETHER = 500  # messages of one step
_TOGETHER_BYTES = 8 << 20  # of their payloads: what every store takes in one step
_KEPT_OPTIONS = frozenset(Schedule.__struct_fields__)


class ScheduleInfo(msgspec.Struct, frozen=True):
    """A schedule as a store has it."""

    schedule: Schedule
    created_at: datetime
    last_slot: datetime | None  # the newest that was decided on
    next_slot: datetime | None  # None: there is none any more
    last_id: str | None  # of its last message
    fired: int
    missed: int
    paused: bool
    paused_until: datetime | None
    declared: bool  # by an app or a file
    orphaned: bool  # it was declared, and is not any more


class Schedules:
    """The schedules of a store."""

    def __init__(
        self,
        life: Lifetime,
        events: Emitter,
        written: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        timeout: float = math.inf,
        place: str = "the store",
    ) -> None:
        """`timeout` seconds for the calls of one verb, however many it needs; but adding messages has its own."""
        self._life = life
        self._events = events
        self._written = written or {}  # in holdfast.yaml
        self._timeout = timeout
        self._place = place

    async def _in_time(self, work: Awaitable[T]) -> T:
        return await in_time(work, self._timeout, self._place)

    @property
    def _stored(self) -> StoredSchedules:
        found = self._life.store.schedules
        if found is None:
            raise ConfigError("this store keeps no schedules")
        return found

    # ------------------------------------------------------------------ keeping

    async def put(self, schedule: Schedule) -> None:
        """Make a schedule, or change the one of this name, which keeps its last slot.

        ConfigError for what it cannot be, QueueNotFound for an unknown queue; nothing is changed then.
        """
        await self._in_time(self._put(schedule, codec_for(None, None), declared=False))

    async def _put(self, schedule: Schedule, codec: Codec[Any], *, declared: bool) -> None:
        plan = plan_of(schedule, codec)
        now = await self._life.store.clock()

        def change(old: Plan | None) -> Plan:
            made = now if old is None else old.created_at
            paused, until = (old.paused, old.paused_until) if old is not None else (False, None)
            new = msgspec.structs.replace(plan, created_at=made, paused=paused, paused_until=until)
            return msgspec.structs.replace(new, declared=declared or (old is not None and old.declared))

        await self._stored.change(plan.name, plan.queue, change)
        self._life.scheduled.forget()

    async def get(self, name: str) -> ScheduleInfo:
        """One schedule; ScheduleNotFound."""
        return _info(*await self._in_time(self._found_now(name)))

    async def list(self) -> builtins.list[ScheduleInfo]:
        """All of them, by name."""

        async def all_now() -> tuple[builtins.list[Scheduled], float]:
            return builtins.list(await self._stored.all()), await self._life.store.clock()

        found, now = await self._in_time(all_now())
        return [_info(each, now) for each in found]

    async def pause(self, name: str, until: datetime | None = None) -> None:
        """No slot fires, for now or until an instant; then `missed` decides about those in between."""
        end = None if until is None else instant("until", until)
        await self._in_time(self._change(name, paused=True, paused_until=end))

    async def resume(self, name: str) -> None:
        """Slots fire again; `missed` decides about those in between."""
        await self._in_time(self._change(name, paused=False, paused_until=None))

    async def delete(self, name: str) -> None:
        """Forget a schedule; its messages stay. ScheduleNotFound."""

        async def delete() -> None:
            found = await self._found(name)
            await self._stored.change(found.plan.name, found.plan.queue, lambda old: None)

        await self._in_time(delete())

    async def _change(self, name: str, **fields: Any) -> None:
        found = await self._found(name)

        def change(old: Plan | None) -> Plan | None:
            return None if old is None else msgspec.structs.replace(old, **fields)

        if await self._stored.change(found.plan.name, found.plan.queue, change) is None:
            raise _missing(name)

    async def _found(self, name: str) -> Scheduled:
        found = await self._stored.find(schedules.checked_name(name))
        if found is None:
            raise _missing(name)
        return found

    async def _found_now(self, name: str) -> tuple[Scheduled, float]:
        return await self._found(name), await self._life.store.clock()

    async def declare(self, declared: Iterable[tuple[Schedule, Codec[Any]]], queues: Iterable[str]) -> None:
        """Apply what an app or a file declares; what was declared for these queues, and is not now, is an orphan."""
        kept: set[str] = set()
        for schedule, codec in declared:
            await self._put(schedule, codec, declared=True)
            kept.add(schedule.name)
        for queue in sorted(set(queues)):
            for each in await self._stored.of(queue):
                plan = each.plan
                if plan.declared and plan.orphaned != (plan.name not in kept):
                    await self._change(plan.name, orphaned=plan.name not in kept)
                    if plan.name not in kept:
                        _LOG.warning("schedule %s of %s is no longer declared; it fires on", plan.name, queue)

    def written(self) -> builtins.list[Schedule]:
        """Those of holdfast.yaml; ConfigError."""
        return [
            from_mapping(name, said, where=f"{config.FILE}: schedules: {name}") for name, said in self._written.items()
        ]

    async def declare_file(self) -> None:
        """Apply those of holdfast.yaml; unknown queues are QueueNotFound."""
        for schedule in self.written():
            await self._put(schedule, codec_for(None, None), declared=True)

    # ------------------------------------------------------------------ firing

    async def _has_any(self, queue: str) -> bool:
        """Whether a queue has schedules, by one look for all workers of this broker: there may be thousands of them."""
        return queue in await self._life.scheduled.queues(self._stored)

    async def trigger(self, name: str) -> str:
        """Enqueue its message now; its id. That is no slot: nothing is skipped for it."""
        found, now = await self._in_time(self._found_now(name))
        plan = found.plan
        envelope = _envelope(plan, now, visible=now)
        [id] = await self._life.store.append(plan.queue, [envelope])
        self._tell_fired(plan, now, id)
        return id

    async def backfill(self, name: str, since: datetime, until: datetime) -> builtins.list[str]:
        """Enqueue the messages of a span of past slots; the ids of all of them. A repeat adds nothing.

        Slots that have a message already get no other; those that nobody has decided on yet are left to themselves.
        """
        first, last = instant("since", since), instant("until", until)
        found, now = await self._in_time(self._found_now(name))
        plan = found.plan
        if first > last or last > now:
            raise ConfigError("backfill: `since` comes before `until`, and both are past")
        ids: builtins.list[str] = []
        slots = schedules.backfill(plan, first, last)
        step = max(1, min(_TOGETHER, _TOGETHER_BYTES // max(1, len(plan.payload))))
        for start in range(0, len(slots), step):
            try:
                ids += await self._backfill(name, slots[start : start + step])
            except UnknownOutcome as error:  # a repeat finds out
                raise UnknownOutcome(str(error), retry=partial(self.backfill, name, since, until)) from error
        return ids

    async def _backfill(self, name: str, slots: Sequence[float]) -> Sequence[str]:
        while True:
            found = await self._found(name)
            plan, mark = found.plan, found.mark
            every = {slot: schedules.slot_id(plan, slot) for slot in slots if slot <= mark.begins(plan)}
            new = [slot for slot in every if not mark.has_backfilled(slot)]
            known = await self._life.store.get(plan.queue, [every[slot] for slot in new])
            new = [slot for slot, record in zip(new, known, strict=True) if record is None]
            messages = [(every[slot], _envelope(plan, slot, visible=0.0)) for slot in new]
            moved = schedules.with_backfill(mark, min(every), max(every)) if every else mark
            fire = Fire(plan.name, mark, moved, messages)
            if moved == mark or (await self._stored.fire(plan.queue, [fire]))[0]:
                for slot in new:
                    self._tell_fired(plan, slot, every[slot])
                return builtins.list(every.values())

    async def tick(self, *, limit: int | None = None, deadline: float | None = None) -> int:
        """Fire what is due, once; how many messages were added. At most about `limit`, within `deadline` seconds."""
        end = time.monotonic() + (math.inf if deadline is None else config.seconds("deadline", deadline))
        if limit is not None:
            config.whole("limit", limit)
        added = 0
        by_queue: dict[str, builtins.list[Scheduled]] = {}
        for each in await self._stored.all():
            by_queue.setdefault(each.plan.queue, []).append(each)
        now, asked = await self._life.store.clock() if by_queue else 0.0, time.monotonic()  # once for all queues
        for queue, some in by_queue.items():
            left = None if limit is None else limit - added
            if time.monotonic() > end or (left is not None and left <= 0):
                break
            done = await self._fire(queue, some, now + time.monotonic() - asked, limit=left, end=end)
            added += _count(done)
        return added

    async def _fire(
        self, queue: str, some: Sequence[Scheduled], now: float, *, limit: int | None = None, end: float = math.inf
    ) -> dict[str, Due | None]:
        """Fire what is due of these; what was done, by name. None: somebody else was faster."""
        todo: builtins.list[tuple[Scheduled, Due]] = []
        for each in some:
            due = schedules.due(each.plan, each.mark, now)
            if due is not None and each.plan.overlap == "skip" and await self._is_alive(each):
                due = schedules.due(each.plan, each.mark, now, alive=True)
            if due is not None:
                todo.append((each, due))
        done: dict[str, Due | None] = {}
        for part in _parts(todo):
            if time.monotonic() > end or (limit is not None and _count(done) >= limit):
                break
            fires = [_fire_of(each, due) for each, due in part]
            for (each, due), happened in zip(part, await self._stored.fire(queue, fires), strict=True):
                done[each.plan.name] = due if happened else None
                if happened:
                    self._tell(each.plan, due)
        return done

    async def _is_alive(self, each: Scheduled) -> bool:
        """Whether the last message of a schedule has not ended; one that is gone has."""
        if not each.mark.id:
            return False
        [found] = await self._life.store.get(each.plan.queue, [each.mark.id])
        return found is not None and found.status in _ALIVE

    def _tell(self, plan: Plan, due: Due) -> None:
        for slot in due.fires:
            self._tell_fired(plan, slot, schedules.slot_id(plan, slot))
        if due.missed:
            fields = {"schedule": plan.name, "queue": plan.queue, "slot": schedules.instant(due.newest_missed)}
            reason = "overlap" if plan.overlap == "skip" and not due.fires else "late"
            self._events.emit(Event("schedule.missed", {**fields, "count": due.missed, "reason": reason}))

    def _tell_fired(self, plan: Plan, slot: float, id: str) -> None:
        if self._events.wants("message.enqueued"):
            self._events.emit(message_events.enqueued(plan.queue, id))
        fields = {"schedule": plan.name, "queue": plan.queue, "id": id, "slot": schedules.instant(slot)}
        self._events.emit(Event("schedule.fired", fields))


def _missing(name: str) -> ScheduleNotFound:
    return ScheduleNotFound(f"there is no schedule {name!r}")


def plan_of(schedule: Schedule, codec: Codec[Any]) -> Plan:
    """A schedule as it is stored, everything checked; ConfigError, CodecError, InvalidPriority, MessageTooLarge."""
    if not isinstance(schedule, Schedule):
        raise ConfigError(f"a schedule is a holdfast.Schedule, not {type(schedule).__qualname__}")
    schedules.check(schedule)
    start, end = (
        None if value is None else instant(f"schedule {schedule.name}: {field}", value)
        for field, value in (("start", schedule.start), ("end", schedule.end))
    )
    headers, priority, _, _, _, attempts, *_ = terms(
        priority=schedule.priority, headers=schedule.headers, max_attempts=schedule.max_attempts
    )
    payload, content_type = _encoded(schedule.value, codec)
    schedules.check_payload(schedule.name, payload)
    return Plan(
        name=schedule.name,
        queue=schedule.queue,
        payload=payload,
        content_type=content_type,
        headers={**(codec.headers or {}), **(headers or {})} or None,
        priority=priority,
        max_attempts=attempts,
        cron=schedule.cron,
        every=schedule.every,
        tz=schedule.tz,
        start=start,
        end=end,
        missed=schedule.missed,
        catch_up=float(schedule.catch_up),
        overlap=schedule.overlap,
        jitter=float(schedule.jitter),
    )


def _encoded(value: Any, codec: Codec[Any]) -> tuple[bytes, str]:
    """A value of the queue's type, or plain JSON that reads as one; CodecError."""
    try:
        return codec.encode(value)
    except CodecError:
        return codec.encode(codec.decode(*codec_for(None, None).encode(value)))


def from_mapping(name: str, said: Mapping[str, Any], *, where: str) -> Schedule:
    """A schedule out of a file or a command line; ConfigError."""
    for key in said:
        if key not in _KEPT_OPTIONS or key == "name":
            raise ConfigError(config.unknown(f"{where}: unknown key", key, sorted(_KEPT_OPTIONS - {"name"})))
    try:
        return msgspec.convert({**said, "name": name}, Schedule, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None


def _info(each: Scheduled, now: float) -> ScheduleInfo:
    plan, mark = each.plan, each.mark
    upcoming = schedules.next_slot(plan, Mark(max(mark.slot, now))) if not plan.paused else None
    return ScheduleInfo(
        schedule_of(plan),
        schedules.instant(plan.created_at),
        schedules.instant(mark.slot) if mark.slot else None,
        schedules.instant(upcoming) if upcoming is not None else None,
        mark.id or None,
        mark.fired,
        mark.missed,
        plan.is_paused(now),
        schedules.instant(plan.paused_until) if plan.paused_until and plan.is_paused(now) else None,
        plan.declared,
        plan.orphaned,
    )


def schedule_of(plan: Plan) -> Schedule:
    """What was said, from what is stored."""
    shared = {name: getattr(plan, name) for name in _KEPT_OPTIONS if hasattr(plan, name)}
    for field in ("start", "end"):
        shared[field] = None if shared[field] is None else schedules.instant(shared[field])
    return Schedule(**shared, value=codec_for(None, None).decode(plan.payload, plan.content_type))


def _envelope(plan: Plan, slot: float, *, visible: float) -> Envelope:
    return Envelope(
        plan.payload,
        plan.content_type,
        schedules.headers(plan, slot),
        plan.priority,
        at=visible if visible > slot else None,
        max_attempts=plan.max_attempts,
    )


def _fire_of(each: Scheduled, due: Due) -> Fire:
    messages = [
        (schedules.slot_id(each.plan, slot), _envelope(each.plan, slot, visible=schedules.visible_at(each.plan, slot)))
        for slot in due.fires
    ]
    return Fire(each.plan.name, each.mark, schedules.moved(each.plan, each.mark, due), messages)


def _parts(todo: Sequence[tuple[Scheduled, Due]]) -> Iterable[list[tuple[Scheduled, Due]]]:
    """As many as one step takes; a schedule is never divided."""
    part: list[tuple[Scheduled, Due]] = []
    count = size = 0
    for each in todo:
        count, size = count + len(each[1].fires), size + len(each[1].fires) * len(each[0].plan.payload)
        if part and (count > _TOGETHER or size > _TOGETHER_BYTES):
            yield part
            part, count, size = [], len(each[1].fires), len(each[1].fires) * len(each[0].plan.payload)
        part.append(each)
    if part:
        yield part


def _count(done: Mapping[str, Due | None]) -> int:
    return sum(len(due.fires) for due in done.values() if due is not None)
