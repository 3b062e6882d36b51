"""From the lake to figures: a handful of aggregations, done by Spark; only their small results come to the driver."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..lake import Lake, reading, tables
from .figures import QUANTILES, Figures, Latency, Minute, Reason, Tries, queue_figures

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SKETCH_K = 1024  # of the KLL sketches: ranks are off by about 0.3 %
MOST_REASONS = 200  # kept of a table that a million messages could fill
_MEASURED = ("queue", "day", "status", "attempts", "enqueued_at", "claimed_at", "finished_at")
_ENDS = ("completed", "failed", "dead")


def measure(
    spark: SparkSession,
    lake: Lake,
    version: int,
    *,
    queues: Sequence[str] | None = None,
    since: float | None = None,
    until: float | None = None,
) -> Figures:
    """The figures of what finished from `since` until before `until` (seconds since 1970) in these queues."""
    chosen: dict[str, Any] = {"version": version, "queues": queues, "since": since}
    messages = _between(reading.frame(spark, lake, columns=_MEASURED, **chosen), since, until)
    errors = _between(reading.frame(spark, lake, tables.ERRORS, **chosen), since, until)
    minutes, tries, latency = _minutes(messages), _tries(messages), _latency(messages)
    return Figures(
        lake.shown,
        version,
        time.time(),
        since,
        until,
        queue_figures(minutes, tries, latency),
        minutes,
        latency,
        tries,
        _reasons(errors),
    )


def _between(df: DataFrame, since: float | None, until: float | None) -> DataFrame:
    if since is not None:
        df = df.where(df["finished_at"] >= datetime.fromtimestamp(since, UTC))
    if until is not None:
        df = df.where(df["finished_at"] < datetime.fromtimestamp(until, UTC))
    return df


def _counts() -> list[Column]:
    from pyspark.sql import functions as F

    return [F.count_if(F.col("status") == status).alias(status) for status in _ENDS]


def _minutes(messages: DataFrame) -> list[Minute]:
    from pyspark.sql import functions as F

    minute = (F.floor(F.unix_micros("finished_at") / 60_000_000) * 60).alias("at")
    rows = messages.groupBy("queue", minute).agg(*_counts()).orderBy("queue", "at").collect()
    return [Minute(**row.asDict()) for row in rows]


def _tries(messages: DataFrame) -> list[Tries]:
    rows = messages.groupBy("queue", "attempts").agg(*_counts()).orderBy("queue", "attempts").collect()
    return [Tries(**row.asDict()) for row in rows]


def _latency(messages: DataFrame) -> list[Latency]:
    """Sketches by queue, day and metric; then merged by queue, and over all. Sketches merge, percentiles do not."""
    from pyspark.sql import functions as F

    def seconds(start: str, end: str) -> Column:
        span = (F.unix_micros(end) - F.unix_micros(start)) / F.lit(1e6)
        return F.greatest(span, F.lit(0.0))  # a clock of one process may be a little behind another's

    spans = messages.select(
        "queue",
        F.date_format("day", "yyyy-MM-dd").alias("day"),
        seconds("enqueued_at", "claimed_at").alias("wait"),
        seconds("claimed_at", "finished_at").alias("run"),
        seconds("enqueued_at", "finished_at").alias("total"),
    )
    long = spans.unpivot(["queue", "day"], ["wait", "run", "total"], "metric", "span")
    daily = long.where("span is not null").groupBy("metric", "queue", "day").agg(
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
    return [_one_latency(row) for row in found]


def _one_latency(row: Any) -> Latency:
    p50, p90, p95, p99 = row["at"]
    return Latency(
        row["queue"] or "", row["day"] or "", row["metric"], row["count"], row["least"], row["mean"],
        p50, p90, p95, p99, row["most"], bytes(row["sketch"]),
    )  # fmt: skip


def _reasons(errors: DataFrame) -> list[Reason]:
    from pyspark.sql import functions as F

    instant = F.unix_micros("finished_at") / F.lit(1e6)
    found = errors.groupBy("fingerprint", "queue", "status").agg(
        F.min("kind").alias("kind"),
        F.min("reason").alias("reason"),
        F.count("*").alias("count"),
        F.min(instant).alias("first"),
        F.max(instant).alias("last"),
        F.max_by("id", "finished_at").alias("example"),
    )
    rows = found.orderBy(F.desc("count"), "fingerprint", "queue").limit(MOST_REASONS).collect()
    return [Reason(**row.asDict()) for row in rows]
