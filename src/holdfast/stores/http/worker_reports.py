"""Reports of processes with workers, of a served store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ..worker_reports import ProcessReport

# mypy: no-warn-return-any
# What comes back is of the type that `wire.VERBS` reads it as.


class HttpWorkerReports:
    """See `stores/worker_reports.py` for the promises."""

    def __init__(self, ask: Callable[..., Awaitable[Any]]) -> None:
        self._ask = ask

    async def put(self, report: ProcessReport) -> None:
        await self._ask("report_workers", report)

    async def all(self) -> list[ProcessReport]:
        return await self._ask("worker_reports")
