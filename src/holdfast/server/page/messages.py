"""Messages of a queue by state, one message, and where to look for one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.params import FromPath, FromQuery, QueryParameter
from msgspec import UNSET

from ... import admin
from ...deliveries import Record
from ...errors import ConfigError, MessageNotFound
from ...ids import born_at, is_id, number
from ...queue_reports import QueueReport
from .. import jobs, search
from ..bodies import Shown
from ..replies import audit, served_of
from . import contents, filters, finding, words
from .frame import ROWS, page, reports_of, sees, to

SAMPLES = 5  # of what a preview would touch

After = Annotated[str | None, QueryParameter(required=False)]


class Row(msgspec.Struct, frozen=True):
    """A message in a table."""

    one: Shown
    brief: str


class Step(msgspec.Struct, frozen=True):
    """Something that happened to a message."""

    at: datetime
    tone: str
    icon: str
    what: str
    more: str = ""
    took: str = ""


@get("/messages", opt={"role": "read"})
async def choose(
    request: Request[Any, Any, Any], text: FromQuery[str] = "", long: FromQuery[bool] = False
) -> Response[bytes]:
    """Which queue, or which id: an id is looked for in every queue, with `long` for as long as that takes."""
    text = text.strip()
    reports = await reports_of(request)
    found = await _find(request, text, reports, long=long) if is_id(text) else None
    if found is not None and found.queue is not None:
        return to(request, f"/queues/{found.queue}/messages/{text}", forget=False)
    rows = sorted(reports, key=lambda one: one.name)[:ROWS]
    values = {"text": text, "found": found, "rows": rows, "queues": len(reports)}
    return await page(request, "find.html", title="Messages", here="m", **values)


async def _find(
    request: Request[Any, Any, Any], id: str, reports: Sequence[QueueReport], *, long: bool
) -> finding.Found:
    served = served_of(request)
    came: dict[str, int] = {}
    if served.history is not None:
        came = await asyncio.to_thread(served.history.came, born_at(number(id) or 0))
    seconds = finding.PATIENT_S if long else finding.FINDING_S
    return await finding.find(served.broker.store, id, finding.likely(id, reports, came), seconds=seconds)


@get("/queues/{queue:str}/messages", opt={"role": "read"})
async def listed(request: Request[Any, Any, Any], queue: FromPath[str], after: After = None) -> Response[bytes]:
    """One page of one state, in the order of the ids; with a filter, what was found so far."""
    served = served_of(request)
    chosen = filters.read(request, request.query_params)
    report = await admin.report(served.broker, queue)
    if after is not None and not is_id(after):
        raise ConfigError("after: the id of a message")
    found = await served.queue(queue)
    store, hidden = served.broker.store, served.settings.redact
    looked = await search.look(store, queue, chosen.view, chosen.wanted, after=after, limit=ROWS, hidden=hidden)
    values = {
        "report": report,
        "chosen": chosen,
        "tabs": [(known, getattr(report.stats, count)) for known, _, count in filters.VIEWS],
        "rows": [row(Record(each, found.codec), **sees(request)) for each in looked.messages],
        "after": after,
        "looked": looked,
        "total": getattr(report.stats, chosen.count),
        "verbs": jobs.VERBS[chosen.view],
        "live": not chosen.wanted,  # a search is asked for once
    }
    return await page(request, "messages.html", title=f"{queue}: {chosen.state}", here="m", **values)


def row(record: Record[Any], *, content: bool, hidden: Any) -> Row:
    one = contents.opened(record, content=content, hidden=hidden)
    return Row(one, contents.brief(one))


@get("/queues/{queue:str}/messages/{id:str}", opt={"role": "read"})
async def show(
    request: Request[Any, Any, Any], queue: FromPath[str], id: FromPath[str], ask: FromQuery[str] = ""
) -> Response[bytes]:
    """Everything that is known of one."""
    found = await served_of(request).queue(queue)
    record = await found.get(id)
    if record is None:
        raise MessageNotFound(f"{queue}: there is no message {id!r}, or it ended and was not kept")
    one = contents.opened(record, **sees(request))
    return await page(
        request,
        "message.html",
        title=f"{words.tail(id)} of {queue}",
        here="m",
        queue=queue,
        one=one,
        steps=steps(one),
        value=contents.of(one),
        result=contents.result_of(one),
        headers=one.headers if isinstance(one.headers, dict) else None,
        headline=(one.error or "").partition("\n")[0],
        ask=ask,
        may_edit=one.value is not UNSET,
    )


def steps(one: Shown) -> list[Step]:
    """What the record tells, in order; what it does not know is not there."""
    told = [Step(one.enqueued_at, "ready", "ready", "Enqueued"), *_earlier(one)]
    if one.claimed_at is not None:
        since, what = one.enqueued_at, "it was enqueued"
        if len(told) > 1:
            since, what = one.history[len(told) - 2].end, "the attempt before"
        said = f"{words.duration(max(0.0, (one.claimed_at - since).total_seconds()))} after {what}"
        told.append(Step(one.claimed_at, "running", "running", f"Attempt {one.attempts}{_on(one.worker)}", said))
    if one.finished_at is not None:
        ran = (one.finished_at - one.claimed_at).total_seconds() if one.claimed_at else None
        tone = words.state(one.status)
        said = (one.error or "").partition("\n")[0]
        took = f"ran {words.duration(max(0.0, ran))}" if ran is not None else ""
        told.append(Step(one.finished_at, tone, tone, tone.capitalize(), said, took))
    if one.expires is not None and one.finished_at is None:
        told.append(Step(one.expires, "failed", "failed", "Expires", "not delivered after it"))
    if one.visible_at is not None and one.finished_at is None:
        tone = words.state(one.status)
        what = {"running": "Its lease ends", "retry": "Is tried again", "delayed": "Is due"}.get(tone, "Is visible")
        held = f"held by {one.worker}" if tone == "running" and one.worker else ""
        told.append(Step(one.visible_at, tone, tone, what, held or (one.error or "").partition("\n")[0]))
    return told


def _earlier(one: Shown) -> Iterator[Step]:
    """The attempts that did not end it. Of one in hand the attempt that runs is counted, and not among them."""
    is_over = one.finished_at is not None and one.claimed_at is not None
    known = one.history[:-1] if is_over else one.history
    last = one.attempts - (is_over or one.status == "processing")
    for nth, each in enumerate(known, last - len(known) + 1):
        ran = "" if each.start is None else f"ran {words.duration(max(0.0, (each.end - each.start).total_seconds()))}"
        said = (each.error or "").partition("\n")[0]
        yield Step(each.start or each.end, "retry", "retry", f"Attempt {nth}{_on(each.worker)}", said, ran)


def _on(worker: str | None) -> str:
    return f" on {worker}" if worker else ""


@post("/queues/{queue:str}/messages/{id:str}/replay", opt={"role": "operate"})
async def replay(request: Request[Any, Any, Any], queue: FromPath[str], id: FromPath[str]) -> Response[bytes]:
    """A dead letter moves, an archived message is copied."""
    found = await served_of(request).queue(queue)
    status = await found.status(id)
    is_dead = status == "dead"
    count = await (found.dead if is_dead else found.archive).replay([id])
    await audit(request, count)
    where = f"/queues/{queue}/messages?state=ready" if is_dead else f"/queues/{queue}/messages/{id}"
    return to(request, where, "replayed" if is_dead else "copied", count)


@post("/queues/{queue:str}/messages/{id:str}/delete", opt={"role": "operate"})
async def delete(request: Request[Any, Any, Any], queue: FromPath[str], id: FromPath[str]) -> Response[bytes]:
    """Only what has ended."""
    found = await served_of(request).queue(queue)
    is_dead = await found.status(id) == "dead"
    count = await (found.dead if is_dead else found.archive).delete([id])
    await audit(request, count)
    return to(request, f"/queues/{queue}/messages?state={'dead' if is_dead else 'archive'}", "deleted", count)


@post("/queues/{queue:str}/messages/{id:str}/cancel", opt={"role": "operate"})
async def cancel(request: Request[Any, Any, Any], queue: FromPath[str], id: FromPath[str]) -> Response[bytes]:
    """What waits; what runs only where the preview has said so."""
    is_running = (await request.form()).get("running") == "on"
    count = int(await (await served_of(request).queue(queue)).cancel(id, running=is_running))
    await audit(request, count)
    return to(request, f"/queues/{queue}/messages/{id}", "cancelled", count)


@post("/queues/{queue:str}/messages/{id:str}/take-back", opt={"role": "operate"})
async def take_back(request: Request[Any, Any, Any], queue: FromPath[str], id: FromPath[str]) -> Response[bytes]:
    """Its lease ends now."""
    count = await (await served_of(request).queue(queue)).take_back(id)
    await audit(request, count)
    return to(request, f"/queues/{queue}/messages/{id}", "taken", count)


ROUTES = [choose, listed, show, replay, delete, cancel, take_back]
