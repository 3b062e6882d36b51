"""Routes of schedules: what fires when, and what can be done to it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from litestar import Request, Response, delete, get, post, put
from litestar.params import FromPath, JSONBody
from msgspec import UNSET

from ..errors import ConfigError
from ..schedules import Missed, Overlap, Schedule
from ..scheduling import ScheduleInfo
from .bodies import Count, Ids, Priority, Seconds, masked
from .problems import Refused
from .replies import audit, holder_of, reply, sees_content, served_of


class Planned(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What shall be enqueued, and when: `cron` text or `every` so many seconds."""

    queue: str
    value: Any = None
    cron: str | None = None
    every: float | None = None
    tz: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None
    missed: Missed = "latest"
    catch_up: Seconds = 3600.0
    overlap: Overlap = "allow"
    jitter: Seconds = 0.0
    priority: Priority = 0
    headers: dict[str, str] | None = None
    max_attempts: int | None = None


class Pause(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Until an instant, or until it is resumed."""

    until: datetime | None = None


class Span(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Past slots, both ends included."""

    since: datetime
    until: datetime


class ShownSchedule(msgspec.Struct, kw_only=True):
    """A schedule as the store has it; `value` and `headers` are left out for those who may not see them."""

    name: str
    queue: str
    cron: str | None
    every: float | None
    tz: str
    start: datetime | None
    end: datetime | None
    missed: Missed
    catch_up: float
    overlap: Overlap
    jitter: float
    priority: int
    max_attempts: int | None
    created_at: datetime
    last_slot: datetime | None
    next_slot: datetime | None
    last_id: str | None
    fired: int
    missed_slots: int
    paused: bool
    paused_until: datetime | None
    declared: bool
    orphaned: bool
    value: Any = UNSET
    headers: Any = UNSET


_SAID = frozenset(Schedule.__struct_fields__) & frozenset(ShownSchedule.__struct_fields__) - {"value", "headers"}
_KNOWN = ("created_at", "last_slot", "next_slot", "last_id", "fired", "paused", "paused_until", "declared", "orphaned")


@get("/schedules", opt={"role": "read"})
async def list_schedules(request: Request[Any, Any, Any]) -> Response[list[ShownSchedule]]:
    """All schedules, by name."""
    broker, holder = served_of(request).broker, holder_of(request)
    found = [] if broker.store.schedules is None else await broker.schedules.list()
    return reply(request, [_shown(request, each) for each in found if holder.reaches(each.schedule.queue)])


@get("/schedules/{name:str}", opt={"role": "read"})
async def show_schedule(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[ShownSchedule]:
    """One schedule, with its last and next slot."""
    return reply(request, _shown(request, await reached(request, name)))


@put("/schedules/{name:str}", opt={"role": "admin"})
async def put_schedule(
    request: Request[Any, Any, Any], name: FromPath[str], data: JSONBody[Planned]
) -> Response[ShownSchedule]:
    """Make a schedule, or change the one of this name, which keeps its last slot."""
    if not holder_of(request).reaches(data.queue):
        raise _foreign()
    schedules = served_of(request).broker.schedules
    await schedules.put(Schedule(name=name, **{key: getattr(data, key) for key in Planned.__struct_fields__}))
    await audit(request)
    return reply(request, _shown(request, await reached(request, name)))


@delete("/schedules/{name:str}", opt={"role": "admin"}, status_code=200)
async def delete_schedule(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[Count]:
    """Forget a schedule; its messages stay."""
    await reached(request, name)
    await served_of(request).broker.schedules.delete(name)
    await audit(request)
    return reply(request, Count(1))


@post("/schedules/{name:str}/pause", opt={"role": "admin"}, status_code=200)
async def pause_schedule(
    request: Request[Any, Any, Any], name: FromPath[str], data: JSONBody[Pause]
) -> Response[ShownSchedule]:
    """No slot fires, for now or until an instant; then `missed` decides about those in between."""
    await reached(request, name)
    await served_of(request).broker.schedules.pause(name, data.until)
    await audit(request)
    return reply(request, _shown(request, await reached(request, name)))


@post("/schedules/{name:str}/resume", opt={"role": "admin"}, status_code=200)
async def resume_schedule(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[ShownSchedule]:
    """Slots fire again; `missed` decides about those in between."""
    await reached(request, name)
    await served_of(request).broker.schedules.resume(name)
    await audit(request)
    return reply(request, _shown(request, await reached(request, name)))


@post("/schedules/{name:str}/trigger", opt={"role": "admin"}, status_code=201)
async def trigger_schedule(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[Ids]:
    """Enqueue its message now; that is no slot."""
    await reached(request, name)
    id = await served_of(request).broker.schedules.trigger(name)
    await audit(request, 1)
    return reply(request, Ids([id]), status=201)


@post("/schedules/{name:str}/backfill", opt={"role": "admin"}, status_code=201)
async def backfill_schedule(
    request: Request[Any, Any, Any], name: FromPath[str], data: JSONBody[Span]
) -> Response[Ids]:
    """Enqueue the messages of a span of past slots; a repeat adds nothing."""
    await reached(request, name)
    ids = await served_of(request).broker.schedules.backfill(name, data.since, data.until)
    await audit(request, len(ids))
    return reply(request, Ids(ids), status=201)


async def reached(request: Request[Any, Any, Any], name: str) -> ScheduleInfo:
    """One of the holder's queues; ScheduleNotFound, Refused."""
    broker = served_of(request).broker
    if broker.store.schedules is None:
        raise ConfigError("this store keeps no schedules")
    info = await broker.schedules.get(name)
    if not holder_of(request).reaches(info.schedule.queue):
        raise _foreign()
    return info


def _foreign() -> Refused:
    return Refused(403, "not allowed", "this token is for other queues")


def _shown(request: Request[Any, Any, Any], info: ScheduleInfo) -> ShownSchedule:
    said = {key: getattr(info.schedule, key) for key in _SAID}
    known = {key: getattr(info, key) for key in _KNOWN}
    shown = ShownSchedule(**said, **known, missed_slots=info.missed)
    if sees_content(request):
        hidden = served_of(request).settings.redact
        shown.value = masked(info.schedule.value, hidden)
        shown.headers = masked(dict(info.schedule.headers or {}), hidden)
    return shown


ROUTES = [
    list_schedules,
    show_schedule,
    put_schedule,
    delete_schedule,
    pause_schedule,
    resume_schedule,
    trigger_schedule,
    backfill_schedule,
]
