"""`unpack` and `pack`: the payloads of messages as columns, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ..codecs import Codec, codec_for, protobuf
from ..codecs.types import adapter, uses_pydantic
from ..config import unknown
from ..errors import CodecError, ConfigError
from . import shapes
from .portable import Portable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Bad: TypeAlias = Literal["fail", "null"]

ERROR = "unpack_error"
# The columns of our own rows: `pack` leaves them as they are.
OWN = (
    *("id", "queue", "value", "content_type", "headers", "priority", "attempt", "max_attempts", "enqueued_at"),
    *("visible_at", "status", "attempts", "claimed_at", "finished_at", "worker", "result", "error"),
    *("deliver_at", "dedup_key"),
)
_BAD = ("fail", "null")
_NATIVE = (bytes, bytearray, datetime, date, Decimal)  # what Arrow takes as it is


def unpack(df: DataFrame, type: Any, *, into: str | None = None, bad: Bad = "fail") -> DataFrame:
    """The rows with the fields of each value as columns instead of `value` and `content_type`.

    `type` is what a typed queue takes: a Struct, dataclass, TypedDict, pydantic model or protobuf message; the payload
    is read as its content type says (JSON, msgpack, protobuf). `into` puts the fields in one struct column of that
    name. A value that cannot be read fails the query; with `bad="null"` its columns are null and `unpack_error`
    says why.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    if bad not in _BAD:
        raise ConfigError(unknown("bad: unknown way", bad, _BAD))
    _need(df, "value", "content_type")
    columns = shapes.shape(type)
    kept = [field for field in df.schema.fields if field.name not in ("value", "content_type", ERROR)]
    made = columns.fields if into is None else [StructField(into, columns)]
    said = [StructField(ERROR, StringType())] if bad == "null" else []
    _no_clash([field.name for field in kept], [field.name for field in made])
    schema = StructType([*kept, *made, *said])
    names = [field.name for field in kept]
    return df.mapInArrow(_Unpacking(type, names, schema, nested=into is not None, keeps=bad == "null"), schema)


