"""Blocks that executors write and nobody sees, until the driver publishes all of them in one step."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ....errors import QueueFull, StoreError
from ....ids import Ids
from ...batches import Staged
from .. import arrow, queues, rows
from ..edit import Session
from ..names import BlockName
from ..partition import Log
from ..space import Space
from ..staging import Staging
from ..topics import work_topic

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_ROWS = 4000
BLOCK_BYTES = 4 << 20
_WRITING = 4  # blocks on their way to the disk
_LATE = 0.02  # the part of its delay by which a message may be late, so that neighbours share a block
_Kind: TypeAlias = tuple[int, float, bool]  # priority, due (0: at once, < 0: of the calendar), with dedup keys


class _Draft(msgspec.Struct):
    batches: list[Any] = []
    rows: int = 0
    size: int = 0


class Stager:
    """Turns record batches into staged blocks of one queue; for one task."""

    def __init__(self, space: Space, queue: str, root: str, maker: Ids, staging: Staging) -> None:
        self._space = space
        self._queue = queue
        self._root = root
        self._ids = maker
        self._folder = staging.folder(maker.block(space.clock()))
        self._drafts: dict[_Kind, _Draft] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._staged: list[Staged] = []

    async def add(self, batch: pa.RecordBatch) -> None:
        """Rows with `value` and some of content_type, headers, priority, deliver_at, dedup_key."""
        calendar = self._space.calendar()
        for kind, part in _by_kind(batch, calendar.wall(self._space.clock()), keyed=calendar.keyed):
            for some in _bounded(part):
                await self._gather(kind, some)

    async def _gather(self, kind: _Kind, some: pa.RecordBatch) -> None:
        draft = self._drafts.setdefault(kind, _Draft())
        if draft.rows + some.num_rows > BLOCK_ROWS or draft.size + some.nbytes > BLOCK_BYTES:
            await self._write(kind)
            draft = self._drafts.setdefault(kind, _Draft())
        draft.batches.append(some)
        draft.rows += some.num_rows
        draft.size += some.nbytes

    async def finish(self) -> list[Staged]:
        """Everything that was added, durable; in order."""
        for kind in list(self._drafts):
            await self._write(kind)
        await self._wait(0)
        return sorted(self._staged, key=lambda each: each.key)

    async def _write(self, kind: _Kind) -> None:
        draft = self._drafts.pop(kind, None)
        if draft is None or not draft.rows:
            return
        priority, due, _ = kind
        block = self._ids.block(self._space.clock(), priority, carried=due != 0 or self._folder != "")
        name = BlockName(f"{block:032x}", draft.rows, priority, 0, 0)
        key = self._folder + (name.later_key(due) if due else name.inbox_key())
        await self._wait(_WRITING - 1)
        self._writing.add(asyncio.create_task(self._put(key, draft)))

    async def _put(self, key: str, draft: _Draft) -> None:
        data, keys = await asyncio.to_thread(_encoded, draft.batches)
        await self._space.write_file(self._root + key, data)
        self._staged.append(Staged(self._queue, self._root, key, draft.rows, len(data), keys))

    async def _wait(self, most: int) -> None:
        """Until at most so many blocks are on their way."""
        while len(self._writing) > most:
            done, self._writing = await asyncio.wait(self._writing, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()


def _bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Pieces that fit a block; a message larger than that is one by itself."""
    rows = batch.num_rows
    each = max(1, min(BLOCK_ROWS, int(BLOCK_BYTES // max(1.0, batch.nbytes / max(1, rows)))))
    for start in range(0, rows, each):
        yield batch.slice(start, each)


def _by_kind(batch: pa.RecordBatch, now: float, *, keyed: bool) -> Iterator[tuple[_Kind, pa.RecordBatch]]:
    """Rows that can share a block."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = set(batch.schema.names)
    count = batch.num_rows
    priorities = batch.column("priority").fill_null(0) if "priority" in names else pa.repeat(0, count)
    dues = _dues(batch.column("deliver_at"), now, keyed=keyed) if "deliver_at" in names else pa.repeat(0.0, count)
    keyed = pc.is_valid(batch.column("dedup_key")) if "dedup_key" in names else pa.repeat(False, count)
    kinds = {(p.as_py(), d.as_py(), k.as_py()) for p, d, k in _distinct(priorities, dues, keyed)}
    plain = batch.select([name for name in batch.schema.names if name not in ("priority", "deliver_at")])
    if len(kinds) == 1:
        yield kinds.pop(), plain
        return
    for kind in sorted(kinds, key=lambda kind: (kind[0], abs(kind[1]), kind[2])):  # the soonest has the first ids
        same = [pc.equal(column, value) for column, value in zip((priorities, dues, keyed), kind, strict=True)]
        yield kind, plain.filter(pc.and_(pc.and_(same[0], same[1]), same[2]))


def _distinct(*columns: pa.Array) -> Iterator[tuple[Any, ...]]:
    import pyarrow as pa

    names = [str(place) for place in range(len(columns))]
    table = pa.table(list(columns), names=names).group_by(names).aggregate([])
    yield from zip(*(table.column(name) for name in names), strict=True)


def _dues(instants: pa.Array, now: float, *, keyed: bool) -> pa.Array:
    """When each is visible, as a key takes it; a little later where that lets neighbours share a block."""
    import pyarrow as pa

    found = []
    for instant in instants.cast(pa.int64()).to_pylist():
        due = (instant or 0) / 1e6
        if due <= now:
            found.append(0.0)
            continue
        step = 2.0 ** math.floor(math.log2(max(1.0, (due - now) * _LATE)))
        due = math.ceil(due / step) * step
        found.append(-due if keyed else due)
    return arrow.column(found, pa.float64())


def _encoded(batches: list[Any]) -> tuple[Any, list[str | None] | None]:
    """The bytes of a block, and the dedup keys of its rows."""
    import pyarrow as pa

    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    keys = None
    if "dedup_key" in batch.schema.names:
        column = batch.column("dedup_key")
        keys = column.to_pylist() if column.null_count < len(column) else None
    return rows.of_columns(batch.column("value"), *(_column(batch, name) for name in ("content_type", "headers"))), keys


def _column(batch: pa.RecordBatch, name: str) -> Any:
    return batch.column(name) if name in batch.schema.names else None


# Publishing.


class Publishing:
    """Shows what was staged, once."""

    def __init__(self, space: Space, log: Callable[[str], Log], maker: Ids) -> None:
        self._space = space
        self._log = log
        self._ids = maker

    async def published(self, queue: str, sink: str) -> int | None:
        committer = self._log(queue).committer
        seen = await self._space.read(committer.look)
        mark = seen.head.pipes.sinks.get(sink)
        return mark[0] if mark else None

    async def stager(self, queue: str) -> Stager:
        config = await self._space.read(lambda view: queues.read(view, queue))
        return Stager(
            self._space, queue, queues.address(queue).root(config), self._ids, self._log(queue).window.staging
        )

    async def publish(
        self, queue: str, sink: str | None, batch: int, staged: Sequence[Staged], *, room: int | None
    ) -> bool:
        """One transaction: the blocks appear, and the sink's mark says so."""

        def change(session: Session) -> bool:
            pipes = session.head.pipes
            mark = pipes.sinks.get(sink) if sink is not None else None
            if mark is not None and mark[0] >= batch:
                return False
            count = sum(each.rows for each in staged)
            if room is not None and count > room:
                raise QueueFull(f"{queue} has room for {room} messages, and {count} are to be added")
            self._show(session, staged)
            if sink is not None:
                now = max(session.head.now, session.tx.now)
                session.head = msgspec.structs.replace(session.head, pipes=pipes.with_sink(sink, batch, now))
                session.changed = True
            session.tx.signal(work_topic(queue))
            return True

        await self._log(queue).window.staging.check(staged)
        return await self._log(queue).committer.edit(change)

    def _show(self, session: Session, staged: Sequence[Staged]) -> None:
        root = session.seen.root
        for each in staged:
            if each.root != root:
                raise StoreError(
                    f"queue {each.queue!r} was made anew while messages were staged for it: write them again"
                )
        session.seen.window.staging.show(session, staged)
