"""What rows look like: Spark's types of the views, and record batches made to fit them exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from ..errors import ConfigError
from ..queue_reports import ConsumerReport
from ..stores import batches
from ..stores.records import Stats, View

if TYPE_CHECKING:
    import pyarrow as pa

    from .options import Reading

RECEIPT = "receipt"
_NOT_COUNTED = ("oldest_age", "exact", "usage", "set_aside", "slots_fired", "slots_missed")
_COUNTS = tuple(name for name in Stats.__struct_fields__ if name not in _NOT_COUNTED)


def of_view(view: View) -> StructType:
    schema = StructType()
    for name in batches.columns(view):
        schema.add(name, type_of(name))
    return schema


def of_stats() -> StructType:
    schema = StructType().add("queue", StringType())
    for name in _COUNTS:
        schema.add(name, LongType())
    return schema.add("oldest_age", DoubleType()).add("exact", BooleanType()).add("at", TimestampType())


def of_consumers() -> StructType:
    """What `holdfast pipeline consumers` shows."""
    schema = StructType()
    for field in msgspec.structs.fields(ConsumerReport):
        schema.add(field.name, {int: LongType, float: DoubleType, str: StringType}[field.type]())
    return schema.add("at", TimestampType())


def of_read(options: Reading) -> StructType:
    """What a batch read gives."""
    if options.summary is None:
        return of_view(options.view)
    return of_stats() if options.summary == "stats" else of_consumers()


def of_stream(*, receipts: bool) -> StructType:
    """A claimed message; with its receipt it can be settled by itself."""
    schema = StructType()
    for name in (*batches.BASE, RECEIPT) if receipts else batches.BASE:
        schema.add(name, type_of(name))
    return schema


def type_of(column: str) -> DataType:
    if column.endswith("_at") or column == "expires":
        return TimestampType()
    if column == "history":
        one = StructType().add("start", TimestampType()).add("end", TimestampType())
        return ArrayType(one.add("worker", StringType()).add("error", StringType()))
    if column in ("priority", "attempt", "attempts", "max_attempts"):
        return IntegerType()
    if column in ("value", "result"):
        return BinaryType()
    return MapType(StringType(), StringType()) if column == "headers" else StringType()


def check(given: StructType, known: StructType, what: str) -> None:
    """A schema of the user's own may leave columns out, and nothing else; ConfigError."""
    types = {field.name: field.dataType for field in known.fields}
    for field in given.fields:
        if field.name not in types:
            raise ConfigError(f"{what} has no column {field.name!r}; it has {', '.join(types)}")
        if field.dataType != types[field.name]:
            want, have = types[field.name].simpleString(), field.dataType.simpleString()
            raise ConfigError(f"{what}: the column {field.name!r} is {want}, not {have}; cast it after reading")


class Fitting:
    """Makes record batches exactly what Spark expects of a schema: names, order, types and nullability."""

    def __init__(self, schema: StructType) -> None:
        self._schema: Any = to_arrow_schema(schema, timezone="UTC")

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        columns = []
        for field in self._schema:
            column = batch.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def rows(self, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
        """A few rows, given as dicts."""
        import pyarrow as pa

        arrays = [pa.array([row[field.name] for row in rows], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
