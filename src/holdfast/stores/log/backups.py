"""Backup and restore on the log engine: see `stores/backups.py` for the promises.

A queue is restored under an incarnation that nobody knows, and appears when its options are written: in one transaction
for all queues where there is one. What a restore that was killed has left is below a root that no queue has; the next
one removes it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ...errors import Damaged, QueueExists, QueueNotFound, StoreError, Unavailable
from .. import backups
from ..backups import Changed, Key, NewQueue, Part, QueueCopy, Section
from ..base import DEAD
from . import archive_index, backup_blocks, backup_plan, pin, queues, schedules
from .backup_blocks import Made, Number
from .backup_plan import LOADED_BYTES, Loaded, Piece
from .head import codec
from .head.pipelines import Pipes
from .head.state import Beyond, Head
from .names import RESTORING, config_key
from .partition import Log
from .queue_view import Finder
from .queues import Address, Config
from .space import Reading, Space, Stale, Transaction
from .topics import work_topic

if TYPE_CHECKING:
    import pyarrow as pa

_PATIENCE_S = 600.0  # for steps that look at everything a store has
_TABLE_BYTES = 16 << 20  # of rows that are handed on together
_LOOKS = 50  # at a queue on a bucket; a flush spoils one, and they are seconds apart
_FETCH = 16  # objects read in one step
_WRITE_OBJECTS = 64  # in one transaction
_WRITE_BYTES = 16 << 20
_PAGE = 1000


class LogBackups:
    """Of one store."""

    def __init__(
        self,
        space: Space,
        fresh: Callable[[str], Awaitable[Finder]],
        logs_of: Callable[[str], Awaitable[list[Log]]],
        log: Callable[[str], Log],
    ) -> None:
        self._space = space
        self._fresh = fresh
        self._logs_of = logs_of
        self._log = log
        self.one_instant = not space.request_costs

    @asynccontextmanager
    async def snapshot(self, queues: Sequence[str]) -> AsyncIterator[LogSnapshot]:
        finders: dict[str, Finder] = {}
        for name in queues:
            with suppress(QueueNotFound):
                for log in (*await self._logs_of(name), self._log(name + DEAD)):
                    # Files are copied as they are, so most of what has ended should be in one.
                    await log.flusher.flush()
                finders[name] = await self._fresh(name)
                await self._space.transact(partial(_pin, name))
        snapshot = await (self._at_once(finders) if self.one_instant else self._between_flushes(finders))
        await snapshot.add_keys()
        yield snapshot

    async def _at_once(self, finders: dict[str, Finder]) -> LogSnapshot:
        planned = await self._space.read(partial(_planned, finders, True), deadline=_PATIENCE_S)
        return LogSnapshot(self._space, planned)

    async def _between_flushes(self, finders: dict[str, Finder]) -> LogSnapshot:
        """Where a look is many requests: one in which no flush moved anything from the head to somewhere else.

        The head is the instant. What it holds is read at once, since it may be gone in a moment; blocks that an
        earlier look has read need not be read again, so each look has less to do than the one before.
        """
        known: dict[str, bytes] = {}
        last: Changed | None = None
        missing: Damaged | None = None
        for _ in range(_LOOKS):
            try:
                before = await self._space.read(partial(_flushed, finders), deadline=_PATIENCE_S)
                planned = await self._space.read(partial(_planned, finders, False), deadline=_PATIENCE_S)
                after = await self._space.read(partial(_flushed, finders), deadline=_PATIENCE_S)
                snapshot = LogSnapshot(self._space, planned)
                await snapshot.load(known)
                if before == after:
                    return snapshot
            except Changed as changed:
                missing, last = changed.again(last), changed
            except Stale:
                pass
        raise missing or Unavailable(
            "the queue changes faster than it can be copied: try again when there is less to do"
        )

    @asynccontextmanager
    async def restoring(self, backup: str, queues: Sequence[NewQueue]) -> AsyncIterator[LogRestoring]:
        restoring = LogRestoring(self._space, self._log, backup, queues)
        await restoring.begin()
        yield restoring


def _pin(queue: str, tx: Transaction) -> None:
    """Archive files are not merged while they are copied."""
    pin.pin(tx, Address(queue, False).archive_root(queues.read(tx, queue)))


class _Planned(msgspec.Struct, frozen=True):
    copy: QueueCopy
    root: str
    blocks: set[str]
    now: float  # by the store's clock


def _flushed(finders: dict[str, Finder], view: Reading) -> dict[str, set[str]]:
    """What flushes have written, by queue."""
    found: dict[str, set[str]] = {}
    for name in finders:
        with suppress(QueueNotFound):
            found[name] = backup_plan.flushed(view, Address(name, False).archive_root(queues.read(view, name)))
    return found


def _planned(finders: dict[str, Finder], load: bool, view: Reading) -> list[_Planned]:
    found: dict[str, _Planned] = {}
    ways: backup_plan.Copies = {}
    for name, finder in finders.items():
        with suppress(QueueNotFound):
            copy, copies, blocks = backup_plan.plan(view, finder, name, load=load)
            root = queues.address(name).root(queues.read(view, name))
            found[name] = _Planned(copy, root, blocks, view.now)
            for target, rows in copies.items():
                ways.setdefault(target, []).extend(rows)
    for name, rows in ways.items():
        if name in found:  # else nobody would have got them either
            found[name].copy.parts["open"].append(Part("", len(rows), backups.table(rows)))
    return list(found.values())


class LogSnapshot:
    """See `Snapshot`."""

    def __init__(self, space: Space, planned: list[_Planned]) -> None:
        self._space = space
        self._planned = planned
        self.queues = [each.copy for each in planned]

    async def load(self, known: dict[str, bytes]) -> None:
        """Read what a head holds, as long as that fits into memory, and what will be claimed next; Changed."""
        left = {True: LOADED_BYTES, False: _TABLE_BYTES}
        for each in self._planned:
            for parts in each.copy.parts.values():
                for place, part in enumerate(parts):
                    if not isinstance(part.body, list) or not part.body[0].groups:
                        continue  # an archive file stays where it is
                    absorbed = part.body[0].absorbed
                    if left[absorbed] > 0:
                        rows = _joined(await self._tables(each.copy.info.name, part.body, known))
                        left[absorbed] -= rows.nbytes
                        parts[place] = replace(part, body=Loaded(rows))

    async def add_keys(self) -> None:
        """Dedup keys: looked up after the plan, and only those from before it count."""
        for each in self._planned:
            window = each.copy.info.options.dedup_window
            listed = await self._space.read(partial(backup_plan.key_names, root=each.root), deadline=_PATIENCE_S)
            look = partial(backup_plan.keys_among, window=window, at=each.now, blocks=each.blocks)
            parts = [listed[start : start + _PAGE] for start in range(0, len(listed), _PAGE)]
            found: list[Key] = []
            for some in parts:
                found += await self._space.read(partial(_swapped, look, some), deadline=_PATIENCE_S)
            if found:
                each.copy.parts["keys"] = [Part("", len(found), backups.keys_table(found))]

    async def read(self, queue: QueueCopy, section: Section, part: Part) -> AsyncIterator[pa.Table | bytes]:
        if not isinstance(part.body, list):
            yield part.body.rows if isinstance(part.body, Loaded) else part.body
            return
        pieces: list[Piece] = part.body
        if not pieces[0].groups:
            for piece in pieces:
                yield await self._space.read(partial(_file, piece))
            return
        waiting: list[pa.Table] = []
        size = 0
        for start in range(0, len(pieces), _FETCH):
            for table in await self._tables(queue.info.name, pieces[start : start + _FETCH]):
                waiting.append(table)
                size += table.nbytes
                if size >= _TABLE_BYTES:
                    yield _joined(waiting)
                    waiting, size = [], 0
        if waiting:
            yield _joined(waiting)

    async def _tables(self, queue: str, pieces: list[Piece], known: dict[str, bytes] | None = None) -> list[pa.Table]:
        def step(some: list[Piece], view: Reading) -> list[pa.Table]:
            return [backup_plan.rows_of(view, queue, piece, known) for piece in some]

        if not self._space.request_costs:
            return await self._space.read(partial(step, pieces), deadline=_PATIENCE_S)
        trips = [self._space.read(partial(step, [piece]), deadline=_PATIENCE_S) for piece in pieces]
        return [table for found in await asyncio.gather(*trips) for table in found]


def _swapped(look: Callable[..., list[Key]], some: list[str], view: Reading) -> list[Key]:
    return look(view, some)


def _file(piece: Piece, view: Reading) -> bytes:
    return backup_plan.file_of(view, piece)


def _joined(tables: list[pa.Table]) -> pa.Table:
    import pyarrow as pa

    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


# Restoring.


class _Queue(msgspec.Struct):
    """A queue that is being restored."""

    new: NewQueue
    config: Config
    roots: list[str]  # of its shards
    turn: int = 0
    archived: dict[int, int] = {}  # messages in archive files, by day

    @property
    def base(self) -> str:
        return Address(self.new.name, False).archive_root(self.config)

    @property
    def log_roots(self) -> list[str]:
        return queues.log_roots(self.new.name, self.config)

    def next_root(self) -> str:
        self.turn += 1
        return self.roots[self.turn % len(self.roots)]


class LogRestoring:
    """See `Restoring`."""

    def __init__(self, space: Space, log: Callable[[str], Log], backup: str, queues: Sequence[NewQueue]) -> None:
        self._space = space
        self._log = log
        self._mark = backups.MARK + backup
        self._new = queues
        self._queues: dict[str, _Queue] = {}
        self._number = Number(space.clock)
        self.done = False

    async def begin(self) -> None:
        """QueueExists; what an earlier attempt left is removed."""
        if any(new.schedules for new in self._new):
            schedules.must_have_schedules(self._space)
        there = await self._space.read(self._there, deadline=_PATIENCE_S)
        if taken := [name for name, ours in there.items() if not ours]:
            raise QueueExists(backups.in_the_way(taken))
        self.done = len(there) == len(self._new)
        for new in self._new:
            if new.name not in there:
                await self._clear(new.name)
                self._queues[new.name] = await self._begun(new)

    def _there(self, view: Reading) -> dict[str, bool]:
        """Queues that are there already, and whether they were restored from this backup."""
        found: dict[str, bool] = {}
        for new in self._new:
            with suppress(QueueNotFound):
                config = queues.read_current(view, new.name)
                stored = view.get(Address(new.name, False).root(config) + "head")
                pipes = codec.decode(stored.data).pipes if stored is not None else Pipes()
                found[new.name] = self._mark in pipes.sinks
        return found

    async def _clear(self, name: str) -> None:
        """No queue has this name: what lies there belongs to nobody."""
        prefix = f"{name}@"

        def step(tx: Transaction) -> int:
            if (found := tx.get(config_key(name))) is not None and queues.decode(found.data, name).closing is None:
                return 0
            keys = tx.list(prefix, limit=_PAGE)
            for key in keys:
                tx.delete(key)
            return len(keys)

        while await self._space.transact(step):
            pass

    async def _begun(self, new: NewQueue) -> _Queue:
        config = Config(
            incarnation=secrets.token_hex(4),
            created_at=new.created_at,
            options=new.options,
            paused=new.paused,
            store=self._space.store_id,
            has_heads=True,
            schedules={each.plan.name: each.plan for each in new.schedules},
        )
        shards = self._log(new.name).window.partitions(config)
        queue = _Queue(new, config, [Address(new.name, False, number).root(config) for number in range(shards)])
        await self._space.transact(lambda tx: tx.create(queue.base + RESTORING, self._mark.encode()))
        return queue

    async def add(self, queue: str, section: Section, rows: pa.Table, file: bytes | None) -> None:
        into = self._queues.get(queue)
        if into is None or not rows.num_rows:
            return  # restored by an earlier attempt
        if section == "keys":
            return await self._write(_keys(into, rows, self._space.clock()))
        made = await asyncio.to_thread(lambda: list(self._made(into, section, rows, file)))
        await self._write(made)

    def _made(self, into: _Queue, section: Section, rows: pa.Table, file: bytes | None) -> Iterator[Made]:
        calendar, usual = self._space.calendar(), into.config.options.max_attempts
        if section == "archive":
            made = backup_blocks.archive_file(into.new.name, rows, file, usual, calendar)
            if self._space.request_costs:
                into.archived = archive_index.added(into.archived, made.key)
            yield replace(made, key=into.base + made.key)
        elif section == "dead":
            for made in backup_blocks.dead_blocks(rows, self._number, usual):
                yield replace(made, key=f"{into.base}dead/{made.key}")
        else:
            now = calendar.wall(self._space.clock())
            exact = not self._space.request_costs
            for made in backup_blocks.open_blocks(rows, self._number, now, calendar, exact=exact):
                yield replace(made, key=into.next_root() + made.key)

    async def _write(self, made: Iterable[Made]) -> None:
        some: list[Made] = []
        size = 0
        for each in made:
            some.append(each)
            size += len(each.data)
            if len(some) >= _WRITE_OBJECTS or size >= _WRITE_BYTES:
                await self._create(some)
                some, size = [], 0
        if some:
            await self._create(some)

    async def _create(self, made: list[Made]) -> None:
        threshold = self._space.file_threshold
        files = [(each.key, each.data) for each in made if _is_file(each, threshold)]

        def step(tx: Transaction) -> None:
            for each in made:
                if _is_file(each, threshold):
                    tx.adopt(each.key)
                else:
                    tx.create(each.key, each.data)

        await self._space.transact(step, files=files, deadline=_PATIENCE_S)

    async def finish(self) -> None:
        now = self._space.clock()
        for queue in self._queues.values():
            head = Head(
                now=now,
                completed=queue.new.completed,
                failed=queue.new.failed,
                pipes=Pipes(queue.new.consumers, {**queue.new.sinks, self._mark: (0, now)}),
                beyond=Beyond(archived=queue.archived),
            )
            others = [root for root in queue.log_roots if root != queue.roots[0]]
            heads = _with_marks({queue.roots[0]: head} | dict.fromkeys(others, Head(now=now)), queue)
            await self._write([Made(root + "head", codec.HeadWriter().encode(each)) for root, each in heads.items()])
            for name in queue.config.schedules:  # nobody has them before the queue is there
                await self._space.transact(partial(schedules.take_name, name=name, queue=queue.new.name))
        groups = [list(self._queues.values())]
        if self._space.request_costs:  # one object a step
            groups = [[queue] for queue in self._queues.values()]
        for some in groups:
            await self._show(some)
        self.done = True

    async def _show(self, some: list[_Queue]) -> None:
        def step(tx: Transaction) -> None:
            for queue in some:
                mark = tx.get(queue.base + RESTORING)
                if mark is None or mark.data != self._mark.encode():
                    raise StoreError(f"another restore of queue {queue.new.name!r} has begun meanwhile")
                queues.restore(tx, queue.new.name, queue.config)
                tx.signal(work_topic(queue.new.name))

        while True:
            try:
                await self._space.transact(step, deadline=_PATIENCE_S)
                break
            except queues.Closing as closing:
                await asyncio.sleep(closing.seconds)
        await self._space.transact(lambda tx: [tx.delete(queue.base + RESTORING) for queue in some])


def _with_marks(heads: dict[str, Head], queue: _Queue) -> dict[str, Head]:
    """The heads of a queue by their roots, with the marks of its schedules."""
    for each in queue.new.schedules:
        root = queue.roots[schedules.shard_of(each.plan.name, len(queue.roots))]
        heads[root] = replace(heads[root], schedules={**heads[root].schedules, each.plan.name: each.mark})
    return heads


def _is_file(made: Made, threshold: int | None) -> bool:
    return "/archive/" in made.key or (threshold is not None and len(made.data) >= threshold)


def _keys(into: _Queue, rows: pa.Table, now: float) -> list[Made]:
    window = into.config.options.dedup_window
    root = Address(into.new.name, False).root(into.config)
    return [
        Made(f"{root}dedup/{key.hash.hex()}", msgspec.msgpack.encode((now + key.left - window, key.id)))
        for key in backups.keys_of(rows)
    ]
