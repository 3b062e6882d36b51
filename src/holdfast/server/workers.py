"""Workers as their processes report them, for those who may look at their queues."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from litestar import Request, Response, get

from ..broker import Broker
from ..errors import ConfigError
from ..reporter import is_silent
from ..stores.base import DEAD
from ..stores.worker_reports import ProcessReport, WorkerReport
from .replies import holder_of, reply, served_of
from .tokens import Holder

_ID = re.compile("[0-9a-f]{32}")


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """`reported` is false where nobody knows: the store keeps no reports, or none is made on it."""

    reported: bool
    alive: list[ProcessReport] = []
    silent: list[ProcessReport] = []  # said nothing for some minutes


async def found(broker: Broker) -> list[ProcessReport] | None:
    """None: the store keeps no reports."""
    reports = broker.store.worker_reports
    return None if reports is None else await reports.all()


def seen_by(holder: Holder, reports: list[ProcessReport]) -> list[ProcessReport]:
    """Workers of other queues than the holder's are not shown, nor what they run."""
    shown = [msgspec.structs.replace(each, workers=_of(holder, each.workers)) for each in reports]
    return [each for each in shown if each.workers]


def _of(holder: Holder, workers: list[WorkerReport]) -> list[WorkerReport]:
    return [each for each in workers if all(holder.reaches(queue.removesuffix(DEAD)) for queue in each.queues)]


def checked(report: ProcessReport) -> ProcessReport:
    """ConfigError for an id that is none: it becomes a name in the store."""
    if not _ID.fullmatch(report.id):
        raise ConfigError("the id of a process has 32 hex digits")
    return report


async def look(request: Request[Any, Any, Any]) -> Workers:
    """By host and process, those that are alive and those that are not heard of any more."""
    broker = served_of(request).broker
    reports = await found(broker)
    if not reports:  # a bucket gets none unless one asks for it
        return Workers(reported=reports is not None and broker.store.requests() is None)
    shown = sorted(seen_by(holder_of(request), reports), key=lambda each: (each.host, each.pid))
    now = await broker.store.clock()
    return Workers(
        reported=True,
        alive=[each for each in shown if not is_silent(each, now)],
        silent=[each for each in shown if is_silent(each, now)],
    )


@get("/workers", opt={"role": "read"})
async def workers(request: Request[Any, Any, Any]) -> Response[Workers]:
    """Processes with workers, as they reported themselves within the last minutes."""
    return reply(request, await look(request))


ROUTES = [workers]
