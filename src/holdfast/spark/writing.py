"""The sink: tasks stage blocks that nobody sees, the driver publishes all of them in one step, once.

The second half of a stream's commit runs in another process than the first, and sees only what tasks sent: so the
messages of tasks carry the ids of query and batch, which tasks find in Spark's local properties.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..errors import ConfigError, HoldfastError
from ..stores.batches import Abandoned, Discarding, Staged, Stager
from . import sinking
from .error_text import plain
from .link import Link, link
from .options import Writing

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


class Message(WriterCommitMessage):
    """What a task staged, and for which sink and batch."""

    def __init__(self, staged: list[Staged], sink: str | None, batch: int) -> None:
        self.staged = staged
        self.sink = sink
        self.batch = batch


class _Task:
    """One task: rows in, staged blocks out."""

    def __init__(self, at: Link, options: Writing) -> None:
        self._at = at
        self._name = options.place.queue
        self._kind = options.content_type
        self._stagers: dict[str, tuple[Stager, int]] = {}

    def stage(self, batches: Iterator[pa.RecordBatch], sink: str | None, batch: int) -> Message:
        try:
            for each in batches:
                if each.num_rows:
                    for name, part in sinking.by_queue(each, self._name):
                        stager, most = self._stager(name)
                        self._at.run(stager.add(sinking.normal(part, most=most, content_type=self._kind)))
            staged = [one for stager, _ in self._stagers.values() for one in self._at.run(stager.finish())]
        except Exception:
            self._abandon()
            raise
        return Message(staged, sink, batch)

    def _abandon(self) -> None:
        """Where what was staged is in the way until its time is over; elsewhere a sweep removes it."""
        for stager, _ in self._stagers.values():
            if isinstance(stager, Abandoned):
                with suppress(HoldfastError):
                    self._at.run(stager.abandon())

    def _stager(self, name: str) -> tuple[Stager, int]:
        if name not in self._stagers:
            queue = self._at.run(self._at.broker.queue(name))
            most = queue.options.max_message_size
            self._stagers[name] = (self._at.run(self._at.sink.stager(name)), most)
        return self._stagers[name]


def _discard(at: Link, messages: Sequence[WriterCommitMessage | None]) -> None:
    """The same for the tasks that had ended when the write failed."""
    sink = at.sink
    if isinstance(sink, Discarding):
        with suppress(HoldfastError):
            at.run(sink.discard([one for each in messages if isinstance(each, Message) for one in each.staged]))


def _publish(at: Link, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Show what the tasks staged; each queue in one step."""
    by_queue: dict[str, list[Staged]] = {}
    told = [each for each in messages if isinstance(each, Message)]
    for message in told:
        for one in message.staged:
            by_queue.setdefault(one.queue, []).append(one)
    for name, staged in by_queue.items():
        at.run(at.sink.publish(name, told[0].sink, told[0].batch, staged))


def _skipped(batches: Iterator[pa.RecordBatch], sink: str | None, batch: int) -> Message:
    for _ in batches:
        pass
    return Message([], sink, batch)


class BatchWriter(DataSourceArrowWriter):
    """A batch write, which happens once for each idempotency key."""

    def __init__(self, options: Writing, schema: StructType) -> None:
        prepared(options, schema)
        self._options = options
        self._sink = None if options.key is None else sink_of(options.key)

    @plain
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        at = link(self._options.place.url)
        name = self._options.place.queue
        if self._sink is not None and name is not None and at.run(at.sink.published(name, self._sink)) is not None:
            return _skipped(iterator, self._sink, 0)
        return _Task(at, self._options).stage(iterator, self._sink, 0)

    @plain
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _publish(link(self._options.place.url), messages)

    @plain
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _discard(link(self._options.place.url), messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """A stream's sink: each batch of a query is published once."""

    def __init__(self, options: Writing, schema: StructType) -> None:
        prepared(options, schema)
        self._options = options

    @plain
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        at = link(self._options.place.url)
        sink, batch = _of_task()
        name = self._options.place.queue
        if name is not None:
            done = at.run(at.sink.published(name, sink))
            if done is not None and done >= batch:
                return _skipped(iterator, sink, batch)
        return _Task(at, self._options).stage(iterator, sink, batch)

    @plain
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _publish(link(self._options.place.url), messages)

    @plain
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _discard(link(self._options.place.url), messages)


def _of_task() -> tuple[str, int]:
    """The query and the batch this task works for."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context is not None else None
    batch = context.getLocalProperty(BATCH_ID) if context is not None else None
    if not query or batch is None:
        raise ConfigError(
            f"Spark does not say which query and batch this is ({QUERY_ID}, {BATCH_ID}): is it version 4.3?"
        )
    return "query/" + _digest(query), int(batch)


def sink_of(key: str) -> str:
    """The name under which the store remembers a batch write."""
    return "key/" + _digest(key)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def prepared(options: Writing, schema: StructType) -> None:
    """Check columns and store, and make the queue where it is missing."""
    sinking.check(schema, named=options.place.queue is not None)
    at = link(options.place.url)
    if "dedup_key" in schema.fieldNames() and not at.sink.deduplicates:
        raise ConfigError(
            "dedup_key: buckets and NATS cannot look keys up in the step that publishes. Drop the column and let "
            "idempotencyKey (of a batch) or the checkpoint (of a stream) keep a repeat out; or write to a queue on "
            "file:// or postgresql://; or enqueue with keys from foreachPartition (docs/guide/spark.md)"
        )
    if options.place.queue is not None:
        at.run(at.broker.queue(options.place.queue))


def refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise ConfigError(
            'a queue is added to, never overwritten: use mode("append"); `holdfast queue purge` empties one'
        )
