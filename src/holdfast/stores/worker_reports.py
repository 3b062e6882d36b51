"""What processes with workers say of themselves: an optional part of a store, cheap, and nothing depends on it."""

from __future__ import annotations

from typing import Protocol

import msgspec


class RunningMessage(msgspec.Struct, frozen=True):
    """A message whose handler ran when its process reported."""

    queue: str
    id: str
    seconds: float  # for which it had run


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """One worker of a process."""

    id: str  # under which it claims
    queues: list[str]
    slots: int  # handlers at once
    busy: int  # of these
    running: list[RunningMessage] = []  # the longest of them first; not all where there are many


class ProcessReport(msgspec.Struct, frozen=True, kw_only=True):
    """A process with workers, as it was when it said so."""

    id: str  # 32 hex digits
    host: str
    pid: int
    version: str
    started_at: float  # by the store's clock, in seconds since 1970
    at: float
    workers: list[WorkerReport]


class WorkerReports(Protocol):
    """What a store that keeps such reports has as its `worker_reports`."""

    async def put(self, report: ProcessReport) -> None:
        """In place of what this process said before; one without workers is forgotten."""

    async def all(self) -> list[ProcessReport]:
        """Of every process, also of those that ended without a word."""
