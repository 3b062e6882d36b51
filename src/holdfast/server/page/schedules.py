"""Schedules: what fires next, what did not, and one of them with what can be done to it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from litestar import Request, Response, get, post
from litestar.params import FromPath, FromQuery

from ... import admin
from ...cron import Times
from ...errors import ConfigError
from ...schedules import BACKFILL_MOST
from ...scheduling import ScheduleInfo
from ..replies import audit, holder_of, served_of
from ..schedules import reached
from ..search import instant
from . import contents, words
from .frame import page, sees, to

_NEXT = 5  # slots that are shown ahead


@get("/schedules", opt={"role": "read"})
async def listed(request: Request[Any, Any, Any]) -> Response[bytes]:
    """By the next slot."""
    broker, holder = served_of(request).broker, holder_of(request)
    found = [] if broker.store.schedules is None else await broker.schedules.list()
    rows = [each for each in found if holder.reaches(each.schedule.queue)]
    rows.sort(key=lambda each: (each.next_slot is None, each.next_slot or each.created_at, each.schedule.name))
    heading = words.plural(len(rows), "schedule") if rows else "No schedules yet"
    values = {"heading": heading, "rows": [(each, timing(each)) for each in rows]}
    return await page(request, "schedules.html", title=heading, here="s", **values)


def timing(info: ScheduleInfo) -> str:
    schedule = info.schedule
    return schedule.cron or f"every {words.duration(schedule.every)}"


@get("/schedules/{name:str}", opt={"role": "read"})
async def show(
    request: Request[Any, Any, Any],
    name: FromPath[str],
    ask: FromQuery[str] = "",
    since: FromQuery[str] = "",
    until: FromQuery[str] = "",
) -> Response[bytes]:
    """One of them, with its next slots. `ask=delete` and `ask=backfill` show what would happen."""
    info = await reached(request, name)
    schedule = info.schedule
    slots = admin.preview(
        cron=schedule.cron,
        every=schedule.every,
        tz=schedule.tz,
        start=schedule.start,
        end=schedule.end,
        count=_NEXT,
    )
    seen = sees(request)
    value = contents.plain(schedule.value, seen["hidden"]) if seen["content"] else None
    values = {
        "info": info,
        "schedule": schedule,
        "timing": timing(info),
        "slots": slots,
        "value": value,
        "ask": ask,
        "span": _span(info, since, until) if ask == "backfill" and (since or until) else None,
    }
    return await page(request, "schedule.html", title=schedule.name, here="s", **values)


class Span(msgspec.Struct, frozen=True):
    """Past slots, both ends included."""

    since: datetime
    until: datetime
    slots: list[datetime]


def _span(info: ScheduleInfo, since: str, until: str) -> Span:
    """ConfigError for what is no span of its past, or has too many slots."""
    first, last = instant("since", since), instant("until", until)
    if first is None or last is None or first > last or last > datetime.now(UTC):
        raise ConfigError("backfill: `since` comes before `until`, and both are past")
    schedule = info.schedule
    ends = [None if each is None else each.timestamp() for each in (schedule.start, schedule.end)]
    times = Times(cron=schedule.cron, every=schedule.every, tz=schedule.tz, start=ends[0], end=ends[1])
    slots = times.newest(first.timestamp() - 0.001, last.timestamp(), BACKFILL_MOST + 1)
    if len(slots) > BACKFILL_MOST:
        raise ConfigError(f"schedule {schedule.name}: more than {BACKFILL_MOST} slots; backfill them in parts")
    return Span(first, last, sorted(map(words.moment, slots)))


@post("/schedules/{name:str}/backfill", opt={"role": "admin"})
async def backfill(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[bytes]:
    """The messages of the span that the preview has shown; a repeat adds nothing."""
    form = await request.form()
    span = _span(await reached(request, name), str(form.get("since", "")), str(form.get("until", "")))
    ids = await served_of(request).broker.schedules.backfill(name, span.since, span.until)
    await audit(request, len(ids))
    return to(request, f"/schedules/{name}", "backfilled", len(ids))


@post("/schedules/{name:str}/delete", opt={"role": "admin"})
async def delete(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[bytes]:
    """Forget it; its messages stay."""
    await reached(request, name)
    await served_of(request).broker.schedules.delete(name)
    await audit(request)
    return to(request, "/schedules", "forgotten")


@post("/schedules/{name:str}/{verb:str}", opt={"role": "admin"})
async def act(request: Request[Any, Any, Any], name: FromPath[str], verb: FromPath[str]) -> Response[bytes]:
    """Pause, resume or trigger."""
    await reached(request, name)
    schedules = served_of(request).broker.schedules
    if verb == "pause":
        await schedules.pause(name)
    elif verb == "resume":
        await schedules.resume(name)
    elif verb == "trigger":
        await schedules.trigger(name)
    else:
        raise ConfigError("a schedule is paused, resumed or triggered")
    await audit(request)
    return to(request, f"/schedules/{name}", {"pause": "paused", "resume": "resumed"}.get(verb, "triggered"))


ROUTES = [listed, show, backfill, delete, act]
