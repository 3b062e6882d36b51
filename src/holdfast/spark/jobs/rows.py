"""From the rows of any table to messages: which column is what, and why a row cannot be one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ...codecs import codec_for
from ...config import unknown
from ...errors import CodecError, ConfigError
from ...limits import DEDUP_KEY_BYTES, HEADERS_BYTES, TooDeep, check_nesting
from ...stores.records import JSON
from ..portable import Portable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

As: TypeAlias = Literal["json", "text", "raw"]

RAW = "application/octet-stream"
CORRUPT = "_corrupt_record"  # where Spark puts a line it cannot read
REASON = "reason"
ROW, BYTES = "row", "bytes"
# What the readers of files add to the columns of a row: the value as it is to be, what it was, and what is wrong.
READY, WAS, WHY = "__ready", "__was", "__why"
NOTHING_LEFT = "nothing is left for the value: name its column with `value`"
_AS = ("json", "text", "raw")
_OURS = (CORRUPT, READY, WAS, WHY)


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """Which column is what of a message. Without `value` the message is an object of all columns not named here."""

    value: str | None = None
    value_as: As | None = None  # json: text that is JSON; text: a string; raw: bytes as they are
    content_type: str | None = None  # of raw values
    priority: str | int | None = None
    headers: Mapping[str, str] = {}  # header: column
    deliver_at: str | None = None
    dedup_key: str | None = None

    def columns(self) -> list[str]:
        """The columns named, other than that of the value."""
        single = (self.priority, self.deliver_at, self.dedup_key)
        return [*(each for each in single if isinstance(each, str)), *self.headers.values()]

    def written(self) -> list[str]:
        """The columns that a queue is given: not every store takes every one."""
        asked = {"headers": self.headers, "deliver_at": self.deliver_at, "dedup_key": self.dedup_key}
        return ["value", "content_type", "priority", *(name for name, column in asked.items() if column)]

    def check(self, df: DataFrame) -> None:
        """ConfigError when a column is not there."""
        for name in [*self.columns(), *([self.value] if self.value else [])]:
            if name not in df.columns:
                there = [each for each in df.columns if each not in _OURS]
                raise ConfigError(unknown("there is no column", name, there))
        if self.value_as is not None and self.value_as not in _AS:
            raise ConfigError(unknown("value_as: unknown kind", self.value_as, _AS))
        if isinstance(self.priority, int) and not 0 <= self.priority <= 255:
            raise ConfigError(f"priority: a column, or a whole number from 0 to 255, not {self.priority!r}")
        if self.value is None and READY not in df.columns and not self._body(df):
            raise ConfigError(NOTHING_LEFT)

    def _body(self, df: DataFrame) -> list[str]:
        taken = {*self.columns(), *_OURS}
        return [name for name in df.columns if name not in taken]


def messages(df: DataFrame, mapped: Mapped, *, most: int, type: Any = None) -> DataFrame:
    """The columns of messages, `row` and `bytes` (what it was made of) and `reason` (null: it is good)."""
    from pyspark.sql import functions as F

    mapped.check(df)
    value, kind, value_reason = _value(df, mapped)
    priority, priority_reason = _priority(mapped)
    deliver_at, deliver_reason = _deliver_at(mapped)
    dedup = F.lit(None).cast("string") if mapped.dedup_key is None else _col(mapped.dedup_key).cast("string")
    row, was = _was(df)
    made = df.select(
        value.alias("value"),
        kind.alias("content_type"),
        priority.alias("priority"),
        _headers(mapped).alias("headers"),
        deliver_at.alias("deliver_at"),
        dedup.alias("dedup_key"),
        row.alias(ROW),
        was.alias(BYTES),
        F.coalesce(
            _unreadable(df),
            value_reason,
            _too_long("the value has", F.octet_length(value), most),
            priority_reason,
            deliver_reason,
            F.when(dedup == "", "the dedup key is empty"),
            _too_long("the dedup key has", F.octet_length(dedup), DEDUP_KEY_BYTES),
            _too_long("the headers have", _headers_size(mapped), HEADERS_BYTES),
            *_no_nul(mapped),
        ).alias(REASON),
    )
    given = mapped.value_as in (None, "json") if mapped.value else READY in df.columns  # JSON that we did not make
    return made if type is None and not given else made.mapInArrow(_Check(type), made.schema)


def _was(df: DataFrame) -> tuple[Column, Column]:
    """A row as people read it, and its bytes where it was a line of a file."""
    from pyspark.sql import functions as F

    if WAS in df.columns:
        return F.make_valid_utf8(F.col(WAS).cast("string")), F.col(WAS)
    whole = F.to_json(F.struct(*[_col(name) for name in df.columns]))
    return F.coalesce(_col(CORRUPT), whole) if CORRUPT in df.columns else whole, F.lit(None).cast("binary")


def _unreadable(df: DataFrame) -> Column:
    from pyspark.sql import functions as F

    if WHY in df.columns:
        return F.col(WHY)
    found = F.when(_col(CORRUPT).isNotNull(), "the row cannot be read") if CORRUPT in df.columns else F.lit(None)
    return found.cast("string")


def _no_nul(mapped: Mapped) -> list[Column]:
    """Not every store keeps NUL in text."""
    from pyspark.sql import functions as F

    named = [("the dedup key", mapped.dedup_key), *(("a header", column) for column in mapped.headers.values())]
    has_nul = [(what, F.instr(_col(column).cast("string"), "\0") > 0) for what, column in named if column]
    return [F.when(found, f"{what} has a NUL in it") for what, found in has_nul]


def _value(df: DataFrame, mapped: Mapped) -> tuple[Column, Column, Column]:
    """The payload, its content type, and what may be wrong with it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType

    if mapped.value is None and READY in df.columns:
        return F.col(READY), F.lit(JSON), F.lit(None).cast("string")
    if mapped.value is None:
        body = F.to_json(F.struct(*[_col(name) for name in mapped._body(df)]), {"ignoreNullFields": "false"})
        return body.cast("binary"), F.lit(JSON), F.lit(None).cast("string")
    column = _col(mapped.value)
    binary = isinstance(df.schema[mapped.value].dataType, BinaryType)
    kind = mapped.value_as or ("raw" if binary or mapped.content_type else "json")
    empty = F.when(column.isNull(), "the value is null")
    if kind == "raw":
        return column.cast("binary"), F.lit(mapped.content_type or RAW), empty
    text = column.cast("string")
    if kind == "text":  # an array of one, without its brackets: the only way to a JSON string
        told = F.expr(f"substring(to_json(array(cast({quoted(mapped.value)} as string))), 2)")
        return F.substring(told, F.lit(1), F.length(told) - 1).cast("binary"), F.lit(JSON), empty
    return text.cast("binary"), F.lit(JSON), empty


