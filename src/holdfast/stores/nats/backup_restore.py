"""Queues out of a backup, into JetStream: streams first, the queue's entry last, so that it appears whole."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...errors import QueueExists
from ...v1.task_pb2 import Record, Task, TaskMetadata
from .. import backups
from ..backups import NewQueue, Row, Section
from ..base import DEAD, QueueInfo
from . import appending as appends
from . import deadline, state, tasks, wire
from .backup_spool import Spool, spooled, verb
from .blobs import RESULT
from .connection import WINDOW
from .counters import Entry
from .partition import Partition
from .priority_consumers import nak
from .queues import RESTORED, Register
from .schedules import NatsSchedules
from .wire import Post

if TYPE_CHECKING:
    import pyarrow as pa


class _Queue(msgspec.Struct):
    new: NewQueue
    partition: Partition
    fresh: Spool  # messages that nobody has tried: behind all others in the stream
    waiting: Counter[int]  # by priority: how many stand before them
    due: dict[str, float]  # when those are due that have to wait


class NatsRestoring:
    """See `Restoring`."""

    def __init__(
        self,
        register: Register,
        schedules: NatsSchedules,
        partition: Callable[[str], Partition],
        backup: str,
        queues: Sequence[NewQueue],
        folder: Path,
        timeout: float,
    ) -> None:
        self._register = register
        self._schedules = schedules
        self._partition = partition
        self._backup = backup
        self._new = queues
        self._folder = folder
        self._timeout = timeout
        self._queues: dict[str, _Queue] = {}
        self.done = False

    async def begin(self) -> None:
        with verb("restoring", self._timeout):
            await self._register.install()
            there: dict[str, bool] = {}
            for new in self._new:
                if await self._register.find(new.name) is not None:
                    config = await self._register.config(self._register.names(new.name).task_stream) or {}
                    there[new.name] = (config.get("metadata") or {}).get(RESTORED) == self._backup
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
        marked = {**config, "metadata": {**(config.get("metadata") or {}), RESTORED: self._backup}}
        await self._partition(new.name).connection.api(f"STREAM.UPDATE.{names.task_stream}", marked)
        return _Queue(new, self._partition(new.name), Spool(self._folder / new.name), Counter(), {})

    async def add(self, queue: str, section: Section, rows: pa.Table, file: bytes | None) -> None:
        into = self._queues.get(queue)
        if into is None or not rows.num_rows:
            return  # restored by an earlier attempt
        with verb(f"restoring {queue!r}", self._timeout):
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
        if rows["expires"].null_count < rows.num_rows:
            await partition.lapses.mark()
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
                    history=tasks.attempts(row.history),
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
            expires=row.expires or 0.0,
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
                history=tasks.attempts(row.history),
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
            with verb(f"restoring {queue.new.name!r}", self._timeout):
                await self._hand_out(queue)
                await self._add_fresh(queue)
        for queue in self._queues.values():
            with verb(f"restoring {queue.new.name!r}", self._timeout):
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
            rows = backups.rows_of(await asyncio.to_thread(spooled, part))
            for priority in {row.priority for row in rows}:
                await partition.consumers.ensure(priority, queue.new.options.lease)
            await _store(partition, [await self._task_post(partition, row, 0.0) for row in rows])

    async def _show(self, queue: _Queue) -> None:
        new, partition = queue.new, queue.partition
        counts = msgspec.json.encode(Entry(new.completed, new.failed))
        await partition.connection.store([Post(f"{partition.names.tally}sum", counts, "")])
        await self._schedules.restore(new.name, new.created_at, new.schedules)
        await self._register.restore(QueueInfo(new.name, new.options, new.paused, new.created_at))
        partition.consumers.look_soon()
        partition.wake()
        await partition.note(b"config")


async def _store(partition: Partition, posts: Sequence[Post]) -> None:
    """Each part of them whole; the streams are nobody's yet, so an unanswered part fails the restore."""
    for start in range(0, len(posts), WINDOW):
        await partition.connection.store(posts[start : start + WINDOW])
        deadline.renew()
