"""Reports of processes in the log engine: an object each, outside of every queue."""

from __future__ import annotations

import msgspec

from ...errors import Damaged
from ..worker_reports import ProcessReport
from . import names
from .space import Reading, Space, Transaction

_read = msgspec.json.Decoder(ProcessReport).decode


class LogWorkerReports:
    """See `stores/worker_reports.py` for the promises."""

    def __init__(self, space: Space, *, timeout: float) -> None:
        self._space = space
        self._timeout = timeout

    async def put(self, report: ProcessReport) -> None:
        key, data = names.report_key(report.id), msgspec.json.encode(report)

        def step(tx: Transaction) -> None:
            tx.get(key)  # on a bucket only what was read can be replaced
            if report.workers:
                tx.put(key, data)
            else:
                tx.delete(key)

        await self._space.transact(step, deadline=self._timeout)

    async def all(self) -> list[ProcessReport]:
        return await self._space.read(_all, deadline=self._timeout)


def _all(view: Reading) -> list[ProcessReport]:
    return [report for key in view.list(names.REPORTS) if (report := _report(view, key)) is not None]


def _report(view: Reading, key: str) -> ProcessReport | None:
    """None: gone, of a version that says it otherwise, or damaged; the next report replaces it."""
    try:
        found = view.get(key)
        return None if found is None else _read(found.data)
    except (msgspec.MsgspecError, Damaged):
        return None
