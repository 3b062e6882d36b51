"""Wait, run and end to end, as sketches: they merge, percentiles do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import columns
from .figures import QUANTILES, Course, Latency
from .periods import Period

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SKETCH_K = 1024  # of the KLL sketches: ranks are off by about 0.3 %
COURSE_K = 200  # of those of each step, for a line in a chart: by about 1.3 %
_COURSE = (0.5, 0.95, 0.99)


def latency(ended: DataFrame) -> list[Latency]:
    """Sketches by queue, day and metric; then merged by queue, and over all."""
    from pyspark.sql import functions as F

    spans = _long(ended, "queue", F.date_format("day", "yyyy-MM-dd").alias("day"))
    daily = spans.groupBy("metric", "queue", "day").agg(
        F.count("*").alias("count"),
        F.min("span").alias("least"),
        F.max("span").alias("most"),
        F.sum("span").alias("sum"),
        F.kll_sketch_agg_double("span", SKETCH_K).alias("sketch"),
    )  # fmt: skip
    merged = daily.rollup("metric", "queue", "day").agg(
        F.sum("count").alias("count"),
        F.min("least").alias("least"),
        F.max("most").alias("most"),
        (F.sum("sum") / F.sum("count")).alias("mean"),
        F.kll_merge_agg_double("sketch", SKETCH_K).alias("sketch"),
    )
    ranks = F.array(*[F.lit(rank) for rank in QUANTILES])
    rows = merged.where("metric is not null").withColumn("at", F.kll_sketch_get_quantile_double("sketch", ranks))
    found = rows.orderBy("metric", "queue", "day").collect()
    return [_one(row) for row in found]


def course(ended: DataFrame, period: Period) -> list[Course]:
    """Of all queues together, step by step."""
    from pyspark.sql import functions as F

    steps = _long(ended, columns.place(F.col("ended"), period).alias("place")).groupBy("metric", "place")
    ranks = F.array(*[F.lit(rank) for rank in _COURSE])
    found = steps.agg(
        F.count("*").alias("count"),
        F.kll_sketch_get_quantile_double(F.kll_sketch_agg_double("span", COURSE_K), ranks).alias("at"),
    )
    rows = found.orderBy("metric", "place").collect()
    return [Course(period.at(row["place"]), row["metric"], row["count"], *row["at"]) for row in rows]


def span(start: str, end: str) -> Column:
    """Seconds between two instants; a clock of one process may be a little behind another's."""
    from pyspark.sql import functions as F

    return F.greatest(columns.seconds(F.col(end) - F.col(start)), F.lit(0.0))


def _long(ended: DataFrame, *by: str | Column) -> DataFrame:
    """A row for each message and metric that is known of it."""
    spans = ended.select(
        *by,
        span("came", "claimed").alias("wait"),
        span("claimed", "ended").alias("run"),
        span("came", "ended").alias("total"),
    )
    names = [name for name in spans.columns if name not in ("wait", "run", "total")]
    return spans.unpivot(tuple(names), ["wait", "run", "total"], "metric", "span").where("span is not null")


def _one(row: Any) -> Latency:
    p50, p90, p95, p99 = row["at"]
    return Latency(
        row["queue"] or "", row["day"] or "", row["metric"], row["count"], row["least"], row["mean"],
        p50, p90, p95, p99, row["most"], bytes(row["sketch"]),
    )  # fmt: skip
