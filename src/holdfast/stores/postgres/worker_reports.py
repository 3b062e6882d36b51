"""Reports of processes in PostgreSQL: rows of the table of consumers that belong to no queue."""

from __future__ import annotations

import msgspec

from ...errors import QueueNotFound
from ..worker_reports import ProcessReport
from .pool import Pool
from .statements import Statements

_read = msgspec.json.Decoder(ProcessReport).decode


class PostgresWorkerReports:
    """See `stores/worker_reports.py` for the promises."""

    def __init__(self, pool: Pool, schema: str) -> None:
        self._pool = pool
        self._sql = Statements(schema)

    async def put(self, report: ProcessReport) -> None:
        if report.workers:
            await self._pool.fetch(self._sql["report_put"], report.id, msgspec.json.encode(report).decode())
        else:
            await self._pool.fetch(self._sql["report_delete"], report.id)

    async def all(self) -> list[ProcessReport]:
        try:
            rows = await self._pool.fetch(self._sql["reports"], queue="")
        except QueueNotFound:  # nothing is installed
            return []
        return [report for row in rows if (report := _report(row[0])) is not None]


def _report(text: str) -> ProcessReport | None:
    """None: of a version that says it otherwise."""
    try:
        return _read(text)
    except msgspec.MsgspecError:
        return None
