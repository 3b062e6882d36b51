"""Queues as DataFrames for the jobs, through the format `holdfast`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ...stores.records import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def view(
    spark: SparkSession,
    url: str | None,
    queue: str,
    name: View,
    *,
    since: float | None = None,
    until: float | None = None,
) -> DataFrame:
    """A view of a queue; of the settled ones only what finished from `since` until before `until`."""
    from .. import register

    register(spark)
    reader = spark.read.format("holdfast").option("view", name)
    if url is not None:
        reader = reader.option("url", url)
    for option, moment in (("finishedSince", since), ("finishedUntil", until)):
        if moment is not None:
            reader = reader.option(option, datetime.fromtimestamp(moment, UTC).isoformat())
    return reader.load(queue)
