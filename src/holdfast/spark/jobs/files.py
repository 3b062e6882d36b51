"""Files on their way into a queue: which lines are rows, what each row's value is, and what of it are columns.

JSON and CSV are read as lines of bytes, not by Spark's readers, which rewrite what they read. A line of JSON is the
value as it is; a record of CSV becomes an object in which every field is what it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from .csv_files import CsvRecords
from .json_lines import JsonLines, Options
from .rows import Mapped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UNSPLIT = str(1 << 60)  # bytes; more than any file has


class Source(Protocol):
    """Rows to come: `load` has Spark read them, `made` gives them values and columns."""

    said: str  # the schema, as people read it

    def load(self, reader: Any) -> DataFrame: ...

    def made(self, df: DataFrame) -> DataFrame: ...


def source(
    spark: SparkSession,
    given: str | os.PathLike[str] | DataFrame,
    kind: str | None,
    *,
    options: Mapping[str, str],
    schema: str | None,
    mapped: Mapped,
    most: int,
) -> Source:
    """How to read files of a kind, or a DataFrame. CSV is looked through for its columns and what they are."""
    if not isinstance(given, str | os.PathLike):
        return Given(given)
    place = os.fspath(given)
    if kind == "json":
        return JsonLines(spark, place, Options.of(options, schema), schema, mapped)
    if kind == "csv":
        return CsvRecords(spark, place, options, schema, mapped, most)
    return Table(spark, place, kind, options, schema)


@contextmanager
def kept_whole(spark: SparkSession, kind: str | None) -> Iterator[None]:
    """Read no file of CSV in parts: a line of it says little without those before."""
    if kind != "csv":
        yield
        return
    names = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    before = {name: spark.conf.get(name) or "" for name in names}
    try:
        for name in names:
            spark.conf.set(name, _UNSPLIT)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


class Given:
    """A DataFrame of the caller's."""

    def __init__(self, df: DataFrame) -> None:
        self._df = df
        self.said = df.schema.simpleString()

    def load(self, reader: Any) -> DataFrame:
        return self._df

    def made(self, df: DataFrame) -> DataFrame:
        return df


class Table:
    """What Spark reads as it is: Parquet, ORC, text and others."""

    def __init__(
        self, spark: SparkSession, place: str, kind: str | None, options: Mapping[str, str], schema: str | None
    ) -> None:
        self._place, self._kind, self._options, self._schema = place, kind, dict(options), schema
        self._found: Any = self.load(spark.read).schema
        self.said = schema or self._found.simpleString()

    def load(self, reader: Any) -> DataFrame:
        streams = "streaming" in type(reader).__module__  # of Spark or of Spark Connect
        schema = self._found if self._schema is None and streams else self._schema
        reader = reader.format(self._kind).options(**self._options)
        return (reader if schema is None else reader.schema(schema)).load(self._place)  # type: ignore[no-any-return]  # of either reader

    def made(self, df: DataFrame) -> DataFrame:
        return df
