"""Backup and restore of a database: one snapshot that all queues are read on, one transaction that puts them back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ...config import QueueOptions
from ...errors import QueueExists, StoreError
from .. import backups, history
from ..backups import TABLE_BYTES, Key, NewQueue, Part, QueueCopy, Section
from ..base import PAGE_ROWS, QueueInfo
from ..consumers import Consumer
from ..records import JSON
from . import names, registry, rows, schedules
from .faults import translating
from .schema import Schema
from .statements import Statements

if TYPE_CHECKING:
    import pyarrow as pa

_PATIENT = (  # a backup is one long transaction
    "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"
)
_COMMON = ["id", "enqueued_at", "attempts", "max_attempts", "rank", "content_type", "headers", "error", "worker"]
_COMMON += ["payload", "expires"]
_OPEN = [*_COMMON, "visible_at", "recovered"]
_ENDED = [*_COMMON, "finished_at", "claimed_at"]


class PostgresBackups:
    """Of one store; see `stores/backups.py` for the promises."""

    one_instant = True

    def __init__(self, schema: Schema, connect: Callable[[], Awaitable[Any]], changed: Callable[[str], None]) -> None:
        self._schema = schema
        self._connect = connect
        self._changed = changed

    @asynccontextmanager
    async def snapshot(self, queues: Sequence[str]) -> AsyncIterator[PostgresSnapshot]:
        async with self._transaction() as connection:
            snapshot = PostgresSnapshot(connection, self._schema)
            await snapshot.plan(queues)
            yield snapshot

    @asynccontextmanager
    async def restoring(self, backup: str, queues: Sequence[NewQueue]) -> AsyncIterator[PostgresRestoring]:
        if await self._schema.applied() is None:
            await self._schema.install()
        if any(queue.schedules for queue in queues):
            schedules.must_have_schedules(self._schema)
        async with self._transaction() as connection:
            restoring = PostgresRestoring(connection, self._schema, backup, queues)
            await restoring.begin()
            yield restoring
            if not restoring.done:
                raise StoreError("the restore was not finished: nothing has changed")
        for queue in queues:
            self._changed(queue.name)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        connection = None
        try:
            with translating():
                connection = await self._connect()
                async with connection.transaction(isolation="repeatable_read"):
                    await connection.execute(_PATIENT)
                    yield connection
        finally:
            if connection is not None:
                connection.terminate()


class PostgresSnapshot:
    """See `Snapshot`."""

    def __init__(self, connection: Any, schema: Schema) -> None:
        self._connection = connection
        self._known = schema
        self._schema = schema.name
        self._turn = asyncio.Lock()  # one question at a time
        self.queues: list[QueueCopy] = []
        self._at = 0.0

    async def plan(self, queues: Sequence[str]) -> None:
        sql = Statements(self._schema)
        [(self._at,)] = await self._connection.fetch(sql["clock"])
        for name in queues:
            found = await self._connection.fetch(sql["backup_queue"], name)
            if found:
                self.queues.append(await self._copy(sql, found[0]))

    async def _copy(self, sql: Statements, row: Any) -> QueueCopy:
        id, name, options, paused, created_at, live, waiting, dead, archived, completed, failed = row
        parts: dict[Section, list[Part]] = {
            "open": [Part("", live, "q"), Part("", waiting, "w")],
            "dead": [Part("", dead, "d")],
            "archive": [Part("", archived, "a")],
        }
        if keys := await self._connection.fetch(sql["backup_keys"], id, self._at):
            # Without names of calls: a call is repeated at the store it was made in.
            made = [_key(bytes(key), each, left) for key, each, left in keys if not bytes(key).startswith(b"\0")]
            parts["keys"] = [Part("", len(made), backups.keys_table(made))]
        consumers: dict[str, Consumer] = {}
        sinks: dict[str, tuple[int, float]] = {}
        for own, state, batch, at in await self._connection.fetch(sql["backup_pipes"], id):
            if state is not None:
                consumers[own] = msgspec.json.decode(state, type=Consumer)
            elif not own.startswith(backups.MARK):
                sinks[own] = (batch, at)
        return QueueCopy(
            info=QueueInfo(name, msgspec.json.decode(options, type=QueueOptions), paused, created_at),
            at=self._at,
            completed=completed,
            failed=failed,
            consumers=backups.kept(consumers),
            sinks=sinks,
            schedules=await schedules.read(self._connection.fetch, self._known, name),
            parts=parts,
        )

    async def read(self, queue: QueueCopy, section: Section, part: Part) -> AsyncIterator[pa.Table | bytes]:
        if not isinstance(part.body, str):
            yield part.body
            return
        made = Statements(self._schema, queue.info.name, history=self._known.has_history)
        sql = made[f"backup_{part.body}"]
        args = (self._at,) if part.body in ("q", "w") else ()
        async with self._turn:
            cursor = await self._connection.cursor(sql, *args)
            waiting: list[Any] = []
            size = 0
            while found := await cursor.fetch(PAGE_ROWS):
                waiting += found
                size += sum(len(row[2]) for row in found)
                if size >= TABLE_BYTES or len(waiting) >= 20 * PAGE_ROWS:
                    yield await asyncio.to_thread(_table, waiting)
                    waiting, size = [], 0
            if waiting:
                yield await asyncio.to_thread(_table, waiting)


def _key(key: bytes, id: str, left: float) -> Key:
    """One that came from another kind of store is known by its hash alone."""
    if key.startswith(rows.HASH_MARK):
        return Key(key.removeprefix(rows.HASH_MARK), id, left)
    return Key(rows.hashed(key).removeprefix(rows.HASH_MARK), id, left, key)


def _table(found: list[Any]) -> pa.Table:
    import pyarrow as pa

    known = backups.schema()
    columns: list[Any] = list(zip(*found, strict=True))
    by_name = dict(zip(known.names, columns, strict=True))
    by_name["content_type"] = [kind or JSON for kind in by_name["content_type"]]
    by_name["headers"] = [_pairs(text) for text in by_name["headers"]]
    by_name["history"] = [history.to_arrow(rows.history_from(text)) for text in by_name["history"]]
    return pa.Table.from_arrays([pa.array(by_name[field.name], field.type) for field in known], schema=known)


def _pairs(text: str | None) -> list[tuple[str, str]] | None:
    return None if text is None else list((rows.headers_from(text) or {}).items()) or None


# Restoring.


class _Queue(msgspec.Struct):
    new: NewQueue
    id: int
    sql: Statements
    counts: Counter[str]
    days: Counter[date]


class PostgresRestoring:
    """See `Restoring`."""

    def __init__(self, connection: Any, schema: Schema, backup: str, queues: Sequence[NewQueue]) -> None:
        self._connection = connection
        self._known = schema
        self._schema = schema.name
        self._mark = backups.MARK + backup
        self._new = queues
        self._queues: dict[str, _Queue] = {}
        self._now = datetime.now(UTC)
        self.done = False

    async def begin(self) -> None:
        sql = Statements(self._schema)
        self._now = datetime.fromtimestamp((await self._connection.fetch(sql["clock"]))[0][0], UTC)
        there = dict(await self._connection.fetch(sql["restored"], [new.name for new in self._new], self._mark))
        self.done = len(there) == len(self._new) and all(there.values())
        if self.done:
            return
        if there:
            raise QueueExists(backups.in_the_way(sorted(there)))
        for new in self._new:
            made = await self._connection.fetch(
                sql["create_queue"], new.name, names.slug(new.name), *registry.columns(new.options)
            )
            if made[0][0] is None:
                raise QueueExists(backups.in_the_way([new.name]))
            queue = _Queue(new, made[0][0], Statements(self._schema, new.name), Counter(), Counter())
            self._queues[new.name] = queue
            await self._connection.fetch(sql["restore_queue"], queue.id, new.created_at, new.paused)

    async def add(self, queue: str, section: Section, rows: pa.Table, file: bytes | None) -> None:
        into = self._queues[queue]
        if section == "keys":
            return await self._add_keys(into, backups.keys_of(rows))
        columns = await asyncio.to_thread(_columns, rows)
        if section == "open":
            await self._add_open(into, columns)
        elif section == "dead":
            columns["visible_at"] = columns["finished_at"]
            await self._copy(into, "d", [*_ENDED, "visible_at"], columns)
            into.counts["dead"] += rows.num_rows
        else:
            await self._add_archive(into, columns)

    async def _add_open(self, into: _Queue, columns: dict[str, list[Any]]) -> None:
        due, now = columns["due"], self._now
        later = [at is not None and at > now for at in due]
        columns["visible_at"] = [at if is_later else born for at, is_later, born in
                                 zip(due, later, columns["enqueued_at"], strict=True)]  # fmt: skip
        columns["recovered"] = [bool(each) for each in columns["crashed"]]
        columns["waits"] = ["retry" if tried else "delayed" for tried in columns["attempts"]]
        await self._copy(into, "q", _OPEN, columns, [not each for each in later])
        await self._copy(into, "w", [*_OPEN, "waits"], columns, later)
        into.counts["live"] += later.count(False)
        into.counts.update(waits for waits, is_later in zip(columns["waits"], later, strict=True) if is_later)

    async def _add_archive(self, into: _Queue, columns: dict[str, list[Any]]) -> None:
        days = Counter(at.date() for at in columns["finished_at"])
        for day in days.keys() - into.days.keys():
            await self._connection.fetch(into.sql["make_day"], into.sql.slug, day)
        into.days.update(days)
        await self._copy(into, "a", [*_ENDED, "status", "result"], columns)

    async def _copy(
        self,
        into: _Queue,
        table: str,
        wanted: list[str],
        columns: dict[str, list[Any]],
        chosen: list[bool] | None = None,
    ) -> None:
        if any(columns["history"]) and self._known.has_history:
            wanted = [*wanted, "history"]
        found = zip(*(columns[name] for name in wanted), strict=True)
        records = list(found) if chosen is None else [row for row, is_one in zip(found, chosen, strict=True) if is_one]
        if records:
            await self._connection.copy_records_to_table(
                f"{table}_{into.sql.slug}", schema_name=self._schema, records=records, columns=wanted
            )

    async def _add_keys(self, into: _Queue, found: Sequence[Key]) -> None:
        names = [rows.HASH_MARK + each.hash if each.key is None else each.key for each in found]
        ids, left = [each.id for each in found], [each.left for each in found]
        await self._connection.fetch(into.sql["restore_keys"], into.id, names, ids, left)

    async def finish(self) -> None:
        sql = Statements(self._schema)
        for queue in self._queues.values():
            new, counts = queue.new, queue.counts
            [(now,)] = await self._connection.fetch(sql["clock"])
            sinks = {**new.sinks, self._mark: (0, now)}
            await self._connection.fetch(
                sql["restore_sinks"],
                queue.id,
                list(sinks),
                [batch for batch, _ in sinks.values()],
                [at for _, at in sinks.values()],
            )
            for name, consumer in new.consumers.items():
                await self._connection.fetch(
                    sql["consumer_keep"], queue.id, name, msgspec.json.encode(consumer).decode()
                )
            if new.schedules:
                await schedules.restore(self._connection, self._known, queue.id, new.schedules)
            await self._connection.fetch(
                sql["restore_counts"],
                queue.id,
                counts["live"],
                counts["delayed"],
                counts["retry"],
                counts["dead"],
                new.completed,
                new.failed,
                list(queue.days),
                list(queue.days.values()),
            )
        self.done = True


def _columns(table: pa.Table) -> dict[str, list[Any]]:
    """By the names of the database."""
    found = {name: backups.values(table, name) for name in table.schema.names}
    for name in ("enqueued_at", "due", "claimed_at", "finished_at", "expires"):
        found[name] = [None if at is None else datetime.fromtimestamp(at, UTC) for at in found[name]]
    found["payload"] = found["value"]
    found["rank"] = [255 - priority for priority in found["priority"]]
    found["max_attempts"] = found["own_max_attempts"]
    found["content_type"] = [rows.content_type(kind) for kind in found["content_type"]]
    found["headers"] = [rows.headers_text(each) for each in found["headers"]]
    found["history"] = [rows.history_text(each) for each in found["history"]]
    for name in ("error", "worker"):
        found[name] = [rows.plain(text) for text in found[name]]
    return found
