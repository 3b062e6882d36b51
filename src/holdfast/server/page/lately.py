"""What a queue did in the last hour, for one row of a table; and what else is known of those that have a problem."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import zip_longest
from typing import Any

import msgspec
from litestar import Request
from markupsafe import Markup

from ...errors import HoldfastError
from ...queue_reports import QueueReport
from ...reporter import is_silent
from .. import workers
from ..history import History, rates
from ..replies import served_of
from ..served import Served
from . import charts, findings, words
from .findings import Finding, Known
from .frame import FEW_ROWS

_MINUTE_S = 60  # of rates, and between two points of a line


class Row(msgspec.Struct, frozen=True):
    """Messages a second, and a line of those that are ready; None: nobody looked yet."""

    came: float | None = None
    done: float | None = None
    line: Markup | None = None


async def rows(request: Request[Any, Any, Any], names: Sequence[str]) -> Mapping[str, Row]:
    """Of these queues."""
    history = served_of(request).history
    return {} if history is None else await asyncio.to_thread(_rows, history, names)


def _rows(history: History, names: Sequence[str]) -> dict[str, Row]:
    return {name: _row(history, name) for name in names}


def _row(history: History, name: str) -> Row:
    recent = [each for each in history.span(name, _MINUTE_S) if each is not None]
    pair = rates([recent[0], recent[-1]])[1] if len(recent) > 1 else None
    came, done = pair if pair is not None else (None, None)
    return Row(came, done, _line(history, name, "pending"))


def _line(history: History, name: str, field: str) -> Markup | None:
    line = charts.of(history.span(name, 3600, coarse=_MINUTE_S), field)
    seen = [each for each in line if each is not None]
    if len(seen) < 2 or not any(seen):
        return None
    word = words.state(field)
    label = f"{name}: {words.number(seen[-1])} {word}, {words.number(max(seen))} at most in the last hour"
    return charts.spark(line, word, label)


async def found(
    request: Request[Any, Any, Any], reports: Sequence[QueueReport], now: datetime
) -> list[tuple[Finding, Markup | None]]:
    """The findings with what is known of their queues, each with its line; those behind the first ones without."""
    served = served_of(request)
    plain = findings.of(reports)
    shown = {each.queue for each in plain[:FEW_ROWS]}
    some = [each for each in reports if each.name in shown]
    known = await _known(served, some)
    full = findings.of(some, known, now)  # in the order of the plain ones: only words differ
    lines = await asyncio.to_thread(_lines, served.history, full[:FEW_ROWS])
    rest = [each for each in plain if each.queue not in shown]
    return [*zip_longest(full, lines), *((each, None) for each in rest)]


def _lines(history: History | None, shown: Sequence[Finding]) -> list[Markup | None]:
    return [None if history is None else _line(history, each.queue, each.line) for each in shown]


async def _known(served: Served, reports: Sequence[QueueReport]) -> dict[str, Known]:
    deaths = await served.deaths.look(served.broker.store, reports)
    waiting = [each.name for each in reports if each.stats.pending]
    manned = await _manned(served, waiting)
    told = await asyncio.to_thread(_told, served.history, waiting)
    return {
        each.name: msgspec.structs.replace(
            told.get(each.name, Known()), has_worker=manned.get(each.name), deaths=deaths.get(each.name)
        )
        for each in reports
    }


def _told(history: History | None, names: Sequence[str]) -> dict[str, Known]:
    if history is None:
        return {}
    ended = {name: history.quiet_since(name) for name in names}
    return {
        name: Known(history.usual_oldest(name), None if at is None else words.moment(at)) for name, at in ended.items()
    }


async def _manned(served: Served, names: Sequence[str]) -> dict[str, bool]:
    """Whether a worker of these queues is alive; empty where workers do not report themselves."""
    store = served.broker.store
    if not names or store.requests() is not None:
        return {}
    try:
        reports = await workers.found(served.broker)
        now = await store.clock()
    except HoldfastError:
        return {}
    if reports is None:
        return {}
    alive = [
        queue for process in reports if not is_silent(process, now) for one in process.workers for queue in one.queues
    ]
    return {name: any(fnmatchcase(name, each) for each in alive) for name in names}
