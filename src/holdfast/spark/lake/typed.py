"""A table of a queue's typed fields: its columns, and rows made of messages.

The fields come first, then what is kept of the message under `message_…`; `message_id` says which one a row is of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pyspark.sql import types as sql
from pyspark.sql.pandas.types import to_arrow_schema

from ... import config
from ...codecs.types import name_of
from ...errors import ConfigError
from ...stores.batches import BASE
from .. import schema, shapes
from ..portable import Portable
from ..values import Rows
from .delta import Spec
from .lake import DAY
from .writing import MESSAGE_ID

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX = "message_"
KEPT = ("enqueued_at",)  # unless somebody says what
_CAN_KEEP = tuple(name for name in BASE if name not in ("id", "value", "content_type"))
_NOT_IN_NAMES = " ,;{}()\n\t="  # what neither Delta nor Spark's Parquet takes


class Made(NamedTuple):
    """The rows of messages that could be read, and of the others the number in the batch and the reason."""

    rows: pa.Table
    bad: list[tuple[int, str]]


class Layout:
    """How messages become rows. It travels to executors."""

    def __init__(self, type: Any, *, keep: Sequence[str] = KEPT, by_day: bool = False) -> None:
        for name in keep:
            if name not in _CAN_KEEP:
                raise ConfigError(config.unknown("keep: a message has no column", name, _CAN_KEEP))
        self._portable = Portable(type)
        self.keep = tuple(dict.fromkeys(keep))
        self.by_day = by_day
        self._reader: Rows | None = None  # made where it is used
        self._arrow: Any = None
        self.columns  # noqa: B018 - raises when a type cannot be columns

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_reader": None, "_arrow": None}

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns of a message that rows are made of."""
        return tuple(dict.fromkeys(("id", "value", "content_type", *self.keep, *KEPT[: self.by_day])))

    @property
    def partitions(self) -> tuple[str, ...]:
        return (DAY,) if self.by_day else ()

    @property
    def columns(self) -> sql.StructType:
        """What Spark calls them; ConfigError for a type that cannot be a table."""
        type = self._portable.type
        fields = shapes.shape(type)
        _check(name_of(type), fields)
        own = [sql.StructField(MESSAGE_ID, sql.StringType())]
        own += [sql.StructField(PREFIX + name, schema.type_of(name)) for name in self.keep]
        own += [sql.StructField(DAY, sql.DateType())] if self.by_day else []
        taken = {field.name.lower() for field in fields}
        if clash := [field.name for field in own if field.name.lower() in taken]:
            raise ConfigError(f"{name_of(type)} has a field {clash[0]!r}, which the table needs for itself")
        return sql.StructType([*fields.fields, *own])

    @property
    def spec(self) -> Spec:
        return Spec(tuple((field.name, field.dataType.jsonValue()) for field in self.columns), self.partitions)

    def made(self, batch: pa.RecordBatch) -> Made:
        """Rows of the table for messages."""
        import pyarrow as pa

        if self._reader is None:
            self._reader, self._arrow = (
                Rows(self._portable.type, keeps=True),
                to_arrow_schema(self.columns, timezone="UTC"),
            )
        values, errors = self._reader.of(batch["value"].to_pylist(), batch["content_type"].to_pylist(), [])
        good = pa.array([error is None for error in errors], pa.bool_())
        fields = values.filter(good)
        own = {PREFIX + name: batch[name].filter(good) for name in self.keep}
        if self.by_day:
            own[DAY] = batch["enqueued_at"].filter(good).cast(pa.timestamp("us", tz="UTC")).cast(pa.date32())
        arrays = [*fields.flatten(), batch["id"].filter(good), *own.values()]
        made = [array.cast(field.type) for array, field in zip(arrays, self._arrow, strict=True)]
        type = name_of(self._portable.type)
        bad = [(at, f"it cannot be read as {type}: {error}") for at, error in enumerate(errors) if error is not None]
        return Made(pa.table(made, schema=self._arrow), bad)


def differences(there: str, wanted: str) -> str:
    """What two descriptions of columns, as Delta writes them down, disagree about; empty when they agree."""
    one, other = (
        {field["name"]: field["type"] for field in msgspec.json.decode(text)["fields"]} for text in (there, wanted)
    )
    return "; ".join(_different(one, other))


def _different(there: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    for name in there.keys() | wanted.keys():
        if name not in there:
            yield f"it has no column {name!r}"
        elif name not in wanted:
            yield f"its column {name!r} is new to this job"
        elif there[name] != wanted[name]:
            yield f"its column {name!r} is {_short(there[name])}, not {_short(wanted[name])}"


def _short(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind.get("type"))


def _check(of: str, fields: sql.StructType) -> None:
    """That there are names and types for it in Parquet and Delta; ConfigError."""
    if not fields.fields:
        raise ConfigError(f"{of} has no fields: there is no column for that")
    seen: dict[str, str] = {}
    for field in fields:
        if not field.name or any(each in field.name for each in _NOT_IN_NAMES):
            raise ConfigError(f"{of}: a column cannot be called {field.name!r}")
        if (other := seen.setdefault(field.name.lower(), field.name)) != field.name:
            raise ConfigError(f"{of}: Spark takes {other!r} and {field.name!r} for the same column")
        for struct in _structs(field.dataType):
            _check(f"{of}.{field.name}", struct)


def _structs(kind: sql.DataType) -> Iterator[sql.StructType]:
    if isinstance(kind, sql.StructType):
        yield kind
    elif isinstance(kind, sql.ArrayType):
        yield from _structs(kind.elementType)
    elif isinstance(kind, sql.MapType):
        yield from _structs(kind.valueType)
