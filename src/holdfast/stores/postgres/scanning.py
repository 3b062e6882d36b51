"""Views and claim batches in slices: ranges of the tables, read as columns.

A live view is read on one exported snapshot, which the planner holds open for some minutes; the archive needs none,
since its rows do not change and carry the time they ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg
import msgspec

from ... import ids as makers
from ...errors import StoreError
from .. import history
from ..base import PAGE_ROWS
from ..batches import WHOLE, Filter, Sizing, Slice, arrow_schema, filtered, may_pass
from ..records import JSON, View
from . import rows
from .faults import translated, translating
from .partition import Topic
from .pool import Pool
from .registry import Registry
from .statements import Statements

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_SNAPSHOTS = 8  # that one process holds open: each is a connection
_SNAPSHOT_S = 300.0  # one is kept for tasks that have not begun
_LOWEST, _HIGHEST = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
# What each view shows of which table: (table, which rows).
_SOURCES: dict[View, list[tuple[str, str]]] = {
    "ready": [("q", "ready"), ("w", "due")],
    "processing": [("q", "held")],
    "delayed": [("w", "delayed")],
    "retry": [("w", "retry")],
    "dead": [("d", "")],
    "archive": [("a", "")],
}
_RANKED = ("q", "d")  # tables whose key begins with the rank


class _Range(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a table between two keys, both included, that are of one kind."""

    table: str
    kind: str
    low: tuple[int, str]
    high: tuple[int, str]
    usual: int  # the queue's max_attempts
    at: float = 0.0  # the plan's time
    since: float = 0.0  # for the archive: finished since
    token: int = 0
    snapshot: str = ""
    rows: int = PAGE_ROWS  # of one answer


def _slice(queue: str, view: View, count: int, size: int, range: _Range) -> Slice:
    return Slice(queue, view, count, size, msgspec.msgpack.encode(range))


