"""Backup and restore of queues in JetStream; see `stores/backups.py` for the promises.

There is no snapshot of several streams. Records of ended messages are read first, then tasks with their records, then
the records that were written meanwhile; where a message was seen first, there it is. So each is in one state, of a time
between the begin and the end of the copy of its queue. A queue that is restored has streams, and appears when its entry
is written.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...errors import QueueExists, QueueNotFound
from ...v1.task_pb2 import Record, Task, TaskMetadata
from .. import backups
from ..backups import NewQueue, Part, QueueCopy, Row, Section
from ..base import DEAD, QueueInfo
from . import appending as appends
from . import deadline, state, tasks, wire
from .blobs import RESULT
from .connection import WINDOW
from .counters import Entry
from .faults import mapped
from .names import id_of
from .partition import Partition
from .priority_consumers import nak
from .queues import Register
from .reading import Found
from .wire import Post

if TYPE_CHECKING:
    import pyarrow as pa

_FILE_ROWS_MOST = 10_000  # of one file of a backup
_TABLE_BYTES = 16 << 20  # the same for large messages: a table is in memory whole
_MARK = "holdfast_restored_from"  # in the metadata of the stream of tasks


class NatsBackups:
    """Of one store."""

    one_instant = False

    def __init__(self, register: Register, partition: Callable[[str], Partition], timeout: float) -> None:
        self._register = register
        self._partition = partition
        self._timeout = timeout

    @asynccontextmanager
    async def snapshot(self, queues: Sequence[str]) -> AsyncIterator[NatsSnapshot]:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-backup-"))
        try:
            snapshot = NatsSnapshot(folder, self._timeout)
            for name in queues:
                await snapshot.copy(self._partition(name))
            yield snapshot
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @asynccontextmanager
    async def restoring(self, backup: str, queues: Sequence[NewQueue]) -> AsyncIterator[NatsRestoring]:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-restore-"))
        try:
            restoring = NatsRestoring(self._register, self._partition, backup, queues, folder, self._timeout)
            await restoring.begin()
            yield restoring
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _verb(doing: str, timeout: float) -> Iterator[None]:
    with deadline.within(timeout), mapped(doing):
        yield


class _Spool:
    """Rows on their way, in files: there may be more than fit into memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: list[Row] = []
        self._size = 0
        self._count = 0
        self.parts: list[Part] = []

    def add(self, row: Row) -> None:
        self._waiting.append(row)
        self._size += len(row.value) + len(row.result or b"")
        if len(self._waiting) >= _FILE_ROWS_MOST or self._size >= _TABLE_BYTES:
            self.write()

    def write(self) -> None:
        if self._waiting:
            self.keep(backups.table(self._waiting))
            self._waiting, self._size = [], 0

    def keep(self, table: pa.Table) -> None:
        import pyarrow as pa

        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{len(self.parts)}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        self.parts.append(Part("", table.num_rows, path))


def _spooled(part: Part) -> pa.Table:
    import pyarrow as pa

    with pa.OSFile(str(part.body), "rb") as file:
        return pa.ipc.open_file(file).read_all()


class NatsSnapshot:
    """See `Snapshot`."""

    def __init__(self, folder: Path, timeout: float) -> None:
        self._folder = folder
        self._timeout = timeout
        self.queues: list[QueueCopy] = []

    async def copy(self, partition: Partition) -> None:
        with _verb(f"backing up {partition.queue!r}", self._timeout):
            try:
                info = await partition.info()
            except QueueNotFound:
                return
            copying = _Copying(partition, info, self._folder / str(len(self.queues)))
            self.queues.append(await copying.run())

    async def read(self, queue: QueueCopy, section: Section, part: Part) -> AsyncIterator[pa.Table | bytes]:
        yield await asyncio.to_thread(_spooled, part) if isinstance(part.body, Path) else part.body


