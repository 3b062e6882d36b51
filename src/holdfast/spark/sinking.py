"""Columns on their way into a queue: checked when a write is planned, brought into our own form by its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from .. import config, limits
from ..codecs import RAW
from ..errors import CodecError, ConfigError, InvalidPriority, MessageTooLarge
from ..stores.batches import arrow_type, columns
from ..stores.records import JSON

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "value": (BinaryType, StringType),
    "content_type": (StringType,),
    "headers": (MapType,),
    "priority": (ByteType, ShortType, IntegerType, LongType),
    "deliver_at": (TimestampType,),
    "dedup_key": (StringType,),
    "queue": (StringType,),
}
_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
_IGNORED = frozenset((*columns("ready"), *columns("archive"), "receipt")).difference(_TYPES)


def check(schema: StructType, *, named: bool) -> None:
    """That the columns are those of a message; ConfigError."""
    names = schema.fieldNames()
    if "value" not in names:
        raise ConfigError(
            f"a message needs a column `value` (binary or string); there are {', '.join(names) or 'none'}"
        )
    if not named and "queue" not in names:
        raise ConfigError('which queue? Name it: save("emails") or start("emails"), or give each row a column `queue`')
    for field in schema.fields:
        if field.name in _IGNORED:
            continue
        if field.name not in _TYPES:
            raise ConfigError(config.unknown("a message has no column", field.name, _TYPES))
        if not isinstance(field.dataType, _TYPES[field.name]) or not _of_text(field.dataType):
            have, want = (
                field.dataType.simpleString(),
                " or ".join(each().simpleString() for each in _TYPES[field.name] if each is not MapType),
            )
            raise ConfigError(f"the column {field.name!r} is {have}; a message needs {want or 'map<string,string>'}")


def _of_text(type: DataType) -> bool:
    """Headers are text by text."""
    inner = (type.keyType, type.valueType) if isinstance(type, MapType) else ()
    return all(isinstance(each, StringType) for each in inner)


def normal(batch: pa.RecordBatch, *, most: int, content_type: str | None = None) -> pa.RecordBatch:
    """The columns a store stages; bad values are told before anything is written. `content_type` is of rows without."""
    import pyarrow as pa

    made: dict[str, Any] = {}
    for name in ("value", "content_type", "headers", "priority", "deliver_at", "dedup_key"):
        if name in batch.schema.names:
            type = pa.timestamp("us", tz="UTC") if name == "deliver_at" else arrow_type(name)
            made[name] = batch.column(name).cast(type)
    if content_type is not None:
        kinds = made.get("content_type", pa.nulls(batch.num_rows, pa.string()))
        made["content_type"] = kinds.fill_null(content_type)
    given = batch.column("value")
    if pa.types.is_string(given.type) or pa.types.is_large_string(given.type):
        made["value"], made["content_type"] = _texts_as_payloads(given, made.get("content_type"))
    elif "content_type" in made:
        made["content_type"] = made["content_type"].fill_null(RAW)
    _check_values(made, most)
    return pa.RecordBatch.from_arrays(list(made.values()), names=list(made))


def _texts_as_payloads(texts: pa.Array, kinds: pa.Array | None) -> tuple[pa.Array, pa.Array]:
    """Payloads of text and their content types. Text that nobody says more of is what a worker gets: a text."""
    import pyarrow as pa

    said: list[str | None] = [None] * len(texts) if kinds is None else kinds.to_pylist()
    made = [
        None if text is None else _encode(text) if kind is None else _checked(text, kind)
        for text, kind in zip(texts.to_pylist(), said, strict=True)
    ]
    return pa.array(made, pa.binary()), pa.array([JSON if kind is None else kind for kind in said], pa.string())


def _checked(text: str, kind: str) -> bytes:
    """The text as it is; CodecError when it is to be JSON and is none."""
    if kind == JSON:
        try:
            _decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise CodecError(
                f"a value is no JSON ({error}), and its content type is {JSON}: without a content type text is "
                "written as the text that it is"
            ) from error
    return text.encode()


def _check_values(made: dict[str, Any], most: int) -> None:
    import pyarrow.compute as pc

    if made["value"].null_count:
        raise CodecError(
            f"`value` is null in {made['value'].null_count} rows; a message needs one, if only an empty one"
        )
    longest = pc.max(pc.binary_length(made["value"])).as_py() or 0
    if longest > most:
        raise MessageTooLarge(
            f"a message of {longest} bytes; the limit of the queue is {most}", actual=longest, limit=most
        )
    if "priority" in made:
        bounds = pc.min_max(made["priority"]).as_py()
        for each in bounds.values():
            if each is not None and not 0 <= each <= 255:
                raise InvalidPriority(f"a priority is a whole number from 0 to 255, not {each}")
    if "headers" in made:
        _check_headers(made["headers"])
    if "dedup_key" in made:
        limits.check_dedup_key(_longest("dedup_key", made["dedup_key"]))
        if pc.min(pc.binary_length(made["dedup_key"])).as_py() == 0:
            raise ConfigError("dedup_key must not be empty; null is none")
    if "content_type" in made:
        limits.check_content_type(_longest("content_type", made["content_type"]))
        _check_nesting(made["value"], made["content_type"])


def _check_headers(headers: pa.MapArray) -> None:
    """Of every row: text to text, within the limit in all."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys, texts, offsets = headers.keys, headers.items, headers.offsets
    if texts.null_count:
        raise ConfigError("headers: a mapping of text to text; there are values that are null")
    for name, column in (("headers", keys), ("headers", texts)):
        _longest(name, column)
    sizes = pc.add(pc.binary_length(keys), pc.binary_length(texts)).cast(pa.int64())
    upto = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])
    rows = pc.subtract(upto.take(offsets[1:]), upto.take(offsets[:-1]))
    limits.check_headers(pc.max(rows).as_py() or 0)


def _longest(name: str, column: pa.Array) -> int:
    """The bytes of the longest text; ConfigError for what not every store can keep."""
    import pyarrow.compute as pc

    if pc.any(pc.match_substring(column, "\0")).as_py():
        raise ConfigError(f"{name}: NUL is not allowed")
    return pc.max(pc.binary_length(column)).as_py() or 0


def _check_nesting(values: pa.Array, kinds: pa.Array) -> None:
    """That JSON can be read again."""
    import pyarrow.compute as pc

    long = pc.and_(pc.greater(pc.binary_length(values), limits.SURE_BYTES), pc.equal(kinds, JSON))
    for value in values.filter(long):
        limits.check_nesting(value.as_py())


def by_queue(batch: pa.RecordBatch, name: str | None) -> list[tuple[str, pa.RecordBatch]]:
    """Rows by the queue they go to: the named one wins."""
    import pyarrow.compute as pc

    if name is not None:
        return [(name, batch)]
    column = batch.column("queue")
    if column.null_count:
        raise ConfigError(f"`queue` is null in {column.null_count} rows, and no queue was named")
    names = [config.queue_name(each) for each in column.unique().to_pylist()]
    return [(each, batch.filter(pc.equal(column, each)) if len(names) > 1 else batch) for each in sorted(names)]
