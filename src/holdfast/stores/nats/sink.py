"""What Spark writes: each task stores its messages as parts of a call, and one batch of the server ends all of them.

A call's parts count together or not at all (`calls.py`). The word that they count, of every task, and the mark that
says which batch of which sink this was, go into one atomic batch: so a batch is there once, and whole.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ...codecs import RAW
from ...errors import ConfigError, HoldfastError, StoreError, UnknownOutcome
from ..batches import Staged
from ..records import Envelope
from . import deadline
from .calls import Call, Mark, read_mark
from .deadline import RETRY_S
from .faults import Code, Lost, Nobody, Refused, mapped
from .fence import Fence
from .partition import Partition
from .reading import Found
from .store import NatsStore
from .wire import BATCH_MESSAGES, Post

if TYPE_CHECKING:
    import pyarrow as pa

    from .parts import Parts

_STAGED = "staged-"  # begins the names of these calls; others are hexadecimal
_SINK = "sink-"  # begins the names of marks
_HELD_S = 3000.0  # staged messages can be published: on buckets it is as long
_MARKED_S = 30 * 86_400.0  # as other stores keep their marks


class SinkMark(msgspec.Struct, frozen=True):
    """The last batch of a sink. It lies among the words of calls as that of one that counts, and is swept like it."""

    until: float
    batch: int
    state: Literal["committed"] = "committed"


_read_sink = msgspec.json.Decoder(SinkMark).decode


class NatsSink:
    """The writing half of `stores/batches.py`."""

    deduplicates = False

    def __init__(self, store: NatsStore) -> None:
        self._store = store

    @contextmanager
    def _verb(self, doing: str) -> Iterator[None]:
        with deadline.within(self._store.options.operation_timeout), mapped(doing):
            yield

    async def stager(self, queue: str) -> NatsStager:
        with self._verb(f"staging for {queue!r}"):
            parts = self._store.parts(queue)
            await parts.partition.info()
            return NatsStager(self._store, parts)

    async def published(self, queue: str, sink: str) -> int | None:
        with self._verb(f"reading a mark of {queue!r}"):
            return _batch(await self._marked(self._store.parts(queue).partition, sink))

    async def _marked(self, partition: Partition, sink: str) -> Found | None:
        return await partition.reader.last_exact(partition.names.task_stream, _subject(partition, sink))

    async def publish(self, queue: str, sink: str | None, batch: int, staged: Sequence[Staged]) -> bool:
        partition = self._store.parts(queue).partition
        calls = [msgspec.json.decode(each.key, type=Call) for each in staged]
        if len(calls) >= BATCH_MESSAGES:
            raise ConfigError(
                f"nats: {len(calls)} tasks wrote to {queue!r}, and a batch of the server has room for "
                f"{BATCH_MESSAGES - 1} of them: coalesce the rows to fewer partitions"
            )
        with self._verb(f"publishing to {queue!r}"):
            is_ours = await self._commit(partition, sink, batch, calls)
        await self._after(partition, calls, is_ours=is_ours)
        return is_ours

    async def _commit(self, partition: Partition, sink: str | None, batch: int, calls: Sequence[Call]) -> bool:
        """All words and the mark; False: the sink has published this batch before."""
        words = [Post(call.subject, _word("committed", call.until), "", call.sequence) for call in calls]
        until, doubt = deadline.until(partition.connection.options.operation_timeout), False
        while True:
            found = None if sink is None else await self._marked(partition, sink)
            if doubt and await self._is_done(partition, calls):
                return True
            last = _batch(found)
            if last is not None and last >= batch:
                return False
            posts = words
            if sink is not None:
                mark = SinkMark(partition.connection.now() + _MARKED_S, batch)
                expect = found.sequence if found is not None else 0
                posts = [*words, Post(_subject(partition, sink), msgspec.json.encode(mark), "", expect)]
            if not posts:
                return True
            try:
                await partition.connection.store(posts)
                return True
            except Refused as error:
                if error.code != Code.WRONG_SEQUENCE:
                    raise
                doubt = await self._must_go_on(partition, sink, found, calls)
            except (Lost, Nobody) as error:
                doubt = True
                if time.monotonic() >= until:
                    raise UnknownOutcome(
                        f"nats: {partition.queue}: nobody said whether a batch was published"
                    ) from error
                await asyncio.sleep(RETRY_S)

    async def _is_done(self, partition: Partition, calls: Sequence[Call]) -> bool:
        """An answer was lost. A word that we alone may write says what came of all; one that is gone says nothing."""
        if not calls:
            return False
        found = await partition.reader.last_exact(partition.names.task_stream, calls[0].subject)
        return found is not None and found.read(read_mark).state == "committed"

    async def _must_go_on(
        self, partition: Partition, sink: str | None, before: Found | None, calls: Sequence[Call]
    ) -> bool:
        """Something was written since we looked: the mark, by another; or it was all of it, by us; else StoreError."""
        if sink is not None:
            found = await self._marked(partition, sink)
            if _sequence(found) != _sequence(before):
                return True
        if await self._is_done(partition, calls):
            return True
        raise StoreError("staged messages are gone: nobody published them in time, or the queue was made anew")

    async def _after(self, partition: Partition, calls: Sequence[Call], *, is_ours: bool) -> None:
        """Tidy up; whoever meets what is left of it does the same."""
        try:
            with self._verb(f"publishing to {partition.queue!r}"):
                for call in calls:
                    await (partition.calls.commit(call) if is_ours else partition.calls.drop(call))
                    deadline.renew()
                if is_ours and calls:
                    partition.enqueued()
                    await partition.note(b"call")
        except HoldfastError:
            pass

    async def discard(self, staged: Sequence[Staged]) -> None:
        """What a write that failed has staged."""
        for each in staged:
            with self._verb(f"discarding in {each.queue!r}"):
                partition = self._store.parts(each.queue).partition
                await partition.calls.drop(msgspec.json.decode(each.key, type=Call))

    async def sweep(self, queue: str, older_than: float) -> int:
        """Calls that nobody ended: their messages are thrown away by whoever meets them."""
        with self._verb(f"sweeping {queue!r}"):
            partition = self._store.parts(queue).partition
            names, swept = partition.names, 0
            for subject in await partition.reader.subjects(names.task_stream, f"{names.call}*"):
                name = subject.removeprefix(names.call)
                found = await partition.reader.last_exact(names.task_stream, subject)
                word = found.note(read_mark) if found is not None and name.startswith(_STAGED) else None
                if found is None or word is None or word.state != "open":
                    continue
                if word.until - _HELD_S <= partition.connection.now() - older_than:
                    await partition.calls.drop(Call(name, subject, word.until, found.sequence))
                    swept += 1
            return swept


class NatsStager:
    """The messages of one task: parts of a call, which begins with the first of them.

    What fails or gets no answer fails the task, and its call never counts: Spark runs the task again.
    """

    def __init__(self, store: NatsStore, parts: Parts) -> None:
        self._store = store
        self._parts = parts
        self._call: Call | None = None
        self._rows = self._size = 0

    async def add(self, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, BATCH_MESSAGES):
            envelopes = list(_envelopes(batch.slice(start, BATCH_MESSAGES)))
            doing = f"staging for {self._parts.partition.queue!r}"
            with deadline.within(self._store.options.operation_timeout), mapped(doing), self._parts.appender.refusing():
                await self._store_all(envelopes)

    async def _store_all(self, envelopes: Sequence[Envelope]) -> None:
        if self._call is None:
            self._call = await _begin(self._parts.partition)
        posts = [post for post, _ in await self._parts.appender.posts(envelopes)]
        await self._parts.partition.connection.store(self._call.marked(posts))
        self._rows += len(posts)
        self._size += sum(len(post.data) for post in posts)

    async def finish(self) -> list[Staged]:
        if self._call is None:
            return []
        key = msgspec.json.encode(self._call).decode()
        return [Staged(self._parts.partition.queue, "", key, self._rows, self._size)]

    async def abandon(self) -> None:
        """The task has failed: nobody need wait until the call's time is over."""
        if self._call is not None:
            with deadline.within(self._store.options.operation_timeout), mapped("abandoning a task"):
                await self._parts.partition.calls.drop(self._call)


