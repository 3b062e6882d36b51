"""Blocks as bytes: columns of messages, as Arrow IPC, or as msgpack where a handful of rows is not worth a schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from ...errors import StoreError
from .. import history
from ..records import Attempt
from . import arrow, frames
from .space import Buffer

MOVED_FROM = "dead_from"  # a header: the queue whose dead letter a message was
FORMAT = 1
ARROW_FROM = 16  # rows; below, an Arrow stream costs more than it holds
RAW = "application/octet-stream"
_ARROW_START = b"\xff\xff\xff\xff"


class Rows(msgspec.Struct, gc=False):
    """Messages by column. A column that is None is empty; `content_type` is one for all or a list.

    A producer's block has the first three. Blocks that a flush writes carry the rest: ids (32 hex digits) and
    what happened so far.
    """

    payload: list[bytes]
    content_type: str | list[str]
    headers: list[dict[str, str] | None] | None = None
    id: list[str] | None = None
    enqueued_at: list[float] | None = None
    priority: list[int] | None = None
    attempts: list[int] | None = None
    max_attempts: list[int] | None = None
    error: list[str | None] | None = None
    finished_at: list[float | None] | None = None
    worker: list[str | None] | None = None
    token: list[str | None] | None = None
    claimed_at: list[float | None] | None = None
    expires: list[float | None] | None = None  # of dead letters: a live block's name says it
    history: list[list[Attempt] | None] | None = None  # only in msgpack: the version before reads over it there

    def __len__(self) -> int:
        return len(self.payload)

    def content_type_at(self, place: int) -> str:
        return self.content_type if isinstance(self.content_type, str) else self.content_type[place]

    def place_of(self, id: str) -> int | None:
        """Where an id (32 hex digits) stands in a block that stores ids."""
        assert self.id is not None
        try:
            return self.id.index(id)
        except ValueError:
            return None


_BESIDES = Rows.__struct_fields__[2:]


class _Wire(msgspec.Struct, array_like=True, gc=False):
    format: int
    rows: Rows


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[msgspec.Raw])
_rows_decoder = msgspec.msgpack.Decoder(Rows)


def encode(rows: Rows, *, plain: bool = False) -> Buffer:
    """The bytes of a block. Unless they are to be `plain` this may load pyarrow, so: not in an event loop."""
    if len(rows) < ARROW_FROM:
        return _encoder.encode(_Wire(FORMAT, rows))
    if _is_payloads(rows):
        return frames.encode(rows.payload, cast(str, rows.content_type))
    return _encoder.encode(_Wire(FORMAT, rows)) if plain or rows.history else _stream(_batch(rows))


def encode_at_once(rows: Rows) -> Buffer:
    """The same in an event loop: until pyarrow is there, any number of rows is written without it."""
    needs_arrow = len(rows) >= ARROW_FROM and not _is_payloads(rows)
    return encode(rows, plain=needs_arrow and not arrow.is_ready())


def waits_to_decode(data: bytes) -> bool:
    """Whether `decode` would load pyarrow first, which begins now in a thread."""
    return data.startswith(_ARROW_START) and not frames.is_known(data) and not arrow.is_ready()


def decode(data: bytes) -> Rows:
    """The rows of a block; a newer format is refused."""
    if data.startswith(_ARROW_START):
        found = frames.decode(data)
        return Rows(*found) if found is not None else _decode_arrow(data)
    format, *parts = _decoder.decode(data)
    _check_format(msgspec.msgpack.decode(format, type=int))
    return _rows_decoder.decode(parts[0])


def _check_format(format: int) -> None:
    if format > FORMAT:
        raise StoreError(f"a block has format {format}, this version reads up to {FORMAT}: upgrade holdfast")


def _is_payloads(rows: Rows) -> bool:
    """Payloads of one content type and nothing else."""
    return isinstance(rows.content_type, str) and all(getattr(rows, name) is None for name in _BESIDES)


def _stream(batch: Any) -> Buffer:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue())


def _batch(rows: Rows) -> Any:
    import pyarrow as pa

    columns, fields = [], []
    for name, type in _column_types().items():
        column = getattr(rows, name)
        if isinstance(column, list):
            columns.append(arrow.column(_items(name, column), type()))
            fields.append(pa.field(name, type()))
    notes = {"holdfast": str(FORMAT)}
    if isinstance(rows.content_type, str):
        notes["content_type"] = rows.content_type
    return pa.record_batch(columns, schema=pa.schema(fields, metadata=notes))


def of_columns(payload: Any, content_type: Any, headers: Any) -> Buffer:
    """A block of columns that are Arrow arrays already; the last two may be None."""
    import pyarrow as pa

    notes, columns, fields = (
        {"holdfast": str(FORMAT), "content_type": RAW},
        [payload],
        [pa.field("payload", pa.binary())],
    )
    if content_type is not None:
        kinds = content_type.unique()
        if len(kinds) == 1:
            notes["content_type"] = kinds[0].as_py()
        else:
            del notes["content_type"]
            columns.append(content_type)
            fields.append(pa.field("content_type", pa.string()))
    if headers is not None and headers.null_count < len(headers):
        columns.append(headers)
        fields.append(pa.field("headers", headers.type))
    return _stream(pa.record_batch(columns, schema=pa.schema(fields, metadata=notes)))


def some(data: bytes, places: Sequence[int]) -> Buffer:
    """A block of some of the rows of another."""
    import pyarrow as pa

    batch = columns(data).take(arrow.column(places, pa.int32()))
    has = batch.schema.names
    return of_columns(
        batch.column("payload"), batch.column("content_type"), batch.column("headers") if "headers" in has else None
    )


def columns(data: bytes) -> Any:
    """The rows of a block as an Arrow record batch of the columns it has; the content type always among them."""
    import pyarrow as pa

    if data.startswith(_ARROW_START):
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=True)  # bytes that lie about their lengths must not be followed
    else:
        batch = _batch(decode(data))
    notes = batch.schema.metadata or {}
    _check_format(int(notes.get(b"holdfast", b"1")))
    if "content_type" in batch.schema.names:
        return batch
    same = pa.repeat(notes.get(b"content_type", b"").decode(), batch.num_rows)
    return batch.append_column("content_type", same)


def _decode_arrow(data: bytes) -> Rows:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        notes = reader.schema.metadata or {}
        _check_format(int(notes.get(b"holdfast", b"1")))
        table = reader.read_all()
    table.validate(full=True)  # bytes that lie about their lengths must not be followed
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    if "headers" in columns:
        columns["headers"] = [None if items is None else dict(items) for items in columns["headers"]]
    columns.setdefault("content_type", notes.get(b"content_type", b"").decode())
    return Rows(**columns)


def _items(name: str, column: Sequence[Any]) -> Sequence[Any]:
    return [None if each is None else list(each.items()) for each in column] if name == "headers" else column


def _column_types() -> dict[str, Callable[[], Any]]:
    import pyarrow as pa

    return {
        "payload": pa.binary,
        "content_type": pa.string,
        "headers": lambda: pa.map_(pa.string(), pa.string()),
        "id": pa.string,
        "enqueued_at": pa.float64,
        "priority": pa.int16,
        "attempts": pa.int32,
        "max_attempts": pa.int32,
        "error": pa.string,
        "finished_at": pa.float64,
        "worker": pa.string,
        "token": pa.string,
        "claimed_at": pa.float64,
        "expires": pa.float64,
        "history": history.arrow_type,
    }
