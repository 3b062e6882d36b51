"""Schedules: what a user says, what a store keeps, and what is due. Pure: the same answer for everybody who asks.

A store keeps a `Plan` (what was said) and a `Mark` (how far it has come). `due` says from both and the store's time
which slots become messages now. The store then moves the mark and adds the messages in one step, and only if the mark
is still the one that was seen: so every slot is decided once, by the first process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from . import config, ids
from .cron import EVERY_LEAST_S, Times, fields, zone
from .errors import ConfigError, MessageTooLarge

Missed: TypeAlias = Literal["latest", "all", "none"]
Overlap: TypeAlias = Literal["allow", "skip"]

YOUNG_S = 60.0  # a slot fires whatever `missed` says, as long as it is not older
MISSED_MOST = 100  # slots that `all` fires at once
COUNTED_MOST = 1000  # missed slots of a calendar: counting them means going through them
BACKFILL_MOST = 10_000  # slots of one call
REMEMBERED_SPANS = 32  # spans that were backfilled
VALUE_MOST = 64 * 1024  # bytes of a value: schedules are read as a whole
CATCH_UP_MOST_S = 400 * 86400.0  # seconds: beyond a yearly one


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """What shall be enqueued, and when: `cron` text or `every` so many seconds."""

    name: str
    queue: str
    value: Any = None
    cron: str | None = None  # five fields, six with seconds first, or a name such as @daily
    every: float | None = None  # seconds, counted from `start` or from 1970
    tz: str = "UTC"  # IANA name
    start: datetime | None = None
    end: datetime | None = None
    missed: Missed = "latest"  # what becomes of slots that nobody fired within 60 s
    catch_up: float = 3600.0  # seconds after which a missed slot is not fired any more
    overlap: Overlap = "allow"
    jitter: float = 0.0  # seconds of delay at most, the same for a slot in every process
    priority: int = 0
    headers: Mapping[str, str] | None = None
    max_attempts: int | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as a store keeps it; instants in seconds since 1970."""

    name: str
    queue: str
    payload: bytes
    content_type: str
    headers: dict[str, str] | None = None
    priority: int = 0
    max_attempts: int | None = None
    cron: str | None = None
    every: float | None = None
    tz: str = "UTC"
    start: float | None = None
    end: float | None = None
    missed: Missed = "latest"
    catch_up: float = 3600.0
    overlap: Overlap = "allow"
    jitter: float = 0.0
    created_at: float = 0.0  # by the store's clock: slots up to then are not its own
    paused: bool = False
    paused_until: float | None = None
    declared: bool = False  # by an app or a file, not by a call
    orphaned: bool = False  # it was declared, and is not any more

    def is_paused(self, now: float) -> bool:
        return self.paused and (self.paused_until is None or now < self.paused_until)


