"""JSON for `ingest`: every line is a value as it is; Spark's own reader would rewrite it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ... import config
from ...errors import ConfigError
from .lines import BOM, FILE_OPTIONS, LINE, batched, folders_of, is_true, lines, parted, schema_of
from .rows import READY, WAS, WHY, Mapped, quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_value = msgspec.json.Decoder().decode


class Options(msgspec.Struct, frozen=True):
    files: dict[str, str]
    whole: bool
    parse: dict[str, str]

    @classmethod
    def of(cls, given: Mapping[str, str], schema: str | None) -> Options:
        own = ("lineSep", "multiLine")
        files, rest = parted(given, (*FILE_OPTIONS, "lineSep"))
        whole = is_true(next((value for name, value in rest.items() if name.lower() == "multiline"), "false"))
        parse = {name: value for name, value in rest.items() if name.lower() != "multiline"}
        if parse and schema is None:
            raise ConfigError(
                config.unknown(
                    "option: JSON lines are kept as they are, so there is nothing for it to do without a schema:",
                    next(iter(parse)),
                    (*FILE_OPTIONS, *own),
                )
            )
        return cls(files, whole, parse)


class JsonLines:
    """Every line is a value, byte by byte. Columns are text: of a schema they have its types, and lines must fit it."""

    def __init__(self, spark: SparkSession, place: str, options: Options, schema: str | None, mapped: Mapped) -> None:
        self._place, self._options, self._schema = place, options, schema
        asked = [*mapped.columns(), *([mapped.value] if mapped.value else [])]
        self._columns = [] if schema else list(dict.fromkeys(asked))
        if self._columns:
            self._look(self.load(spark.read))
        self.said = "JSON, each line as it is" + (f"; {schema}" if schema else "")

    def load(self, reader: Any) -> DataFrame:
        whole = {"wholetext": "true"} if self._options.whole else {}
        return lines(reader, self._place, self._options.files, **whole)

    def _look(self, df: DataFrame) -> None:
        """ConfigError for a column that no line has: its name is wrong, and every message would do without."""
        rows = df.mapInArrow(_JsonLook(self._columns, whole=self._options.whole), "name string").distinct().collect()
        there = [*folders_of(df), *(row.name for row in rows)]
        for name in self._columns:
            if rows and name not in there:
                raise ConfigError(config.unknown("there is no column", name, there))

    def made(self, df: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        folders = folders_of(df)
        own = [name for name in self._columns if name not in folders]
        rows = df.mapInArrow(
            _JsonRows(own, folders, whole=self._options.whole, strict=bool(self._schema)), schema_of([*own, *folders])
        )
        if self._schema is None:
            return rows
        corrupt = "__corrupt"
        options = {**self._options.parse, "columnNameOfCorruptRecord": corrupt}
        parsed = F.from_json(F.col(READY).cast("string"), f"{self._schema}, {corrupt} string", options)
        rows = rows.select("*", parsed.alias("__parsed"))
        why = F.when(F.col(f"__parsed.{corrupt}").isNotNull(), "it does not fit the schema")
        return rows.select(
            READY, WAS, F.coalesce(F.col(WHY), why).alias(WHY), *map(quoted, folders), "__parsed.*"
        ).drop(corrupt)


class _JsonStep:
    """On executors: the values in lines."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole

    def _values(self, line: bytes) -> list[bytes]:
        if not self._whole:
            return [line.removesuffix(b"\r")]
        text = line.removeprefix(BOM)  # a file that is one document: the items of its array, or itself
        try:
            return [bytes(each) for each in _items(text)]
        except (msgspec.MsgspecError, RecursionError):
            return [text.strip()]


class _JsonLook(_JsonStep):
    """Which of these fields there are; and those of the first object, to name what may have been meant."""

    def __init__(self, columns: list[str], *, whole: bool) -> None:
        super().__init__(whole=whole)
        self._columns = columns

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        names: set[str] = set()
        for batch in batches:
            for line in batch[LINE].to_pylist():
                for value in self._values(line):
                    with contextlib.suppress(msgspec.MsgspecError, RecursionError):
                        found = _fields(value)
                        names.update(found.keys() & self._columns if names else found)
        yield pa.RecordBatch.from_arrays([pa.array(sorted(names), pa.string())], names=["name"])


class _JsonRows(_JsonStep):
    """Lines to rows."""

    def __init__(self, columns: list[str], folders: list[str], *, whole: bool, strict: bool) -> None:
        super().__init__(whole=whole)
        self._columns, self._folders = columns, folders
        self._strict = strict or bool(columns)  # columns are fields of objects

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = [*self._columns, *self._folders]
        return batched((row for batch in batches for row in self._rows(batch)), names)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[list[Any]]:
        folders = [batch[name].to_pylist() for name in self._folders]
        for place, line in enumerate(batch[LINE].to_pylist()):
            of_folder = [column[place] for column in folders]
            for value in self._values(line):
                if value.strip():
                    columns, why = self._fields_of(value)
                    yield [value, value, why, *columns, *of_folder]

    def _fields_of(self, value: bytes) -> tuple[list[str | None], str | None]:
        """The fields that are columns: text as it is, everything else as it is written."""
        if not self._strict:
            return [], None
        try:
            found = _fields(value)
        except (msgspec.MsgspecError, RecursionError):
            return [None] * len(self._columns), None if not _is_json(value) else "it is JSON, but no object"
        return [_text(found.get(name)) for name in self._columns], None


def _is_json(value: bytes) -> bool:
    try:
        _value(value)
    except (msgspec.MsgspecError, RecursionError):
        return False  # which is said when all values are checked
    return True


def _text(raw: msgspec.Raw | None) -> str | None:
    written = None if raw is None else bytes(raw).strip()
    if written is None or written == b"null":
        return None
    if not written.startswith(b'"'):
        return written.decode(errors="replace")
    try:
        return str(_value(written))
    except msgspec.MsgspecError:
        return None