async def _begin(partition: Partition) -> Call:
    names, connection = partition.names, partition.connection
    name = _STAGED + os.urandom(8).hex()
    until = connection.now() + _HELD_S
    fence = Fence(connection, partition.reader, partition.reserve, names.task_stream, names.queue)
    [sequence], _ = await fence.write([Post(names.call + name, _word("open", until), "", 0)])
    assert sequence is not None  # nobody else knows the name
    return Call(name, names.call + name, until, sequence)


def _word(state: Literal["open", "committed"], until: float) -> bytes:
    return msgspec.json.encode(Mark(state, until))


def _subject(partition: Partition, sink: str) -> str:
    """Of a mark: the names of sinks are hashes below a word."""
    return f"{partition.names.call}{_SINK}{sink.replace('/', '-')}"


def _batch(found: Found | None) -> int | None:
    return None if found is None else found.read(_read_sink).batch


def _sequence(found: Found | None) -> int:
    return 0 if found is None else found.sequence


def _envelopes(batch: pa.RecordBatch) -> Iterator[Envelope]:
    """The rows of a batch, as `sinking.normal` has brought it into our form."""
    names = set(batch.schema.names)

    def column(name: str, otherwise: Any) -> list[Any]:
        return batch.column(name).to_pylist() if name in names else [otherwise] * batch.num_rows

    rest = zip(column("content_type", RAW), column("headers", None), column("priority", 0), _dues(batch), strict=True)
    for value, (kind, headers, priority, due) in zip(batch.column("value").to_pylist(), rest, strict=True):
        yield Envelope(value, kind, dict(headers) if headers else None, priority or 0, at=due)


def _dues(batch: pa.RecordBatch) -> list[float | None]:
    import pyarrow as pa

    if "deliver_at" not in batch.schema.names:
        return [None] * batch.num_rows
    return [None if each is None else each / 1e6 for each in batch.column("deliver_at").cast(pa.int64()).to_pylist()]
