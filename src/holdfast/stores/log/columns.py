"""Blocks and archive files as Arrow columns of a view, without a step in Python per row.

What computes is loaded where it is needed: a worker that only writes its archive does without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa

from ... import ids
from ...errors import StoreError
from .. import batches, history
from ..records import Attempt, Stored, View
from . import archive, arrow, damage, rows
from .archive import microseconds
from .calendar import Calendar
from .head import bits
from .names import BlockName, instant_of, parse_block


class Group(msgspec.Struct, frozen=True, array_like=True):
    """Places of a block that share their state. No mask: all of them. `results` as the head packs them."""

    status: str
    attempts: int
    mask: bytes = b""
    visible_at: float | None = None
    finished_at: float | None = None
    error: str | None = None
    worker: str | None = None
    results: list[bytes | None] | None = None
    claimed_at: float | None = None
    past: list[list[Attempt]] | None = None  # what the head remembers, place by place

    @classmethod
    def of_plan(cls, kept: list[object]) -> Group:
        """As a plan had packed it."""
        return msgspec.convert(kept, cls)

    def places(self, count: int) -> Any:
        """The places, in order."""
        mask = int.from_bytes(self.mask, "little")
        return bits.places(mask) if self.mask else range(count)


def of_block(
    key: str,
    data: bytes,
    group: Group,
    *,
    queue: str,
    view: View,
    limit: int,
    calendar: Calendar,
    result: Callable[[bytes], bytes | None],
    hold: str = "",
    only: tuple[str, ...] | None = None,
) -> pa.RecordBatch:
    """The rows of one group; `result` finds what is behind a packed one. Held ones get a column of tokens."""
    name, stored = parse_block(key), damage.read_block(key, rows.columns, data, queue=queue)
    places = group.places(name.count)
    if len(places) < name.count:
        stored = _picked(stored, places)
    source = _Source(name, stored, places, group, calendar)
    made = _assembled(source, queue, _schema(view, only), limit, result)
    if not _shows_tokens(hold, only):
        return made
    ids = made.column("id") if "id" in made.schema.names else source.id()
    return made.append_column("token", _tokens(hold, places, ids))


def _shows_tokens(hold: str, only: tuple[str, ...] | None) -> bool:
    return bool(hold) and (only is None or "token" in only)


def of_settled(
    key: str,
    data: bytes,
    group: Group,
    token: str,
    *,
    queue: str,
    limit: int,
    calendar: Calendar,
    result: Callable[[bytes], bytes | None],
) -> pa.Table:
    """The rows of one group as the archive keeps them."""
    name, stored = parse_block(key), damage.read_block(key, rows.columns, data, queue=queue)
    places = group.places(name.count)
    source = _Source(name, stored if len(places) == name.count else _picked(stored, places), places, group, calendar)
    kept = archive.schema()
    of_view = pa.schema([field for field in kept if field.name not in ("token", "own_max_attempts")])
    made = _assembled(source, queue, of_view, limit, result)
    arrays = {**dict(zip(made.schema.names, made.columns, strict=True)), "token": source.all(token, pa.string())}
    arrays["own_max_attempts"] = source.all(name.max_attempts or None, pa.int32())
    arrays["headers"] = _or_none(arrays["headers"])
    return pa.Table.from_arrays([arrays[name] for name in kept.names], schema=kept)


def _or_none(headers: pa.MapArray) -> pa.MapArray:
    """Headers without a single entry are none, as a record says it."""
    if headers.null_count == len(headers):
        return headers
    import pyarrow.compute as pc

    starts = headers.offsets
    empty = pc.sum(pc.equal(starts[1:], starts[:-1])).as_py()
    return (
        headers
        if empty == headers.null_count
        else arrow.column([each or None for each in headers.to_pylist()], headers.type)
    )


@cache
def _schema(view: View, only: tuple[str, ...] | None) -> pa.Schema:
    """The columns of a view that are needed."""
    schema = batches.arrow_schema(view)
    needed = [field for field in schema if only is None or field.name in only]
    return pa.schema(needed or [schema.field("id")])  # without a column nobody could count the rows


def _tokens(hold: str, places: Any, ids: pa.Array) -> pa.Array:
    """As `leases.py` reads them: the hold, the place, the id."""
    import pyarrow.compute as pc

    place = arrow.column([str(place) for place in places], pa.string())
    return pc.binary_join_element_wise(pa.scalar(hold), place, ids, ".")


def _picked(stored: pa.RecordBatch, places: Any) -> pa.RecordBatch:
    if isinstance(places, range):
        return stored.slice(places.start, len(places))
    return stored.take(arrow.column(places, pa.int32()))


class _Source:
    """The rows of a group, and the columns a view makes of them."""

    def __init__(self, name: BlockName, stored: pa.RecordBatch, places: Any, group: Group, calendar: Calendar) -> None:
        self.name, self.stored, self.places, self.group, self.calendar = name, stored, places, group, calendar
        self.has = set(stored.schema.names)

    def all(self, value: Any, type: Any) -> pa.Array:
        count = len(self.places)
        return pa.nulls(count, type) if value is None else pa.repeat(pa.scalar(value, type), count)

    def column(self, name: str, otherwise: Any) -> pa.Array:
        """A column of the block, or the same value for all."""
        type = batches.arrow_type(name)
        return arrow.as_type(self.stored.column(name), type) if name in self.has else self.all(otherwise, type)

    def id(self) -> pa.Array:
        if "id" in self.has:
            return _dashed(self.stored.column("id"))
        return _made_ids(self.name.block, self.places)

    def attempts(self) -> pa.Array:
        """What happened before the block was written counts on top of what the head says."""
        if "attempts" not in self.has:
            return self.all(self.group.attempts, pa.int32())
        import pyarrow.compute as pc

        before = self.group.attempts - self.name.attempts
        return pc.add(self.stored.column("attempts"), pa.scalar(before, pa.int32()))

    def instant(self, name: str, known: float | None) -> pa.Array:
        if known is None and name in self.has:
            return _instants(self.stored.column(name))
        type = batches.arrow_type(name)
        return self.all(None if known is None else microseconds(known), type)

    def enqueued_at(self) -> pa.Array:
        born = self.calendar.wall(ids.born_at(int(self.name.block, 16)))
        return self.instant("enqueued_at", None if "enqueued_at" in self.has else born)

    def expires(self) -> pa.Array:
        until = self.name.expires
        known = self.calendar.wall(instant_of(until, self.calendar)) if until else None
        return self.instant("expires", known)

    def text(self, name: str, known: str | None) -> pa.Array:
        return self.all(known, pa.string()) if known is not None else self.column(name, None)


def _assembled(
    source: _Source, queue: str, schema: pa.Schema, limit: int, result: Callable[[bytes], bytes | None]
) -> pa.RecordBatch:
    group, name = source.group, source.name
    made: dict[str, Callable[[], pa.Array]] = {
        "id": source.id,
        "queue": lambda: source.all(queue, pa.string()),
        "value": lambda: source.stored.column("payload"),
        "content_type": lambda: source.column("content_type", ""),
        "headers": lambda: source.column("headers", None),
        "priority": lambda: source.column("priority", name.priority),
        "attempt": source.attempts,
        "max_attempts": lambda: source.column("max_attempts", name.max_attempts or limit),
        "enqueued_at": source.enqueued_at,
        "visible_at": lambda: source.instant("visible_at", group.visible_at),
        "status": lambda: source.all(group.status, pa.string()),
        "attempts": source.attempts,
        "expires": source.expires,
        "claimed_at": lambda: source.instant("claimed_at", group.claimed_at),
        "finished_at": lambda: source.instant("finished_at", group.finished_at),
        "worker": lambda: source.text("worker", group.worker),
        "error": lambda: source.text("error", group.error),
        "result": lambda: _results(source, result),
        "history": lambda: _history(source),
    }
    return pa.RecordBatch.from_arrays([made[each]() for each in schema.names], schema=schema)


def _history(source: _Source) -> pa.Array:
    type = history.arrow_type()
    if source.group.past is None:
        return source.column("history", None)
    before: Sequence[Sequence[Attempt]] = [()] * len(source.places)
    if "history" in source.has:
        before = history.from_arrow(source.stored.column("history"))
    both = zip(before, source.group.past, strict=True)
    return arrow.column([history.joined(*each) or None for each in both], type)


def _results(source: _Source, result: Callable[[bytes], bytes | None]) -> pa.Array:
    packed = source.group.results
    if packed is None:
        return source.all(None, pa.binary())
    return arrow.column([None if each is None else result(each) for each in packed], pa.binary())


def _instants(seconds: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.round(pc.multiply(seconds, 1e6)).cast(pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def _dashed(plain: pa.Array) -> pa.Array:
    """Ids of 32 digits as users see them."""
    import pyarrow.compute as pc

    cut = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    parts = [pc.utf8_slice_codeunits(plain, start, stop) for start, stop in cut]
    return pc.binary_join_element_wise(*parts, "-")


@cache
def _offsets(count: int) -> bytes:
    return b"".join((36 * place).to_bytes(4, "little") for place in range(count + 1))


def _made_ids(block: str, places: Any) -> pa.Array:
    """The ids of places in a block, written as one buffer: they all have 36 digits and differ in the last five."""
    prefix = ids.text(int(block, 16))[:-5]
    ends = ids.suffixes()
    known = len(ends)
    texts = [prefix + (ends[place] if place < known else f"{place:05x}") for place in places]
    data = "".join(texts).encode()
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(_offsets(len(texts))), pa.py_buffer(data))


def of_file(data: bytes, view: View, only: tuple[str, ...] | None = None) -> list[pa.RecordBatch]:
    """The rows of an archive file."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(data))
    archive.check_format(file.schema_arrow)
    schema = _schema(view, only)
    wanted = [name for name in file.schema_arrow.names if name in schema.names or name == "attempts"]
    found = []
    for batch in file.iter_batches(batch_size=4000, columns=wanted):
        named = {name: batch.column(name) for name in wanted}
        named["attempt"] = named["attempts"]
        arrays = [
            named[each.name].cast(each.type) if each.name in named else pa.nulls(len(batch), each.type)  # an older file
            for each in schema
        ]
        found.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return found