class Mark(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """How far a schedule has come."""

    slot: float = 0.0  # the newest that was decided on; it only moves forward
    id: str = ""  # of its last message
    fired: int = 0
    missed: int = 0
    backfilled: tuple[tuple[float, float], ...] = ()  # spans, both ends included

    def has_backfilled(self, slot: float) -> bool:
        return any(low <= slot <= high for low, high in self.backfilled)

    def begins(self, plan: Plan) -> float:
        """Slots behind this instant are still to be decided."""
        return max(self.slot, plan.created_at)


class Due(msgspec.Struct, frozen=True):
    """What is to be done with a schedule now: slots that become messages, and how many do not."""

    slot: float  # up to which everything is decided then
    fires: list[float]  # in order
    missed: int = 0
    newest_missed: float = 0.0


def checked_name(name: object) -> str:
    """A schedule's name; ConfigError."""
    return config.queue_name(name, what="bad name of a schedule")


def check(schedule: Schedule) -> None:
    """Everything but the value and the terms of its message; ConfigError."""
    name = checked_name(schedule.name)
    try:
        _check(schedule)
    except ConfigError as error:
        raise ConfigError(f"schedule {name}: {error}") from None


def _check(schedule: Schedule) -> None:
    config.queue_name(schedule.queue)
    if (schedule.cron is None) == (schedule.every is None):
        raise ConfigError("give `cron` or `every`, one of them")
    if schedule.cron is not None:
        fields(schedule.cron)
    elif config.seconds("every", schedule.every) < EVERY_LEAST_S:
        raise ConfigError(f"every: at least {EVERY_LEAST_S:g} second, not {schedule.every!r}")
    zone(schedule.tz)
    if schedule.every is not None and schedule.tz != "UTC":
        raise ConfigError("tz is for `cron`: an interval has no time zone")
    for field, allowed in (("missed", get_args(Missed)), ("overlap", get_args(Overlap))):
        if getattr(schedule, field) not in allowed:
            raise ConfigError(f"{field}: one of {', '.join(allowed)}, not {getattr(schedule, field)!r}")
    if config.seconds("catch_up", schedule.catch_up) > CATCH_UP_MOST_S:
        raise ConfigError(f"catch_up: at most {CATCH_UP_MOST_S:g} seconds")
    config.seconds("jitter", schedule.jitter)


def check_payload(name: str, payload: bytes) -> None:
    """MessageTooLarge."""
    if len(payload) > VALUE_MOST:
        raise MessageTooLarge(
            f"schedule {name}: its value has {len(payload)} bytes, and {VALUE_MOST} is the most: enqueue a reference",
            actual=len(payload),
            limit=VALUE_MOST,
        )


# What is due.


@lru_cache(4096)
def _times(cron: str | None, every: float | None, tz: str, start: float | None, end: float | None) -> Times:
    return Times(cron=cron, every=every, tz=tz, start=start, end=end)


def times(plan: Plan) -> Times:
    return _times(plan.cron, plan.every, plan.tz, plan.start, plan.end)


def next_slot(plan: Plan, mark: Mark) -> float | None:
    """The first slot that is not decided yet; None: there is none any more."""
    return next(times(plan).after(mark.begins(plan)), None)


def wakes_at(plan: Plan, mark: Mark, now: float) -> float | None:
    """When there will be something to do; None: never, as it is."""
    if plan.is_paused(now) and plan.paused_until is None:
        return None
    slot = next_slot(plan, mark)
    return slot if slot is None or not plan.is_paused(now) else max(slot, plan.paused_until or 0.0)


def due(plan: Plan, mark: Mark, now: float, *, alive: bool = False) -> Due | None:
    """What is to be done now; None: nothing. `alive`: the last message of the schedule has not ended."""
    begin = mark.begins(plan)
    if plan.is_paused(now) or now <= begin:
        return None
    calendar = times(plan)
    old = min(now, max(begin, now - YOUNG_S))
    fires = calendar.newest(old, now, COUNTED_MOST)
    most = MISSED_MOST if plan.missed == "all" else 1
    missed = calendar.newest(begin, old, most + 1) if old > begin else []  # one more: the newest that does not fire
    if not fires and not missed:
        return None
    total = len(fires) + (calendar.count(begin, old, COUNTED_MOST) if missed else 0)
    late = [slot for slot in missed[-most:] if slot >= now - plan.catch_up] if plan.missed != "none" else []
    slot = (fires or missed)[-1]
    wanted = [*late, *fires]
    if plan.overlap == "skip":
        wanted = [] if alive else wanted[-1:]
    left = total - len(wanted)
    passed = [each for each in (*missed, *fires) if each not in wanted]
    return Due(slot, wanted, left, passed[-1] if left and passed else 0.0)


def moved(plan: Plan, mark: Mark, due: Due) -> Mark:
    """The mark once that is done."""
    return Mark(
        due.slot,
        slot_id(plan, due.fires[-1]) if due.fires else mark.id,
        mark.fired + len(due.fires),
        mark.missed + due.missed,
        mark.backfilled,
    )


def backfill(plan: Plan, since: float, until: float) -> list[float]:
    """The slots of a span, both ends included; ConfigError when there are too many."""
    slots = times(plan).newest(since - 0.001, until, BACKFILL_MOST + 1)
    if len(slots) > BACKFILL_MOST:
        raise ConfigError(f"schedule {plan.name}: more than {BACKFILL_MOST} slots; backfill them in parts")
    return slots


def with_backfill(mark: Mark, since: float, until: float) -> Mark:
    """Spans that touch become one; the oldest of too many is forgotten."""
    spans = sorted([*mark.backfilled, (since, until)])
    joined: list[tuple[float, float]] = []
    for low, high in spans:
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return msgspec.structs.replace(mark, backfilled=tuple(joined[-REMEMBERED_SPANS:]))


# What a slot becomes.


def slot_id(plan: Plan, slot: float) -> str:
    """The id of a slot's message: the same for everybody, so that one that was fired is recognised."""
    digest = hashlib.blake2b(f"{plan.name}\0{slot:.3f}".encode(), digest_size=16).digest()
    return ids.text(ids.named(slot, plan.priority, int.from_bytes(digest)))


def visible_at(plan: Plan, slot: float) -> float:
    """When its message may be delivered: the slot, and a part of the jitter that follows from both names."""
    if not plan.jitter:
        return slot
    digest = hashlib.blake2b(f"jitter\0{plan.name}\0{slot:.3f}".encode(), digest_size=8).digest()
    return slot + plan.jitter * (int.from_bytes(digest) / 2**64)


def headers(plan: Plan, slot: float) -> dict[str, str]:
    return {**(plan.headers or {}), "schedule": plan.name, "scheduled_for": text(slot)}


def text(slot: float) -> str:
    """ISO 8601, UTC."""
    return instant(slot).isoformat().replace("+00:00", "Z")


def instant(slot: float) -> datetime:
    return datetime.fromtimestamp(slot, UTC)