def held(queue: str, row: Any, sizing: Sizing, *, usual: int) -> list[Slice]:
    """A claim batch, cut where it can be."""
    token, count, size, ranks, ids = row
    keys = list(zip(ranks, ids, strict=True))
    each = sizing.rows(count, size)
    step = max(1, round(each / max(1, count / max(1, len(keys) - 1)))) if len(keys) > 1 else 1
    cuts = [*keys[:-1:step], keys[-1]] if len(keys) > 1 else [keys[0], keys[0]]
    page = _page(size / max(1, count))
    found = []
    for nth in range(len(cuts) - 1):
        share = count // (len(cuts) - 1)
        high = cuts[nth + 1] if nth == len(cuts) - 2 else _before(cuts[nth + 1])
        piece = _Range("q", "token", cuts[nth], high, usual, token=token, rows=page)
        found.append(_slice(queue, "processing", share, size // (len(cuts) - 1), piece))
    return found


def _page(size: float) -> int:
    """Rows of so many bytes that make a good answer."""
    return max(1, min(PAGE_ROWS, int(rows.TRIP_BYTES / max(1.0, size))))


class Scans:
    """Plans views of queues, and reads slices; see `stores/batches.py`."""

    def __init__(
        self,
        pool: Pool,
        registry: Registry,
        topic: Callable[[str], Topic],
        *,
        connect: Callable[[], Awaitable[Any]],
    ) -> None:
        self._pool = pool
        self._registry = registry
        self._connect = connect  # snapshots are held outside of the pool: they must not use it up
        self._topic = topic
        self._holding: list[asyncio.Task[None]] = []

    async def _transact(self, step: Callable[[Any], Awaitable[T]], snapshot: str, queue: str) -> T:
        """A transaction on a snapshot, or on one of its own."""

        async def whole(connection: Any) -> T:
            async with connection.transaction(isolation="repeatable_read"):
                await _on(connection, snapshot)
                return await step(connection)

        return await self._pool.run(whole, queue=queue)

    async def plan_scan(
        self, queue: str, view: View, *, filters: Sequence[Filter] = (), sizing: Sizing = WHOLE
    ) -> list[Slice]:
        usual = (await self._registry.must(queue)).options.max_attempts
        sql = self._topic(queue).sql
        snapshot = "" if view == "archive" else await self._hold()
        since, until = _finished(filters)

        async def step(connection: Any) -> list[Slice]:
            [sizes] = await connection.fetch(sql["slice_sizes"])
            found: list[Slice] = []
            for table, kind in _SOURCES[view]:
                size = sizes[table]
                cuts = await _cuts(connection, sql, table, size, sizing)
                for low, high in cuts:
                    if size and may_pass(filters, "id", *_ids(low, high, table)):
                        at = min(sizes["now"], until) if table == "a" else sizes["now"]
                        piece = _Range(table, kind, low, high, usual, at, since, snapshot=snapshot)
                        found.append(_slice(queue, view, 0, size // len(cuts), piece))
            return found

        return await self._transact(step, snapshot, queue)

    async def _hold(self) -> str:
        """The name of a snapshot that lives as long as this process, or for some minutes."""
        named: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._held(named))
        self._holding = [*(each for each in self._holding if not each.done()), task]
        for old in self._holding[:-_SNAPSHOTS]:
            old.cancel()
        return await named

    async def _held(self, named: asyncio.Future[str]) -> None:
        connection = None
        try:
            connection = await self._connect()
            async with connection.transaction(isolation="repeatable_read"):
                await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                named.set_result((await connection.fetch("SELECT pg_export_snapshot()"))[0][0])
                await asyncio.sleep(_SNAPSHOT_S)
        except Exception as error:  # noqa: BLE001 - raised again where the name is awaited
            if not named.done():
                named.set_exception(translated(error))
        finally:
            if connection is not None:
                connection.terminate()

    async def close(self) -> None:
        for task in self._holding:
            task.cancel()
        if self._holding:
            await asyncio.wait(self._holding)

    async def read_slice(
        self, part: Slice, *, filters: Sequence[Filter] = (), lenient: bool = False, only: Sequence[str] | None = None
    ) -> AsyncIterator[pa.RecordBatch]:  # every column is in the answer of the server anyway
        piece = msgspec.msgpack.decode(part.body, type=_Range)
        sql = self._topic(part.queue).sql
        filters = [each for each in filters if each.column != "queue"]
        with translating(part.queue):
            async with self._pool.connection() as connection, _view(connection, piece.snapshot, lenient=lenient):
                low = piece.low
                while True:
                    row = await _fetch(connection, sql, piece, low)
                    if not row[0]:
                        return
                    batch = _batch(row, part.queue, part.view, piece)
                    yield filtered(batch, filters)
                    if row[0] < piece.rows:
                        return
                    low = (255 - row[5][-1], _next(row[1][-1]))


@asynccontextmanager
async def _view(connection: Any, snapshot: str, *, lenient: bool) -> AsyncIterator[None]:
    """A transaction on the snapshot of the plan; when that is gone and it does not matter, on one of its own."""
    transaction = connection.transaction(isolation="repeatable_read")
    await transaction.start()
    try:
        await _on(connection, snapshot)
    except asyncpg.PostgresError as error:
        await transaction.rollback()
        if not lenient:
            raise StoreError(
                "the snapshot of this read is gone: its planner ended, or the task began "
                f"{_SNAPSHOT_S:.0f} s after it. Read again with fewer partitions for each core, or set failOnDataLoss "
                "to false to read what is there now"
            ) from error
        transaction = connection.transaction(isolation="repeatable_read")
        await transaction.start()
    try:
        yield
    finally:
        await transaction.rollback()


async def _on(connection: Any, snapshot: str) -> None:
    if snapshot:
        await connection.execute(f"SET TRANSACTION SNAPSHOT '{_checked(snapshot)}'")


def _checked(snapshot: str) -> str:
    """A name as the server gives it: there is no way to bind it."""
    if not snapshot.replace("-", "").isalnum():
        raise StoreError("not the name of a snapshot")
    return snapshot


def _finished(filters: Sequence[Filter]) -> tuple[float, float]:
    """The narrowest span of `finished_at` that holds everything which can pass."""
    since, until = 0.0, float("inf")
    for each in filters:
        if each.column == "finished_at" and isinstance(each.value, int):
            if each.op in (">", ">=", "="):
                since = max(since, each.value / 1e6 - 1e-3)
            if each.op in ("<", "<=", "="):
                until = min(until, each.value / 1e6 + 1e-3)
    return since, until


def _ids(low: tuple[int, str], high: tuple[int, str], table: str) -> tuple[str, str]:
    """The lowest and highest id between two keys."""
    return (low[1], high[1]) if table not in _RANKED or low[0] == high[0] else (_LOWEST, _HIGHEST)


async def _cuts(
    connection: Any, sql: Statements, table: str, size: int, sizing: Sizing
) -> list[tuple[tuple[int, str], tuple[int, str]]]:
    """The table in pieces of about one size, cut at keys of a sample."""
    wanted = -(-size // max(1, sizing.rows(max(1, size), size)))
    whole = ((0, _LOWEST), (255, _HIGHEST))
    if wanted <= 1:
        return [whole]
    sample = await connection.fetch(sql[f"sample_{table}"], min(100.0, 100.0 * wanted * 200 * 8192 / max(1, size)))
    keys = [(row[0], str(row[1])) for row in sample]
    step = max(1, len(keys) // wanted)
    inner = sorted(set(keys[step::step]))[: wanted - 1]
    edges = [whole[0], *inner]
    ends = [_before(key) for key in inner] + [whole[1]]
    return list(zip(edges, ends, strict=True))


def _before(key: tuple[int, str]) -> tuple[int, str]:
    number = int(key[1].replace("-", ""), 16)
    return key[0], makers.text(max(0, number - 1))


def _next(id: str) -> str:
    return makers.text(int(id.replace("-", ""), 16) + 1)


async def _fetch(connection: Any, sql: Statements, piece: _Range, low: tuple[int, str]) -> Any:
    kind = piece.kind
    between = (*low, *piece.high) if piece.table in _RANKED else (low[1], piece.high[1])
    more: tuple[Any, ...] = {
        "q": (kind, piece.token, piece.at, piece.usual),
        "w": (kind, piece.at, piece.usual),
        "d": (piece.usual,),
        "a": (piece.since, piece.at, piece.usual),
    }[piece.table]
    return (await connection.fetch(sql[f"slice_{piece.table}"], *between, piece.rows, *more))[0]


def _batch(row: Any, queue: str, view: View, piece: _Range) -> pa.RecordBatch:
    import pyarrow as pa

    count, ids, payloads, kinds, headers, priorities, attempts, most, enqueued, *rest = row
    made: dict[str, Any] = {
        "id": ids,
        "queue": [queue] * count,
        "value": payloads,
        "content_type": [kind or JSON for kind in kinds],
        "headers": [None if text is None else list((rows.headers_from(text) or {}).items()) for text in headers],
        "priority": priorities,
        "attempt": attempts,
        "attempts": attempts,
        "max_attempts": most,
        "enqueued_at": enqueued,
    }
    made |= dict(zip(_RESTS[piece.table], rest, strict=True))
    if "history" in made:
        made["history"] = [history.to_arrow(rows.history_from(text)) for text in made["history"]]
    schema = arrow_schema(view)
    batch = pa.RecordBatch.from_arrays([pa.array(made[field.name], field.type) for field in schema], schema=schema)
    if piece.token:
        tokens = [rows.token_text(piece.token, id, priority) for id, priority in zip(ids, priorities, strict=True)]
        batch = batch.append_column("token", pa.array(tokens, pa.string()))
    return batch


_OPEN = ("visible_at", "error")
_ENDED = ("status", "claimed_at", "finished_at", "worker", "result", "error", "expires", "history")
_RESTS = {"q": (*_OPEN, "worker"), "w": _OPEN, "d": _ENDED, "a": _ENDED}  # by table: what follows the usual columns
