"""The third seam: what a backup needs of a store. Everything it keeps, read off one snapshot, and put back in one step.

Rows travel as columns of one schema, whatever their state and store: `Row` says what they mean. A plan is read part by
part; a part that left the store meanwhile is `Changed`, and the caller plans again: what was copied before is known
by the origin of its part. A restored queue is seen by nobody before all of it is there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

from ..config import QueueOptions
from ..errors import ConfigError, Damaged
from ..limits import listed
from . import consumers, history
from .base import QueueInfo, Store
from .consumers import Consumer
from .records import Attempt, Status
from .scheduling import Scheduled

if TYPE_CHECKING:
    import pyarrow as pa

Section: TypeAlias = Literal["open", "dead", "archive", "keys"]
MARK = "restored-from:"  # what a restored queue remembers the backup under, among the marks of sinks
TABLE_BYTES = 16 << 20  # of rows that are handed on together: a table is in memory whole
_INSTANTS = ("enqueued_at", "due", "claimed_at", "finished_at", "expires")


class Row(msgspec.Struct, gc=False, kw_only=True):
    """A message in a backup. Instants are seconds since 1970 by the calendar."""

    id: str
    status: Status  # processing is none: what is held is pending, and `held`
    value: bytes
    content_type: str
    priority: int
    attempts: int
    enqueued_at: float
    headers: dict[str, str] | None = None
    own_max_attempts: int | None = None  # None: the queue's
    due: float | None = None  # delayed, retry
    held: bool = False  # somebody had it in hand
    crashed: bool = False  # a lease of it has expired
    claimed_at: float | None = None
    finished_at: float | None = None
    result: bytes | None = None
    error: str | None = None
    worker: str | None = None
    expires: float | None = None
    history: tuple[Attempt, ...] = ()


class Key(msgspec.Struct, gc=False):
    """A dedup key; all stores hash alike, some know only the hash."""

    hash: bytes
    id: str
    left: float  # seconds for which it is still remembered
    key: bytes | None = None


class Part(msgspec.Struct, frozen=True):
    """Rows of one section that are read together. The same origin means the same rows; empty: nobody can tell."""

    origin: str
    rows: int
    body: Any


class QueueCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one instant, but for its rows."""

    info: QueueInfo
    at: float  # the instant, by the calendar
    completed: int
    failed: int
    consumers: dict[str, Consumer] = {}
    sinks: dict[str, tuple[int, float]] = {}  # the last batch that each has published, and when
    schedules: list[Scheduled] = []
    parts: dict[Section, list[Part]] = {}


class NewQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that is to be restored, but for its rows."""

    name: str
    options: QueueOptions
    paused: bool
    created_at: float
    completed: int
    failed: int
    consumers: dict[str, Consumer] = {}
    sinks: dict[str, tuple[int, float]] = {}
    schedules: list[Scheduled] = []  # under the names they will have


class Changed(Exception):
    """A part of a plan has left the store since: plan again. `missing` is what to say when every plan names it."""

    def __init__(self, missing: Damaged | None = None) -> None:
        super().__init__()
        self.missing = missing

    def again(self, before: Changed | None) -> Damaged | None:
        """The plan before named the same object, and it was not there either."""
        had = before.missing if before is not None else None
        return self.missing if had is not None and self.missing is not None and had.key == self.missing.key else None


class Snapshot(Protocol):
    """What a store keeps, at one instant."""

    queues: list[QueueCopy]

    def read(self, queue: QueueCopy, section: Section, part: Part) -> AsyncIterator[pa.Table | bytes]:
        """The rows of a part in claim order (`open`) or order of ids, some megabytes at a time; Changed.

        Bytes are a Parquet file with these columns, and perhaps others, as the store has it already.
        """


class Restoring(Protocol):
    """Queues that are being restored."""

    done: bool  # all of them are there, restored from this very backup

    async def add(self, queue: str, section: Section, rows: pa.Table, file: bytes | None) -> None:
        """Rows of a section of a queue; `file`: the same as a Parquet file that no row was left out of."""

    async def finish(self) -> None:
        """Show the queues; if this does not return, nothing or everything has happened."""


class Backups(Protocol):
    """What a store that can be backed up and restored has as its `backups`."""

    one_instant: bool  # a snapshot can be of several queues

    def snapshot(self, queues: Sequence[str]) -> AbstractAsyncContextManager[Snapshot]:
        """Queues as they are now; one that is not there any more is left out."""

    def restoring(self, backup: str, queues: Sequence[NewQueue]) -> AbstractAsyncContextManager[Restoring]:
        """Put queues back from the backup of this name; QueueExists where one is in the way.

        What an earlier attempt left is removed, or taken up.
        """


def backups_of(store: Store) -> Backups:
    """The third seam of a store; ConfigError where it has none."""
    if store.backups is None:
        raise ConfigError(
            "a served store (http://) is backed up, restored and moved where it lies: give the URL that "
            "`holdfast serve` was given"
        )
    return store.backups


def kept(found: dict[str, Consumer]) -> dict[str, Consumer]:
    """Consumers as a backup has them: nobody's, and without claims, which checkpoints that know of some are told."""
    free = {name: consumers.released(each) if each.open else each for name, each in found.items()}
    return {name: msgspec.structs.replace(each, holder="", until=0.0) for name, each in free.items()}


