"""A process with workers says so in its store: who, where, which queues, what runs. One write a minute for all."""

from __future__ import annotations

import asyncio
import os
import socket
import weakref
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

from msgspec.structs import replace

from .errors import HoldfastError
from .escaping import logger_named
from .stores.worker_reports import ProcessReport

if TYPE_CHECKING:
    from .config import StoreOptions
    from .lifetime import Lifetime
    from .stores.base import Store
    from .stores.worker_reports import WorkerReports

_LOG = logger_named("holdfast.worker")
REPORT_S = 60.0  # between two reports of a process: one that is silent for some of them is gone
_NEWS_S = 5.0  # from the start or end of a worker to the report that tells it: several start together


def is_wanted(store: Store, options: StoreOptions) -> bool:
    """Whether workers say that they run: where the store keeps that, and a write costs nothing or is asked for."""
    asked = options.report_workers
    return store.worker_reports is not None and (store.requests() is None if asked is None else asked)


def is_silent(report: ProcessReport, now: float) -> bool:
    """Whether it said nothing for some minutes: it was killed, or cannot reach the store."""
    return report.at < now - 3 * REPORT_S


async def alive(store: Store) -> list[ProcessReport] | None:
    """Processes with workers that were heard of within the last minutes; None: nobody reports on this store."""
    reports = None if store.worker_reports is None else await store.worker_reports.all()
    if not reports:  # a bucket gets none unless one asks for it
        return None if reports is None or store.requests() is not None else []
    now = await store.clock()
    return [each for each in reports if not is_silent(each, now)]


class Reporter:
    """Of one broker. A timer runs while there are workers; it does not keep a broker that was dropped."""

    def __init__(self, life: Lifetime) -> None:
        self._life = weakref.ref(life)
        self._id = uuid4().hex
        self._started_at: float | None = None  # by the store's clock; None: nothing was said yet
        self._due = 0.0  # of the timer, by the loop's clock
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """A worker has started or ended."""
        loop = asyncio.get_running_loop()
        if self._timer is not None and self._due > loop.time() + _NEWS_S:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and self._task is None:
            self._wait(_NEWS_S)

    def _wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + seconds
        self._timer = loop.call_at(self._due, self._begin)

    def _begin(self) -> None:
        self._timer, self._task = None, asyncio.ensure_future(self._report())

    async def _report(self) -> None:
        life = self._life()
        if life is None or life.gone is not None:
            return
        reports = life.store.worker_reports
        if reports is None:
            return
        try:
            await self._say(life, reports)
        except HoldfastError as error:  # the store is away, or does not let us: nothing depends on it
            _LOG.debug("workers could not be reported: %s", error)
        finally:
            self._task = None
        if life.workers:
            self._wait(REPORT_S)

    async def _say(self, life: Lifetime, reports: WorkerReports) -> None:
        if self._started_at is None and not life.workers:
            return
        now = await life.store.clock()
        if self._started_at is None:
            self._started_at = now
            for each in await reports.all():
                if each.at < now - timedelta(days=1).total_seconds():  # it was killed
                    await reports.put(_without_workers(each))
        report = self._told(life, now, self._started_at)
        await reports.put(report)
        if not report.workers:
            self._started_at = None

    def _told(self, life: Lifetime, now: float, started_at: float) -> ProcessReport:
        return ProcessReport(
            id=self._id,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=_version(),
            started_at=started_at,
            at=now,
            workers=[report for worker in life.workers if (report := worker._report()) is not None],
        )

    async def close(self, seconds: float) -> None:
        """No more of it; what was said is taken back."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=seconds)
        life = self._life()
        if self._started_at is None or life is None or (reports := life.store.worker_reports) is None:
            return
        try:
            async with asyncio.timeout(seconds):
                await reports.put(_without_workers(self._told(life, self._started_at, self._started_at)))
        except (HoldfastError, TimeoutError) as error:
            _LOG.debug("a report of workers is left behind: %s", error)


def _without_workers(report: ProcessReport) -> ProcessReport:
    return replace(report, workers=[])


def _version() -> str:
    from . import __version__  # above us, and there once somebody asks

    return __version__
