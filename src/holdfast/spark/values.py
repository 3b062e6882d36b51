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
from .error_text import plain
from .portable import Portable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Bad: TypeAlias = Literal["fail", "null"]

ERROR, BAD_VALUE, BAD_TYPE = "unpack_error", "unpack_value", "unpack_content_type"
_TOLD = (ERROR, BAD_VALUE, BAD_TYPE)
# The columns of our own rows: `pack` leaves them as they are.
OWN = (
    *("id", "queue", "value", "content_type", "headers", "priority", "attempt", "max_attempts", "enqueued_at"),
    *("visible_at", "status", "attempts", "claimed_at", "finished_at", "worker", "result", "error"),
    *("expires", "history"),
    *("deliver_at", "dedup_key"),
)
_BAD = ("fail", "null")
_NATIVE = (bytes, bytearray, datetime, date, Decimal)  # what Arrow takes as it is


def unpack(df: DataFrame, type: Any, *, into: str | None = None, bad: Bad = "fail") -> DataFrame:
    """The rows with the fields of each value as columns instead of `value` and `content_type`.

    `type` is what a typed queue takes: a Struct, dataclass, TypedDict, pydantic model or protobuf message; the payload
    is read as its content type says (JSON, msgpack, protobuf). `into` puts the fields in one struct column of that
    name. A value that cannot be read, or has a number or a date that no column holds, fails the query; with
    `bad="null"` its columns are null, `unpack_error` says why, and `unpack_value` and `unpack_content_type` have what
    it was.
    """
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    if bad not in _BAD:
        raise ConfigError(unknown("bad: unknown way", bad, _BAD))
    _need(df, "value", "content_type")
    columns = shapes.shape(type)
    kept = [field for field in df.schema.fields if field.name not in ("value", "content_type", *_TOLD)]
    made = columns.fields if into is None else [StructField(into, columns)]
    kinds = (StringType(), BinaryType(), StringType())
    said = [StructField(*each) for each in zip(_TOLD, kinds, strict=True)] if bad == "null" else []
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
    kept = [field for field in df.schema.fields if field.name not in (*chosen, "value", "content_type", *_TOLD)]
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

    @plain
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        arrow = to_arrow_schema(self._schema, timezone="UTC")
        rows = Rows(self._portable.type, keeps=self._keeps)
        for batch in batches:
            payloads, kinds = batch["value"].to_pylist(), batch["content_type"].to_pylist()
            ids = batch["id"].to_pylist() if "id" in batch.schema.names else []
            made, errors = rows.of(payloads, kinds, ids)
            values = [made] if self._nested else made.flatten()
            columns = [*(batch[name] for name in self._names), *values]
            if self._keeps:
                columns += [
                    pa.array(errors, pa.string()),
                    _where(errors, batch["value"]),
                    _where(errors, batch["content_type"]),
                ]
            yield pa.RecordBatch.from_arrays(
                [column.cast(field.type) for column, field in zip(columns, arrow, strict=True)], schema=arrow
            )


class Rows:
    """Payloads as an array of structs, and what is wrong with those that cannot be one."""

    def __init__(self, type: Any, *, keeps: bool) -> None:
        struct = shapes.shape(type)
        self._decode, self._plain = codec_for(type, None).decode, _plain_reader(type)
        self._shape_up, self._kind = shapes.plainer(struct), _struct(struct)
        self._keeps = keeps

    def of(self, payloads: list[Any], kinds: list[Any], ids: list[Any]) -> tuple[pa.StructArray, list[str | None]]:
        import pyarrow as pa

        rows: list[Any] = []
        errors: list[str | None] = []
        for number, (payload, kind) in enumerate(zip(payloads, kinds, strict=True)):
            row, error = self._one(payload, kind)
            if error and not self._keeps:
                raise CodecError(f"message {ids[number]}: {error}" if ids else error)
            rows.append(row)
            errors.append(error)
        try:
            return pa.array(rows, self._kind), errors
        except Exception:  # noqa: BLE001 - one of them is more than a column holds; which one is seen one by one
            return self._one_by_one(rows, errors, ids)

    def _one(self, payload: Any, kind: Any) -> tuple[Any, str | None]:
        if payload is None or kind is None:
            return None, "there is no value" if payload is None else "the content type is null"
        try:
            return self._shape_up(self._plain(self._decode(payload, kind))), None
        except CodecError as error:
            return None, str(error)
        except Exception as error:  # noqa: BLE001 - whatever a value does to its reader, it is that value's fault
            return None, f"it cannot be made columns of: {_first_line(error)}"

    def _one_by_one(
        self, rows: list[Any], errors: list[str | None], ids: list[Any]
    ) -> tuple[pa.StructArray, list[str | None]]:
        import pyarrow as pa

        for number, row in enumerate(rows):
            try:
                pa.array([row], self._kind)
            except Exception as error:
                said = f"it does not fit its columns: {_first_line(error)}"
                if not self._keeps:
                    raise CodecError(f"message {ids[number]}: {said}" if ids else said) from error
                rows[number], errors[number] = None, said
        return pa.array(rows, self._kind), errors


def _where(errors: list[str | None], column: pa.Array) -> pa.Array:
    """The column where there is an error, null elsewhere."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pa.array([error is not None for error in errors]), column, pa.scalar(None, column.type))


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


class _Packing:
    def __init__(self, type: Any, codec: str | None) -> None:
        self._portable = Portable(type)
        self._codec = codec

    @plain
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
    found = [name for name in df.columns if name not in (*OWN, *_TOLD)]
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