def _priority(mapped: Mapped) -> tuple[Column, Column]:
    from pyspark.sql import functions as F

    if not isinstance(mapped.priority, str):
        return F.lit(mapped.priority or 0).cast("int"), F.lit(None).cast("string")
    given = _col(mapped.priority)
    number = F.expr(f"try_cast({quoted(mapped.priority)} as double)")
    bad = number.isNull() | (number != F.floor(number)) | (number < 0) | (number > 255)
    reason = F.when(given.isNotNull() & bad, "a priority is a whole number from 0 to 255")
    return F.coalesce(F.when(~bad, number).cast("int"), F.lit(0)), reason


def _deliver_at(mapped: Mapped) -> tuple[Column, Column]:
    from pyspark.sql import functions as F

    if mapped.deliver_at is None:
        return F.lit(None).cast("timestamp"), F.lit(None).cast("string")
    moment = F.expr(f"try_cast({quoted(mapped.deliver_at)} as timestamp)")
    return moment, F.when(_col(mapped.deliver_at).isNotNull() & moment.isNull(), "deliver_at is no time")


def _headers(mapped: Mapped) -> Column:
    from pyspark.sql import functions as F

    if not mapped.headers:
        return F.lit(None).cast("map<string,string>")
    pairs = [part for name, column in mapped.headers.items() for part in (F.lit(name), _col(column).cast("string"))]
    return F.map_filter(F.create_map(*pairs), lambda key, value: value.isNotNull())


def _headers_size(mapped: Mapped) -> Column:
    """The bytes of all keys and values; a null is no header."""
    from pyspark.sql import functions as F

    size = F.lit(0)
    for name, column in mapped.headers.items():
        size = size + F.coalesce(F.octet_length(_col(column).cast("string")) + len(name.encode()), F.lit(0))
    return size


def _too_long(what: str, size: Column, most: int) -> Column:
    from pyspark.sql import functions as F

    return F.when(size > most, f"{what} more than {most} bytes")


def _col(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(quoted(name))


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return f"`{name.replace('`', '``')}`"


class _Check:
    """On executors: a payload that its readers could not read gets its reason here."""

    def __init__(self, type: Any) -> None:
        self._portable = Portable(type)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        codec = codec_for(self._portable.type, None)
        for batch in batches:
            reasons = []
            rows = zip(*(batch[name].to_pylist() for name in ("value", "content_type", REASON)), strict=True)
            for payload, kind, reason in rows:
                reasons.append(reason or self._reason(codec, payload, kind))
            place = batch.schema.get_field_index(REASON)
            yield batch.set_column(place, batch.schema.field(place), pa.array(reasons, pa.string()))

    def _reason(self, codec: Any, payload: bytes, kind: str) -> str | None:
        if self._portable.type is None and kind != JSON:
            return None
        try:
            if kind == JSON:
                check_nesting(payload)
            codec.decode(payload, kind)
        except TooDeep as error:
            return str(error)
        except CodecError as error:
            return "the value is not JSON" if self._portable.type is None else str(error)
        return None