def in_the_way(taken: Sequence[str]) -> str:
    """Queues that a restore would have to replace, in words."""
    names = listed([repr(name) for name in taken])
    return f"the store has queues of these names already: {names}; restore next to them with a prefix (--as PREFIX)"


# Columns.


@cache
def schema() -> Any:
    """Of the rows of messages."""
    import pyarrow as pa

    instant, text, number, flag = pa.timestamp("us", tz="UTC"), pa.string(), pa.int32(), pa.bool_()
    types = {
        "id": text,
        "status": text,
        "value": pa.binary(),
        "content_type": text,
        "headers": pa.map_(text, text),
        "priority": number,
        "attempts": number,
        "own_max_attempts": number,
        "enqueued_at": instant,
        "due": instant,
        "held": flag,
        "crashed": flag,
        "claimed_at": instant,
        "finished_at": instant,
        "result": pa.binary(),
        "error": text,
        "worker": text,
        "expires": instant,
        "history": history.arrow_type(),
    }
    return pa.schema(list(types.items()))


@cache
def keys_schema() -> Any:
    """Of dedup keys."""
    import pyarrow as pa

    return pa.schema([("hash", pa.binary()), ("id", pa.string()), ("left", pa.float64()), ("key", pa.binary())])


def table(rows: Sequence[Row]) -> pa.Table:
    """Rows as columns."""
    import pyarrow as pa

    columns = []
    for field in schema():
        values: list[Any] = [getattr(each, field.name) for each in rows]
        if field.name in _INSTANTS:
            values = [None if value is None else round(value * 1e6) for value in values]
        elif field.name == "headers":
            values = [list(value.items()) if value else None for value in values]
        elif field.name == "history":
            values = [history.to_arrow(value) for value in values]
        columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=schema())


def keys_table(keys: Sequence[Key]) -> pa.Table:
    """Dedup keys as columns."""
    import pyarrow as pa

    known = keys_schema()
    return pa.Table.from_arrays(
        [pa.array([getattr(each, field.name) for each in keys], field.type) for field in known], schema=known
    )


def keys_of(columns: pa.Table) -> list[Key]:
    return [Key(**each) for each in columns.to_pylist()]


def normal(columns: pa.Table) -> pa.Table:
    """Exactly the columns of rows: what is missing is empty, what else there is goes."""
    import pyarrow as pa

    has = columns.schema.names
    return pa.Table.from_arrays(
        [
            columns.column(field.name).cast(field.type)
            if field.name in has
            else pa.chunked_array([pa.nulls(columns.num_rows, field.type)])
            for field in schema()
        ],
        schema=schema(),
    )


def values(columns: pa.Table, name: str) -> list[Any]:
    """One column; instants as seconds, headers as a dict."""
    column = columns.column(name)
    if name in _INSTANTS:
        return [None if each is None else each / 1e6 for each in column.cast("int64").to_pylist()]
    if name == "headers":
        return [dict(each) if each else None for each in column.to_pylist()]
    if name == "history":
        return [each or None for each in history.from_arrow(column)]
    return list(column.to_pylist())


def rows_of(columns: pa.Table) -> list[Row]:
    """The same as `table`, back."""
    fields = {name: values(columns, name) for name in schema().names}
    fields["held"] = [bool(each) for each in fields["held"]]
    fields["crashed"] = [bool(each) for each in fields["crashed"]]
    fields["history"] = [each or () for each in fields["history"]]
    return [Row(**dict(zip(fields, each, strict=True))) for each in zip(*fields.values(), strict=True)]
