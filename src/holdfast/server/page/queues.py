"""A queue: what is in it, how it is set, and what can be done to it as a whole."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
from litestar import Request, Response, get, post
from litestar.params import FromPath, FromQuery

from ... import admin, config
from ...config import QueueOptions
from ...errors import ConfigError
from ..replies import audit, served_of
from ..served import Served
from . import charts, lately
from .frame import page, to

# Of the options, those that a form can change: what they are is said next to them.
_NOTES = {
    "lease": "seconds that a message is held for one worker",
    "max_attempts": "runs in all, then it is a dead letter",
    "archive": "keep completed messages",
    "archive_days": "days that the archive keeps them",
    "dedup_window": "seconds that a dedup key is remembered",
    "max_messages": "live messages at most; empty: no limit",
    "max_message_size": "bytes of a payload at most",
}
_FIXED = {
    "retry": "when a failed message is tried again",
    "dead_letter": "where messages go that failed for good",
    "shards": "fixed when the queue was made",
}


SPANS = {"hour": 3600, "day": 86400, "week": 7 * 86400}


@get("/queues/{queue:str}", opt={"role": "read"})
async def show(
    request: Request[Any, Any, Any], queue: FromPath[str], ask: FromQuery[str] = "", span: FromQuery[str] = "hour"
) -> Response[bytes]:
    """`ask=purge` and `ask=settings` show what would happen, before anything does."""
    if span not in SPANS:
        raise ConfigError(f"span: one of {', '.join(SPANS)}, not {span!r}")
    served = served_of(request)
    report = await admin.report(served.broker, queue)
    stats = report.stats
    return await page(
        request,
        "queue.html",
        title=queue,
        here="q",
        report=report,
        found=await lately.found(request, [report], datetime.now(UTC)),
        ask=ask,
        waiting=stats.pending + stats.delayed + stats.retry,
        settings=_settings(report.options),
        fixed=_fixed(report.options),
        span=span,
        spans=list(SPANS),
        charts=await _charts(served, queue, span),
    )


async def _charts(served: Served, queue: str, span: str) -> dict[str, Any] | None:
    """None where nothing is kept, or not for long enough."""
    if served.history is None:
        return None
    samples = await asyncio.to_thread(served.history.span, queue, SPANS[span])
    if sum(each is not None for each in samples) < 2:
        return None
    since = f"a{'n' if span == 'hour' else ''} {span} ago"
    timings = await asyncio.to_thread(served.history.timings, queue, SPANS[span])
    known = [each for each in timings if each is not None and each.count]
    now = datetime.now(UTC)
    return {
        "wait": charts.times(timings, "wait", "Seconds until the first attempt", since) if known else None,
        "run": charts.times(timings, "run", "Seconds from claim to outcome", since) if known else None,
        "numbers": {
            "states": charts.numbers_of_states(samples, now),
            "throughput": charts.numbers_of_throughput(samples, now),
            "wait": charts.numbers_of_times(timings, "wait", SPANS[span], now),
            "run": charts.numbers_of_times(timings, "run", SPANS[span], now),
        },
        "last": known[-1] if known else None,
        "states": charts.states(samples, "Messages by state", since),
        "throughput": charts.throughput(samples, "Messages a second", since),
        "is_kept": served.history.is_kept,
    }


def _settings(options: QueueOptions) -> list[dict[str, Any]]:
    default = QueueOptions()
    return [
        {
            "name": name,
            "value": getattr(options, name),
            "is_flag": isinstance(getattr(default, name), bool),
            "is_default": getattr(options, name) == getattr(default, name),
            "note": note,
        }
        for name, note in _NOTES.items()
    ]


def _fixed(options: QueueOptions) -> list[dict[str, str]]:
    said = {**msgspec.to_builtins(options), "retry": _policy(options)}
    return [{"name": name, "value": str(said[name]), "note": note} for name, note in _FIXED.items()]


def _policy(options: QueueOptions) -> str:
    said = dict(msgspec.to_builtins(options.retry))
    return f"{said.pop('policy')}: " + ", ".join(f"{key} {value}" for key, value in said.items())


@post("/queues/{queue:str}/pause", opt={"role": "operate"})
async def pause(request: Request[Any, Any, Any], queue: FromPath[str]) -> Response[bytes]:
    await (await served_of(request).queue(queue)).pause()
    await audit(request)
    return to(request, f"/queues/{queue}", "paused")


@post("/queues/{queue:str}/resume", opt={"role": "operate"})
async def resume(request: Request[Any, Any, Any], queue: FromPath[str]) -> Response[bytes]:
    await (await served_of(request).queue(queue)).resume()
    await audit(request)
    return to(request, f"/queues/{queue}", "resumed")


@post("/queues/{queue:str}/purge", opt={"role": "operate"})
async def purge(request: Request[Any, Any, Any], queue: FromPath[str]) -> Response[bytes]:
    count = await (await served_of(request).queue(queue)).purge()
    await audit(request, count)
    return to(request, f"/queues/{queue}", "purged", count)


@post("/queues/{queue:str}/settings", opt={"role": "admin"})
async def change(request: Request[Any, Any, Any], queue: FromPath[str]) -> Response[bytes]:
    """Those that differ from what is stored; ConfigError, and nothing is changed."""
    served = served_of(request)
    form = await request.form()
    before = (await admin.report(served.broker, queue)).options
    given = {name: _read(name, str(form.get(name, "")).strip(), getattr(before, name)) for name in _NOTES}
    changed = {name: value for name, value in given.items() if value != getattr(before, name)}
    if changed:
        await served.broker.configure_queue(config.queue_name(queue), **changed)
        await audit(request, len(changed))
    served.forget(queue)
    return to(request, f"/queues/{queue}", "set")


def _read(name: str, text: str, before: Any) -> Any:
    """What a field of the form says; a box that is not ticked says nothing at all."""
    if isinstance(before, bool):
        return text == "on"
    if name == "max_messages" and not text:
        return None
    try:
        number = float(text)
    except ValueError:
        raise ConfigError(f"{name}: a number, not {text!r}") from None
    return number if isinstance(before, float) or number != int(number) else int(number)


ROUTES = [show, pause, resume, purge, change]