class _Copying:
    """One queue."""

    def __init__(self, partition: Partition, info: QueueInfo, folder: Path) -> None:
        self._partition = partition
        self._info = info
        self._seen: set[str] = set()
        self._spools = {section: _Spool(folder / section) for section in ("open", "dead", "archive")}

    async def run(self) -> QueueCopy:
        partition = self._partition
        at = partition.connection.now()
        last = await self._ended(1)
        await self._tasks()
        await self._ended(last + 1)
        parts: dict[Section, list[Part]] = {"keys": await self._keys()}
        for section, spool in self._spools.items():
            spool.write()
            parts[section] = spool.parts  # type: ignore[index]  # a section
        counts, _, _ = await partition.counters.read()
        return QueueCopy(info=self._info, at=at, completed=counts.completed, failed=counts.failed, parts=parts)

    async def _ended(self, start: int) -> int:
        """Dead letters and the archive, from a place of the stream of records on; the last place."""
        names, last = self._partition.names, start - 1
        while page := await self._partition.reader.run(names.done_stream, f"{names.done}*", last + 1, WINDOW):
            for one in page:
                record = tasks.read_record(one.data)
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

    async def _tasks(self) -> None:
        """What has not ended, in the order of the stream."""
        partition, names, start = self._partition, self._partition.names, 1
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

    async def _add_open(self, one: Found, id: str, record: Record | None) -> None:
        if record is not None and record.place != state.LIVE:
            return  # it has ended: its record tells
        task = tasks.read_task(one.data)
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
        )

    async def _keys(self) -> list[Part]:
        partition, names = self._partition, self._partition.names
        now, found = partition.connection.now(), list[backups.Key]()
        for one in await partition.reader.run(names.task_stream, f"{names.key}*", 1, 1 << 30):
            key = msgspec.json.decode(one.data, type=appends.Key)
            counts = not key.call or await partition.calls.verdict(key.call) == "counts"
            if counts and key.until > now:
                found.append(backups.Key(bytes.fromhex(id_of(one.subject)), key.id, key.until - now))
        return [Part("", len(found), backups.keys_table(found))] if found else []


# Restoring.


class _Queue(msgspec.Struct):
    new: NewQueue
    partition: Partition
    fresh: _Spool  # messages that nobody has tried: behind all others in the stream
    waiting: Counter[int]  # by priority: how many stand before them
    due: dict[str, float]  # when those are due that have to wait


