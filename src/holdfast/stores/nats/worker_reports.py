"""Reports of processes on JetStream: a message each, in a stream of their own that forgets them after a day."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from ..worker_reports import ProcessReport
from . import deadline, names
from .connection import Connection
from .faults import Code, Ignored, Nobody, mapped
from .queues import Register
from .reading import Found, Reader
from .wire import Post

read_report = msgspec.json.Decoder(ProcessReport).decode


class NatsWorkerReports:
    """See `stores/worker_reports.py` for the promises."""

    def __init__(self, connection: Connection, reader: Reader, register: Register) -> None:
        self._connection = connection
        self._reader = reader
        self._register = register
        self._stream = names.workers_stream(register.prefix)
        self._is_made = False  # the stream, as far as we know: earlier versions made none

    def _subject(self, process: str) -> str:
        return names.worker_subject(self._register.prefix, process)

    async def put(self, report: ProcessReport) -> None:
        with deadline.within(self._connection.options.operation_timeout), mapped("reporting workers"):
            if not report.workers:
                with Ignored(Code.STREAM_NOT_FOUND):
                    await self._connection.api(f"STREAM.PURGE.{self._stream}", {"filter": self._subject(report.id)})
                return
            if not self._is_made:
                await self._register.install(again=True)
            self._is_made = False  # until it is known to be there again
            await self._connection.store([Post(self._subject(report.id), msgspec.json.encode(report))])
            self._is_made = True

    async def all(self) -> list[ProcessReport]:
        timeout = self._connection.options.operation_timeout
        with deadline.within(timeout), mapped("listing workers"):
            found = await self._last()
        return [report for one in found.values() if (report := one.note(read_report)) is not None]

    async def _last(self) -> dict[str, Found]:
        with Ignored(Code.STREAM_NOT_FOUND), suppress(Nobody):
            return await self._reader.last(self._stream, [self._subject("*")])
        return {}
