"""Queues in JetStream on their way into a backup; `backups.py` says in which order they are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import QueueNotFound
from ...v1.task_pb2 import Record, Task
from .. import backups
from ..backups import Changed, Part, QueueCopy, Row, Section
from ..base import QueueInfo
from ..scheduling import Scheduled
from . import appending as appends
from . import deadline, state, tasks
from .backup_spool import Spool, spooled, verb
from .connection import TRIES, WINDOW
from .names import id_of
from .partition import Partition
from .reading import Found
from .schedules import NatsSchedules

if TYPE_CHECKING:
    import pyarrow as pa


class NatsSnapshot:
    """See `Snapshot`."""

    def __init__(self, folder: Path, schedules: NatsSchedules, timeout: float) -> None:
        self._folder = folder
        self._schedules = schedules
        self._timeout = timeout
        self.queues: list[QueueCopy] = []

    async def copy(self, partition: Partition) -> None:
        with verb(f"backing up {partition.queue!r}", self._timeout):
            try:
                info = await partition.info()
            except QueueNotFound:
                return
            copying = _Copying(partition, info, self._schedules, self._folder / str(len(self.queues)))
            self.queues.append(await copying.run())

    async def read(self, queue: QueueCopy, section: Section, part: Part) -> AsyncIterator[pa.Table | bytes]:
        yield await asyncio.to_thread(spooled, part) if isinstance(part.body, Path) else part.body


class _Copying:
    """One queue."""

    def __init__(self, partition: Partition, info: QueueInfo, schedules: NatsSchedules, folder: Path) -> None:
        self._partition = partition
        self._info = info
        self._schedules = schedules
        self._seen: set[str] = set()
        self._spools = {section: Spool(folder / section) for section in ("open", "dead", "archive")}

    async def run(self) -> QueueCopy:
        partition = self._partition
        at = partition.connection.now()
        last = await self._ended(1)
        scheduled = await self._rest(await self._tasks(1), last + 1)
        parts: dict[Section, list[Part]] = {"keys": await self._keys()}
        for section, spool in self._spools.items():
            spool.write()
            parts[section] = spool.parts  # type: ignore[index]  # a section
        counts, _, _ = await partition.counters.read()
        return QueueCopy(
            info=self._info,
            at=at,
            completed=counts.completed,
            failed=counts.failed,
            schedules=scheduled,
            parts=parts,
        )

    async def _rest(self, task: int, ended: int) -> list[Scheduled]:
        """What came meanwhile, and the schedules: their marks tell of exactly those fires whose messages are copied."""
        for _ in range(TRIES):
            found, before = await self._schedules.copied(self._info.name)
            task = await self._tasks(task)
            ended = await self._ended(ended) + 1
            if (await self._schedules.marks_of(self._info.name))[1] == before:
                return found
        raise Changed

    async def _ended(self, start: int) -> int:
        """Dead letters and the archive, from a place of the stream of records on; the last place."""
        names, last = self._partition.names, start - 1
        while page := await self._partition.reader.run(names.done_stream, f"{names.done}*", last + 1, WINDOW):
            for one in page:
                record = one.read(tasks.read_record)
                if not record.gone and record.place != state.LIVE and record.HasField("task"):
                    await self._add_ended(record)
            last = page[-1].sequence
            deadline.renew()
        return last

    async def _add_ended(self, record: Record) -> None:
        if record.task.id in self._seen:
            return
        self._seen.add(record.task.id)
        dead = record.place == state.DEAD
        row = await self._row(record.task, record, "dead" if dead else record.status)
        self._spools["dead" if dead else "archive"].add(row)

    async def _tasks(self, start: int) -> int:
        """What has not ended, from a place of the stream of tasks on, in its order; the place behind the last."""
        partition, names = self._partition, self._partition.names
        while page := await partition.reader.run(names.task_stream, f"{names.task}*.>", start, WINDOW):
            ids = [id_of(one.subject) for one in page]
            records = await partition.records(ids)
            unrecorded = [id for id in ids if id not in records]
            traces = await partition.traces(unrecorded) if unrecorded else {}
            for one, id in zip(page, ids, strict=True):
                if id not in self._seen and id not in traces:
                    await self._add_open(one, id, records[id][1] if id in records else None)
            start = page[-1].sequence + 1
            deadline.renew()
        return start

    async def _add_open(self, one: Found, id: str, record: Record | None) -> None:
        if record is not None and record.place != state.LIVE:
            return  # it has ended: its record tells
        task = one.read(tasks.read_task)
        if task.call and await self._partition.calls.verdict(task.call) != "counts":
            return
        self._seen.add(id)
        now = self._partition.connection.now()
        due = 0.0 if record is not None and record.token else state.wait_until(record, task)
        attempts = 0 if record is None else record.attempts
        row = await self._row(task, record, "pending" if due <= now else "retry" if attempts else "delayed")
        row.due = due if due > now else None
        if record is not None:
            row.held = bool(record.token)
            row.crashed = record.recovered or (row.held and record.lease_end <= now)
            row.finished_at = row.claimed_at = None
        self._spools["open"].add(row)

    async def _row(self, task: Task, record: Record | None, status: str) -> Row:
        rest, blobs = record or Record(), self._partition.blobs
        result = rest.result if rest.HasField("result") else None
        if rest.result_blob:
            result = await blobs.get(rest.result_blob)
        return Row(
            id=task.id,
            status=status,  # type: ignore[arg-type]  # one of them
            value=await blobs.payload(task),
            content_type=tasks.content_type(task),
            headers=tasks.headers(task),
            priority=task.metadata.priority,
            attempts=rest.attempts,
            own_max_attempts=task.max_attempts or None,
            enqueued_at=tasks.enqueued_at(task),
            claimed_at=rest.claimed_at or None,
            finished_at=rest.finished_at or None,
            result=result,
            error=rest.error if rest.HasField("error") else None,
            worker=rest.worker if rest.HasField("worker") else None,
            expires=task.expires or None,
            history=tasks.history(rest),
        )

    async def _keys(self) -> list[Part]:
        partition, names = self._partition, self._partition.names
        now, found = partition.connection.now(), list[backups.Key]()
        for one in await partition.reader.run(names.task_stream, f"{names.key}*", 1, 1 << 30):
            if one.subject in (names.marks, names.expiring):
                continue
            key = one.read(appends.read_key)
            counts = not key.call or await partition.calls.verdict(key.call) == "counts"
            if counts and key.until > now:
                found.append(backups.Key(bytes.fromhex(id_of(one.subject)), key.id, key.until - now))
        return [Part("", len(found), backups.keys_table(found))] if found else []
