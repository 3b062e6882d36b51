"""CSV for `ingest`: every record is an object in which each field is what it was. `csv_records.py` decides."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ... import config
from ...errors import ConfigError
from .csv_records import Dialect, Kind, Objects, Parser, Record, columns_of, narrowed
from .lines import BOM, FILE, FILE_OPTIONS, LINE, START, batched, folders_of, is_true, lines, parted, schema_of
from .rows import NOTHING_LEFT, WAS, WHY, Mapped, quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_CSV = {  # what Spark calls the fields of a dialect
    **{name: name for name in ("sep", "quote", "escape", "header", "encoding", "comment")},
    "delimiter": "sep",
    "charset": "encoding",
    "nullValue": "null",
}


class CsvRecords:
    """Every record is an object. With a schema its columns have those types; else what can only be a number is one."""

    def __init__(
        self,
        spark: SparkSession,
        place: str,
        options: Mapping[str, str],
        schema: str | None,
        mapped: Mapped,
        most: int,
    ) -> None:
        self._files, rest = parted(options, FILE_OPTIONS)
        self._dialect, infers = _dialect(rest)
        self._place, self._most, self._mapped = place, most, mapped
        found = self._look(self.load(spark.read))
        self._names, kinds = _agreed(found)
        if not infers or schema is not None:
            kinds = ["text"] * len(kinds)
        self._kinds: list[Kind] = kinds
        self._types = None if schema is None else _types(schema, self._names, named=self._dialect.header)
        self.said = schema or "CSV; " + ", ".join(
            f"{name} {kind}" for name, kind in zip(self._names, kinds, strict=True)
        )

    def load(self, reader: Any) -> DataFrame:
        return lines(reader, self._place, self._files)

    def _look(self, df: DataFrame) -> list[tuple[list[str], list[str | None]]]:
        """The names and kinds of the columns of each file, by the names of the files."""
        schema = "file string, names array<string>, kinds array<string>"
        rows = df.mapInArrow(_CsvLook(self._dialect, self._most), schema).collect()
        return [(list(row.names), list(row.kinds)) for row in sorted(rows, key=lambda row: row.file)]

    def made(self, df: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        folders = folders_of(df)
        body = [name for name in self._names if name not in self._mapped.columns()]
        if not body and self._mapped.value is None and self._names:
            raise ConfigError(NOTHING_LEFT)
        step = _CsvRows(self._dialect, self._most, self._names, self._kinds, body, folders)
        rows = df.mapInArrow(step, schema_of([*self._names, *folders]))
        if self._types is None:
            return rows
        why, made = [F.col(WHY)], []
        for name, (column, kind) in self._types.items():
            made.append(F.expr(f"try_cast({quoted(column)} as {kind})").alias(name))
            lost = F.col(quoted(column)).isNotNull() & F.expr(f"try_cast({quoted(column)} as {kind}) is null")
            why.append(F.when(lost, f"the column {name} is no {kind}"))
        return rows.select(WAS, F.coalesce(*why).alias(WHY), *made, *map(quoted, folders))


class _CsvStep:
    """On executors: the files of a task, one after the other."""

    def __init__(self, dialect: Dialect, most: int) -> None:
        self._dialect, self._most = dialect, most

    def _files(
        self, batches: Iterable[pa.RecordBatch], folders: Sequence[str] = ()
    ) -> Iterator[tuple[str, list[Any], Iterator[Record]]]:
        """Each file, what its folders say, and its records."""
        names = [FILE, START, LINE, *folders]
        lines = (row for batch in batches for row in zip(*(batch[name].to_pylist() for name in names), strict=True))
        parser = Parser(self._dialect, self._most)
        for _, rows in itertools.groupby(lines, key=lambda row: row[0]):
            file, start, line, *of_folder = next(rows)
            if start:
                raise ConfigError(f"{file} was split: did somebody set spark.sql.files.maxPartitionBytes meanwhile?")
            rest = (row[2] for row in rows)  # noqa: B031 - the first row was only taken off
            yield file, of_folder, parser.records(itertools.chain([line.removeprefix(BOM)], rest))


class _CsvLook(_CsvStep):
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        type = pa.list_(pa.string())
        for file, _, records in self._files(batches):
            names: list[str] | None = None
            kinds: list[Kind | None] = []
            for record in records:
                if names is None:
                    names = _names(record, self._dialect)
                    kinds = [None] * len(names)
                    if self._dialect.header:
                        continue
                if record.reason is None and len(record.fields) == len(names):
                    narrowed(kinds, record.fields)
            if names is not None:
                arrays = [pa.array([file], pa.string()), pa.array([names], type), pa.array([kinds], type)]
                yield pa.RecordBatch.from_arrays(arrays, names=["file", "names", "kinds"])


class _CsvRows(_CsvStep):
    def __init__(
        self,
        dialect: Dialect,
        most: int,
        names: list[str],
        kinds: list[Kind],
        body: list[str],
        folders: list[str],
    ) -> None:
        super().__init__(dialect, most)
        self._names, self._kinds, self._body, self._folders = names, kinds, body, folders

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (
            row
            for _, of_folder, records in self._files(batches, self._folders)
            for row in self._rows(of_folder, records)
        )
        return batched(rows, [*self._names, *self._folders])

    def _rows(self, of_folder: list[Any], records: Iterator[Any]) -> Iterator[list[Any]]:
        order = list(range(len(self._names)))
        kinds = dict(zip(self._names, self._kinds, strict=True))
        objects = Objects(self._body, [kinds[name] for name in self._body])
        body = [self._names.index(name) for name in self._body]
        if self._dialect.header:
            header = next(records, None)
            if header is None:
                return
            names = _names(header, self._dialect)
            if sorted(names) != sorted(self._names):
                raise ConfigError(
                    f"a file begins with the columns {', '.join(names)}, others with {', '.join(self._names)}"
                )
            order = [names.index(name) for name in self._names]
        nothing = [None] * len(order)
        for raw, fields, reason in records:
            if reason is None and len(fields) != len(order):
                reason = f"it has {len(fields)} fields instead of {len(order)}"
            if reason is not None:
                yield [None, raw, reason, *nothing, *of_folder]
                continue
            fields = [fields[place] for place in order]
            value = objects.encode([fields[place] for place in body])
            why = None if value is not None else "a column that has only numbers or booleans elsewhere has text here"
            yield [value, raw, why, *fields, *of_folder]


def _names(first: Record, dialect: Dialect) -> list[str]:
    """The columns of a file by its first record; ConfigError."""
    if first.reason is not None:
        raise ConfigError(
            f"the first line of a file says how many columns it has, but {first.reason}: {first.raw[:200]!r}"
        )
    return columns_of(first.fields if dialect.header else [None] * len(first.fields))


def _agreed(found: list[tuple[list[str], list[str | None]]]) -> tuple[list[str], list[Kind]]:
    """The columns of all files, in the order of the first; ConfigError when they have different ones."""
    if not found:
        return [], []
    names = found[0][0]
    merged: dict[str, Any] = dict.fromkeys(names)
    for others, kinds in found:
        if sorted(others) != sorted(names):
            raise ConfigError(
                f"the files have different columns: {', '.join(names)}; and {', '.join(others)}. Load them one by one"
            )
        for name, kind in zip(others, kinds, strict=True):
            if kind is not None:
                merged[name] = kind if merged[name] in (None, kind) else "text"
    return names, [merged[name] or "text" for name in names]


def _types(schema: str, names: list[str], *, named: bool) -> dict[str, tuple[str, str]]:
    """By name in the schema: the column in the file, and its type."""
    from pyspark.sql.types import StructType

    fields = cast(StructType, StructType.fromDDL(schema)).fields
    if not named:
        if len(fields) != len(names):
            raise ConfigError(f"the schema has {len(fields)} columns, the files have {len(names)}")
        return {field.name: (name, field.dataType.simpleString()) for field, name in zip(fields, names, strict=True)}
    for field in fields:
        if field.name not in names:
            raise ConfigError(config.unknown("schema: the header has no column", field.name, names))
    return {field.name: (field.name, field.dataType.simpleString()) for field in fields}


def _dialect(given: Mapping[str, str]) -> tuple[Dialect, bool]:
    """How the files are written, and whether columns may be numbers."""
    known = {name.lower(): field for name, field in _CSV.items()}
    said: dict[str, Any] = {}
    infers = True
    for name, value in given.items():
        if name.lower() == "inferschema":
            infers = is_true(value)
        elif name.lower() in known:
            said[known[name.lower()]] = is_true(value) if name.lower() == "header" else value
        elif name.lower() != "multiline":  # a line break in quotes is always legal
            raise ConfigError(
                config.unknown("option: CSV is read without", name, (*_CSV, "inferSchema", *FILE_OPTIONS))
                + "; with --sql Spark's own reader takes it: select * from csv.`PATH`"
            )
    dialect = Dialect(**said)
    dialect.check()
    return dialect, infers
