"""Schedules: what fires next, what did not, and one of them with what can be done to it."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get, post
from litestar.params import FromPath

from ... import admin
from ...errors import ConfigError
from ...scheduling import ScheduleInfo
from ..replies import audit, holder_of, served_of
from ..schedules import reached
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
async def show(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[bytes]:
    """One of them, with its next slots."""
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
    values = {"info": info, "schedule": schedule, "timing": timing(info), "slots": slots, "value": value}
    return await page(request, "schedule.html", title=schedule.name, here="s", **values)


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


ROUTES = [listed, show, act]