def of_records(
    found: Mapping[int, Stored],
    group: Group,
    *,
    queue: str,
    view: View,
    hold: str = "",
    only: tuple[str, ...] | None = None,
) -> pa.RecordBatch:
    """Messages found one by one, by their places, in the state of the group; with tokens as `of_block` has them."""
    made = _of_records(list(found.values()), group, queue, _schema(view, only))
    if not _shows_tokens(hold, only):
        return made
    ids = arrow.column([each.id for each in found.values()], pa.string())
    return made.append_column("token", _tokens(hold, found, ids))


def _of_records(found: Sequence[Stored], group: Group, queue: str, schema: pa.Schema) -> pa.RecordBatch:
    told = {
        "queue": queue,
        "status": group.status,
        "attempt": group.attempts,
        "attempts": group.attempts,
        "visible_at": group.visible_at and microseconds(group.visible_at),
        "error": group.error,
        "worker": group.worker,
        "result": None,
    }
    columns = []
    for field in schema:
        if field.name in told:
            values: list[Any] = [told[field.name]] * len(found)
        elif field.name.endswith("_at"):
            values = [_microseconds_of(getattr(each, field.name)) for each in found]
        elif field.name == "headers":
            values = [list(each.headers.items()) if each.headers else None for each in found]
        elif field.name == "history":
            values = [each.history or None for each in found]
        else:
            values = [getattr(each, "payload" if field.name == "value" else field.name) for each in found]
        columns.append(arrow.column(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _microseconds_of(seconds: float | None) -> int | None:
    return None if seconds is None else microseconds(seconds)


def missing(what: str) -> StoreError:
    return StoreError(
        f"{what} left the store after this read was planned, and its messages were not kept: read again, or set the "
        "option failOnDataLoss to false to go without them"
    )
