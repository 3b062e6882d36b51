"""What a job asks of its session, in ways that Spark Connect knows too: there is no `sparkContext` and no JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_remote(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect."""
    return getattr(spark, "_sc", None) is None


def cores(spark: SparkSession) -> int:
    """The tasks that run at once, as far as Spark knows."""
    if not is_remote(spark):
        return spark.sparkContext.defaultParallelism
    from pyspark.sql import functions as F

    rows = spark.range(10_000)  # enough for each of the partitions that Spark makes to have one
    return rows.select(F.spark_partition_id()).distinct().count()
