"""Dead letters by reason: which, how many, still coming; and everything of one reason at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from litestar import Request, Response, get, post
from litestar.params import FromPath, FromQuery

from ...causes import Cause, cause
from ...deliveries import Record
from ...errors import ConfigError, MessageNotFound
from ...queue import Queue
from ...stores.base import PAGE_ROWS
from ..replies import audit, served_of
from ..search import LOOKED_AT, LOOKING_S
from . import words
from .frame import FEW_ROWS, ROWS, page, reports_of, sees, to
from .messages import SAMPLES, Row, row


class Group(msgspec.Struct):
    """Letters of one queue that died of the same."""

    queue: str
    cause: Cause
    ids: list[str]
    first: datetime
    last: datetime
    samples: list[Record[Any]]


class Looked(msgspec.Struct):
    """What was found, and how far the look came."""

    groups: list[Group]
    letters: int
    is_whole: bool


@get("/dead", opt={"role": "read"})
async def show(request: Request[Any, Any, Any], queue: FromQuery[str] = "") -> Response[bytes]:
    """By reason, the most first."""
    dead = [each for each in await reports_of(request) if each.stats.dead]
    reports = sorted(dead, key=lambda each: (-each.stats.dead, each.name))
    chosen = [each.name for each in reports if queue in ("", each.name)]
    looked = await _look(request, chosen)
    total = sum(each.stats.dead for each in reports if each.name in chosen)
    heading = words.plural(total, "dead letter")
    if looked.groups:
        heading += f", {words.plural(len(looked.groups), 'reason')}"
    chips = sorted(reports, key=lambda each: (each.name != queue, -each.stats.dead, each.name))[:FEW_ROWS]
    values = {
        "heading": heading,
        "groups": looked.groups[:ROWS],
        "looked": looked,
        "chips": sorted(chips, key=lambda each: each.name),
        "queues": len(reports),
        "queue": queue,
    }
    return await page(request, "dead.html", title=heading, here="d", **values)


@get("/dead/{queue:str}/{fingerprint:str}", opt={"role": "read"})
async def ask(
    request: Request[Any, Any, Any], queue: FromPath[str], fingerprint: FromPath[str], ask: FromQuery[str] = ""
) -> Response[bytes]:
    """One reason: what would be touched, before anything is."""
    group, is_whole = await _group(request, queue, fingerprint)
    samples: list[Row] = [row(each, **sees(request)) for each in group.samples]
    values = {"group": group, "samples": samples, "ask": ask, "is_whole": is_whole}
    return await page(request, "reason.html", title=group.cause.reason, here="d", **values)


@post("/dead/{queue:str}/{fingerprint:str}/{verb:str}", opt={"role": "operate"})
async def act(
    request: Request[Any, Any, Any], queue: FromPath[str], fingerprint: FromPath[str], verb: FromPath[str]
) -> Response[bytes]:
    """Replay or delete those that the preview has counted: what died since then stays."""
    if verb not in ("replay", "delete"):
        raise ConfigError("a dead letter is replayed or deleted")
    until = _instant(str((await request.form()).get("until", "")))
    group, _ = await _group(request, queue, fingerprint, until)
    dead = (await served_of(request).queue(queue)).dead
    count = await (dead.replay if verb == "replay" else dead.delete)(group.ids)
    await audit(request, count)
    return to(request, "/dead", "replayed" if verb == "replay" else "deleted", count)


def _instant(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError("until: an instant, as the preview gives it") from None
    if found.tzinfo is None:
        raise ConfigError("until: an instant with its zone")
    return found


async def _group(
    request: Request[Any, Any, Any], queue: str, fingerprint: str, until: datetime | None = None
) -> tuple[Group, bool]:
    looked = await _look(request, [queue], until)
    for each in looked.groups:
        if each.cause.fingerprint == fingerprint:
            return each, looked.is_whole
    raise MessageNotFound(f"{queue}: no dead letter has this reason any more")


async def _look(request: Request[Any, Any, Any], names: Sequence[str], until: datetime | None = None) -> Looked:
    """Groups of these queues; after a second, or many letters, it is what was found until then."""
    end, left = time.monotonic() + LOOKING_S, LOOKED_AT
    groups: dict[tuple[str, str], Group] = {}
    letters, is_whole = 0, True
    for name in names:
        queue = await served_of(request).queue(name)
        seen, ended = await _letters(queue, left, end)
        letters, left, is_whole = letters + len(seen), left - len(seen), is_whole and ended
        for each in seen:
            _add(groups, name, each, until)
    return Looked(sorted(groups.values(), key=lambda group: -len(group.ids)), letters, is_whole)


async def _letters(queue: Queue[Any], most: int, end: float) -> tuple[list[Record[Any]], bool]:
    """Dead letters of a queue, and whether these are all."""
    seen: list[Record[Any]] = []
    after: str | None = None
    while len(seen) < most and time.monotonic() < end:
        asked = min(PAGE_ROWS, most - len(seen))
        part = await queue.dead.list(asked, after)
        seen += part
        if len(part) < asked:
            return seen, True
        after = part[-1].id
    return seen, False


def _add(groups: dict[tuple[str, str], Group], queue: str, one: Record[Any], until: datetime | None) -> None:
    died = one.finished_at or one.enqueued_at
    if until is not None and died > until:
        return
    why = cause(one.error or "")
    group = groups.get((queue, why.fingerprint))
    if group is None:
        group = groups[queue, why.fingerprint] = Group(queue, why, [], died, died, [])
    group.ids.append(one.id)
    group.first, group.last = min(group.first, died), max(group.last, died)
    if len(group.samples) < SAMPLES:
        group.samples.append(one)


ROUTES = [show, ask, act]
