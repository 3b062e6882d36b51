"""A table of the lake as a DataFrame: exactly the files of one version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import tables
from .manifest import File, Lake, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(
    spark: SparkSession,
    lake: Lake,
    table: str = tables.MESSAGES,
    *,
    snapshot: Snapshot | None = None,
    queues: Sequence[str] | None = None,
    since: float | None = None,
) -> DataFrame:
    """The rows of a table; `queues` and `since` (finished, seconds since 1970) leave out files that cannot matter."""
    seen = lake.snapshot() if snapshot is None else snapshot
    return of_files(spark, lake, table, seen.of(table, queues=queues, since=since))


def of_files(spark: SparkSession, lake: Lake, table: str, files: Sequence[File]) -> DataFrame:
    """The rows of these files."""
    if not files:
        return spark.createDataFrame([], tables.ddl(table))
    paths = [f"file://{lake.place.path(file.path)}" for file in files]  # Hadoop takes a path as it is: no %-escapes
    verified = spark.read.option("parquet.page.verify-checksum.enabled", "true")  # off unless one asks for it
    return verified.schema(tables.ddl(table)).parquet(*paths)