def pack(
    df: DataFrame, type: Any = None, *, codec: str | None = None, columns: str | Sequence[str] | None = None
) -> DataFrame:
    """The rows with `value` and `content_type` instead of the columns that make the value.

    `columns` names them, or the one struct column that holds them; without it they are all that are not columns of a
    row of ours (id, priority, headers …). With a type every value is checked and written as a typed queue would write
    it; without one it is an object of JSON (`codec="msgpack"`: of msgpack).
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    codec_for(type, codec)  # a bad codec is said here, not on an executor
    chosen = _value_columns(df, columns)
    kept = [field for field in df.schema.fields if field.name not in (*chosen, "value", "content_type", ERROR)]
    if isinstance(columns, str):
        body: Any = F.col(_quoted(columns))
        if not isinstance(df.schema[columns].dataType, StructType):
            raise ConfigError(f"pack: the column {columns!r} is no struct; give a list of columns")
    else:
        body = F.struct(*[F.col(_quoted(name)) for name in chosen])
    shaped = df.select(*[F.col(_quoted(field.name)) for field in kept], body.alias("value"))
    schema = StructType([*kept, StructField("value", BinaryType()), StructField("content_type", StringType())])
    return shaped.mapInArrow(_Packing(type, codec), schema)


class _Unpacking:
    """What executors do; made on the driver, so that nothing but the type travels."""

    def __init__(self, type: Any, names: list[str], schema: Any, *, nested: bool, keeps: bool) -> None:
        self._portable = Portable(type)
        self._names = names
        self._schema = schema
        self._nested = nested
        self._keeps = keeps

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        type = self._portable.type
        decode, plain = codec_for(type, None).decode, _plain_reader(type)
        arrow = to_arrow_schema(self._schema, timezone="UTC")
        struct = shapes.shape(type)
        shape_up, kind_of_rows = shapes.plainer(struct), _struct(struct)
        for batch in batches:
            rows: list[Any] = []
            errors: list[str | None] = []
            for payload, kind in zip(batch["value"].to_pylist(), batch["content_type"].to_pylist(), strict=True):
                try:
                    rows.append(shape_up(plain(decode(payload, kind))))
                    errors.append(None)
                except CodecError as error:
                    if not self._keeps:
                        raise
                    rows.append(None)
                    errors.append(str(error))
            made = pa.array(rows, kind_of_rows)
            values = [made] if self._nested else made.flatten()
            told = [pa.array(errors, pa.string())] if self._keeps else []
            columns = [*(batch[name] for name in self._names), *values, *told]
            yield pa.RecordBatch.from_arrays(
                [column.cast(field.type) for column, field in zip(columns, arrow, strict=True)], schema=arrow
            )


class _Packing:
    def __init__(self, type: Any, codec: str | None) -> None:
        self._portable = Portable(type)
        self._codec = codec

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        type = self._portable.type
        codec: Codec[Any] = codec_for(type, self._codec)
        make = _maker(type)
        for batch in batches:
            payloads, kinds = [], []
            for row in batch["value"].to_pylist(maps_as_pydicts="strict"):
                payload, kind = codec.encode(make(row))
                payloads.append(payload)
                kinds.append(kind)
            names = [name for name in batch.schema.names if name != "value"]
            columns = [batch[name] for name in names]
            made = [pa.array(payloads, pa.binary()), pa.array(kinds, pa.string())]
            yield pa.RecordBatch.from_arrays([*columns, *made], names=[*names, "value", "content_type"])


def _struct(columns: Any) -> Any:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(columns, timezone="UTC")


def _plain_reader(type: Any) -> Callable[[Any], Any]:
    """From a decoded value to plain dicts, with dates, bytes and decimals as they are."""
    if protobuf.is_message(type):
        return _from_message
    if uses_pydantic(type):
        dump = adapter(type).dump_python
        return lambda value: dump(value, by_alias=True)
    return lambda value: msgspec.to_builtins(value, builtin_types=_NATIVE)


def _from_message(message: Any) -> dict[str, Any]:
    return {field.name: _proto_value(field, getattr(message, field.name)) for field in message.DESCRIPTOR.fields}


def _proto_value(field: Any, value: Any) -> Any:
    nested = field.message_type
    if nested is not None and nested.GetOptions().map_entry:
        inner = nested.fields_by_name["value"]
        return {str(key): _from_message(each) if inner.message_type else each for key, each in value.items()}
    if hasattr(value, "append") or hasattr(value, "add"):
        return [_from_message(each) if nested else each for each in value]
    return _from_message(value) if nested else value


def _maker(type: Any) -> Callable[[dict[str, Any]], Any]:
    """From a row to a value of the type; what does not fit is a CodecError."""
    if type is None:
        return lambda row: row
    if protobuf.is_message(type):
        return lambda row: _checked(lambda: type(**{key: each for key, each in row.items() if each is not None}))
    if uses_pydantic(type):
        validate = adapter(type).validate_python
        return lambda row: _checked(lambda: validate(row))
    return lambda row: _checked(lambda: msgspec.convert(row, type, builtin_types=_NATIVE))


def _checked(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (ValueError, TypeError) as error:  # msgspec's and pydantic's ValidationErrors are ValueErrors
        raise CodecError(f"a row does not fit the type: {error}") from error


def _value_columns(df: DataFrame, columns: str | Sequence[str] | None) -> list[str]:
    if isinstance(columns, str):
        _need(df, columns)
        return [columns]
    if columns is not None:
        _need(df, *columns)
        return list(columns)
    found = [name for name in df.columns if name not in (*OWN, ERROR)]
    if not found:
        raise ConfigError("pack: every column is one of a message; name those that make the value with columns=")
    return found


def _need(df: DataFrame, *names: str) -> None:
    for name in names:
        if name not in df.columns:
            raise ConfigError(unknown("there is no column", name, df.columns))


def _no_clash(kept: Sequence[str], made: Sequence[str]) -> None:
    if clash := sorted({*kept} & {*made}):
        raise ConfigError(
            f'{", ".join(clash)}: both the message and its value have that; say into="…" for a struct column, '
            "or drop the message's own columns first"
        )


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