class NatsRestoring:
    """See `Restoring`."""

    def __init__(
        self,
        register: Register,
        partition: Callable[[str], Partition],
        backup: str,
        queues: Sequence[NewQueue],
        folder: Path,
        timeout: float,
    ) -> None:
        self._register = register
        self._partition = partition
        self._backup = backup
        self._new = queues
        self._folder = folder
        self._timeout = timeout
        self._queues: dict[str, _Queue] = {}
        self.done = False

    async def begin(self) -> None:
        with _verb("restoring", self._timeout):
            await self._register.install()
            there: dict[str, bool] = {}
            for new in self._new:
                if await self._register.find(new.name) is not None:
                    config = await self._register.config(self._register.names(new.name).task_stream) or {}
                    there[new.name] = (config.get("metadata") or {}).get(_MARK) == self._backup
            if taken := [name for name, ours in there.items() if not ours]:
                raise QueueExists(backups.in_the_way(taken))
            self.done = len(there) == len(self._new)
            for new in self._new:
                if new.name not in there:
                    self._queues[new.name] = await self._begun(new)

    async def _begun(self, new: NewQueue) -> _Queue:
        names = self._register.names(new.name)
        for stream in names.streams():  # of no queue: what an earlier attempt left
            await self._register.drop_stream(stream)
        await self._register.make_streams(new.name)
        config = await self._register.config(names.task_stream) or {}
        marked = {**config, "metadata": {**(config.get("metadata") or {}), _MARK: self._backup}}
        await self._partition(new.name).connection.api(f"STREAM.UPDATE.{names.task_stream}", marked)
        return _Queue(new, self._partition(new.name), _Spool(self._folder / new.name), Counter(), {})

    async def add(self, queue: str, section: Section, rows: pa.Table, file: bytes | None) -> None:
        into = self._queues.get(queue)
        if into is None or not rows.num_rows:
            return  # restored by an earlier attempt
        with _verb(f"restoring {queue!r}", self._timeout):
            if section == "keys":
                await self._add_keys(into, backups.keys_of(rows))
            elif section == "open":
                await self._add_open(into, rows)
            else:
                await self._add_ended(into, backups.rows_of(rows), dead=section == "dead")

    async def _add_open(self, into: _Queue, rows: pa.Table) -> None:
        import pyarrow.compute as pc

        fresh = pc.and_(pc.is_null(rows["due"]), pc.equal(rows["attempts"], 0))
        await asyncio.to_thread(into.fresh.keep, rows.filter(fresh))
        found = backups.rows_of(rows.filter(pc.invert(fresh)))
        partition, now = into.partition, into.partition.connection.now()
        posts: list[Post] = []
        records: list[Post] = []
        for row in found:
            due = row.due if row.due is not None and row.due > now else 0.0
            into.waiting[row.priority] += 1
            into.due[row.id] = due
            posts.append(await self._task_post(partition, row, 0.0 if row.attempts else due))
            if row.attempts:
                record = Record(
                    format=tasks.FORMAT,
                    attempts=row.attempts,
                    visible_at=due or now,
                    retrying=True,
                    recovered=row.crashed,
                    error=row.error,
                    worker=row.worker,
                )
                records.append(Post(partition.names.done + row.id, record.SerializeToString(), "", 0))
        await _store(partition, records)
        await _store(partition, posts)

    async def _task(self, partition: Partition, row: Row, due: float) -> Task:
        task = Task(
            id=row.id,
            data=row.value,
            metadata=TaskMetadata(priority=row.priority, timestamp=round(row.enqueued_at * 1000)),
            content_type=row.content_type,
            headers=row.headers,
            max_attempts=row.own_max_attempts or 0,
            due=due,
            format=tasks.FORMAT,
        )
        if not partition.blobs.fits(task.ByteSize()):
            task.blob = await partition.blobs.put(task.id, task.data)
            task.data = b""
        return task

    async def _task_post(self, partition: Partition, row: Row, due: float) -> Post:
        task = await self._task(partition, row, due)
        return Post(partition.names.task_of(row.priority, row.id, later=due > 0), task.SerializeToString(), "", 0)

    async def _add_ended(self, into: _Queue, rows: Sequence[Row], *, dead: bool) -> None:
        partition = into.partition
        records: list[Post] = []
        letters: list[Post] = []
        for row in rows:
            task = await self._task(partition, row, 0.0)
            record = Record(
                task=task,
                format=tasks.FORMAT,
                place=state.DEAD if dead else state.ARCHIVE,
                status="" if dead else row.status,
                attempts=row.attempts,
                finished_at=row.finished_at or 0.0,
                visible_at=(row.finished_at or 0.0) if dead else 0.0,
                claimed_at=row.claimed_at or 0.0,
                error=None if row.error is None else state.cut(row.error),
                worker=row.worker,
            )
            if row.result is not None:
                if partition.blobs.fits(record.ByteSize() + len(row.result)):
                    record.result = row.result
                else:
                    record.result_blob = await partition.blobs.put(row.id + RESULT, row.result)
            records.append(Post(partition.names.done + row.id, record.SerializeToString(), "", 0))
            if dead:
                letters.append(Post(f"{partition.names.dead}{row.priority}.{row.id}", task.SerializeToString(), "", 0))
        await _store(partition, records)
        if letters:
            consumers = self._partition(into.new.name + DEAD).consumers
            for priority in {row.priority for row in rows}:
                await consumers.ensure(priority, into.new.options.lease)
            await _store(partition, letters)

    async def _add_keys(self, into: _Queue, found: Sequence[backups.Key]) -> None:
        connection, names = into.partition.connection, into.partition.names
        now = connection.now()
        await _store(
            into.partition,
            [
                appends.key_post(connection, names.key + key.hash.hex(), appends.Key(key.id, now + key.left), 0)
                for key in found
            ],
        )

    async def finish(self) -> None:
        for queue in self._queues.values():
            with _verb(f"restoring {queue.new.name!r}", self._timeout):
                await self._hand_out(queue)
                await self._add_fresh(queue)
        for queue in self._queues.values():
            with _verb(f"restoring {queue.new.name!r}", self._timeout):
                await self._show(queue)
        self.done = True

    async def _hand_out(self, queue: _Queue) -> None:
        """What waits, or was tried, is given back by its consumer as if it had been: then everybody counts it right."""
        partition = queue.partition
        for priority in sorted({0, *queue.waiting}):
            await partition.consumers.ensure(priority, queue.new.options.lease)
        for priority, count in queue.waiting.items():
            consumer = partition.consumers.consumer(priority)
            left = count
            while left > 0:
                handed = await consumer.fetch(min(left, WINDOW))
                now = partition.connection.now()
                words = [wire.frame(one.ack, nak(queue.due.get(one.id, 0.0) - now)) for one in handed]
                await partition.connection.say(b"".join(words))
                left -= len(handed)
                if handed:
                    deadline.renew()
                elif deadline.is_over():
                    break  # whoever claims does it

    async def _add_fresh(self, queue: _Queue) -> None:
        partition = queue.partition
        for part in queue.fresh.parts:
            rows = backups.rows_of(await asyncio.to_thread(_spooled, part))
            for priority in {row.priority for row in rows}:
                await partition.consumers.ensure(priority, queue.new.options.lease)
            await _store(partition, [await self._task_post(partition, row, 0.0) for row in rows])

    async def _show(self, queue: _Queue) -> None:
        new, partition = queue.new, queue.partition
        counts = msgspec.json.encode(Entry(new.completed, new.failed))
        await partition.connection.store([Post(f"{partition.names.tally}sum", counts, "")])
        await self._register.restore(QueueInfo(new.name, new.options, new.paused, new.created_at))
        partition.consumers.look_soon()
        partition.wake()
        await partition.note(b"config")


async def _store(partition: Partition, posts: Sequence[Post]) -> None:
    """Each part of them whole; the streams are nobody's yet, so an unanswered part fails the restore."""
    for start in range(0, len(posts), WINDOW):
        await partition.connection.store(posts[start : start + WINDOW])
        deadline.renew()
