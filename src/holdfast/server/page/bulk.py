"""Everything that a filter finds, at once: what would be done, doing it, how far it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from litestar import Request, Response, get, post
from litestar.params import FromPath, FromQuery

from ... import admin
from ...deliveries import Record
from ...errors import ConfigError
from .. import jobs, search
from ..jobs import Job
from ..problems import Refused
from ..replies import audit, holder_of, note, served_of
from . import filters, words
from .frame import page, sees, to
from .messages import SAMPLES, row

WORDS = {"replay": "Replay", "delete": "Delete", "cancel": "Cancel", "take-back": "Take back"}
ICONS = {"replay": "replay", "delete": "trash", "cancel": "close", "take-back": "retry"}


@get("/queues/{queue:str}/bulk", opt={"role": "operate"})
async def preview(request: Request[Any, Any, Any], queue: FromPath[str], verb: FromQuery[str] = "") -> Response[bytes]:
    """How many, and five of them, before anything happens."""
    served = served_of(request)
    chosen = filters.read(request, request.query_params)
    jobs.check(chosen.view, verb)
    report = await admin.report(served.broker, queue)
    found = await served.queue(queue)
    hidden = served.settings.redact
    looked = await search.look(served.broker.store, queue, chosen.view, chosen.wanted, hidden=hidden)
    samples = [row(Record(each, found.codec), **sees(request)) for each in looked.messages[:SAMPLES]]
    values = {
        "report": report,
        "chosen": chosen,
        "verb": verb,
        "word": WORDS[verb],
        "icon": ICONS[verb],
        "count": len(looked.messages),
        "looked": looked,
        "total": getattr(report.stats, chosen.count),
        "samples": samples,
        "until": datetime.fromtimestamp(await served.broker.store.clock(), UTC),
    }
    return await page(request, "bulk.html", title=f"{WORDS[verb]} in {queue}", here="m", live=False, **values)


@post("/queues/{queue:str}/bulk", opt={"role": "operate"})
async def start(request: Request[Any, Any, Any], queue: FromPath[str]) -> Response[bytes]:
    """Those that were there when the preview was shown: what comes later stays."""
    served = served_of(request)
    form = {name: str(value) for name, value in (await request.form()).items()}
    chosen = filters.read(request, form)
    verb = jobs.check(chosen.view, form.get("verb", ""))
    seen = search.instant("seen", form.get("seen", ""))
    if seen is None:
        raise ConfigError("seen: the instant that the preview gives")
    wanted = chosen.wanted
    until = seen if wanted.until is None else min(seen, wanted.until)
    report = await admin.report(served.broker, queue)
    job = Job(
        id=jobs.new_id(),
        who=holder_of(request).name,
        queue=queue,
        view=chosen.view,
        verb=verb,
        wanted=msgspec.structs.replace(wanted, until=until),
        total=getattr(report.stats, chosen.count),
        began=datetime.now(UTC),
    )
    await audit(request)

    async def ended(job: Job) -> None:
        served.watch.forget()
        await note(served, job.who, f"{job.verb} {chosen.link} of {queue}: {job.state}", job.done)

    served.jobs.start(await served.queue(queue), job, hidden=served.settings.redact, ended=ended)
    return to(request, f"/jobs/{job.id}")


@get("/jobs", opt={"role": "operate"})
async def listed(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Those since the server was started, the newest first."""
    holder = holder_of(request)
    rows = [each for each in served_of(request).jobs.all() if holder.reaches(each.queue)]
    running = sum(each.state == "running" for each in rows)
    heading = words.plural(len(rows), "bulk job") + (f", {running} running" if running else "")
    return await page(request, "jobs.html", title=heading, here="m", heading=heading, rows=rows, words=WORDS)


@get("/jobs/{id:str}", opt={"role": "operate"})
async def show(request: Request[Any, Any, Any], id: FromPath[str]) -> Response[bytes]:
    job = _reached(request, id)
    title = f"{WORDS[job.verb]} in {job.queue}"
    return await page(request, "job.html", title=title, here="m", job=job, word=WORDS[job.verb])


@post("/jobs/{id:str}/stop", opt={"role": "operate"})
async def stop(request: Request[Any, Any, Any], id: FromPath[str]) -> Response[bytes]:
    job = _reached(request, id)
    await served_of(request).jobs.stop(job.id)
    await audit(request, job.done)
    return to(request, f"/jobs/{id}", "stopped")


def _reached(request: Request[Any, Any, Any], id: str) -> Job:
    job = served_of(request).jobs.find(id)
    if job is None:
        raise Refused(404, "no such job", "it was long ago, or before the server was started")
    if not holder_of(request).reaches(job.queue):
        raise Refused(403, "not allowed", "this token is for other queues")
    return job


ROUTES = [preview, start, listed, show, stop]
