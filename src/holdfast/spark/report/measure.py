"""From the lake to figures: a handful of aggregations, done by Spark; only their small results come to the driver."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..lake import Lake, reading, tables
from . import columns, latencies, samples
from .figures import TEXT_CHARS, Before, Bucket, EndedBefore, Figures, Latency, Reason, Tries, Worker, queue_figures
from .periods import TICK_S, Period, period_of, start_of_all
from .present import Arrivals, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_GROUPS = 200  # reasons, or workers, that are kept of what a million messages could have
_MEASURED = ("queue", "day", "status", "attempts", "worker", "enqueued_at", "claimed_at", "finished_at")


def measure(
    spark: SparkSession,
    lake: Lake,
    version: int,
    *,
    queues: Sequence[str] | None = None,
    since: float | None = None,
    until: float | None = None,
    store: Store | None = None,
    payloads: bool = False,
) -> Figures:
    """The figures of what finished from `since` until before `until` (seconds since 1970) in these queues.

    `store` is asked what waits now; with `payloads` those of samples are read.
    """
    asked = Store() if store is None else store
    state = lake.messages.state(version)
    known = [file for file in state.files if queues is None or file.partition["queue"] in queues]
    present = asked.present(state, queues)
    nothing = Figures(lake=lake.shown, version=version, made_at=time.time(), period=None, present=present)
    end = until if until is not None else max((file.last or 0.0 for file in known), default=0.0) + TICK_S
    first = min((file.first or 0.0 for file in known), default=end)
    if first >= end or (since is not None and since >= end):
        return nothing
    before = None if since is None else since - (end - since)
    chosen: dict[str, Any] = {"version": version, "queues": queues, "since": before}
    rows = columns.as_numbers(reading.frame(spark, lake, columns=_MEASURED, **chosen)).cache()
    try:
        period = period_of(since if since is not None else _start(rows, first, end), end)
        is_whole = before is not None and first <= before + period.step  # its first message need not come at once
        made = _measured(rows, period, asked.waiting(period), nothing, is_whole=is_whole)
    finally:
        rows.unpersist()
        asked.close()
    if not made.ended:
        return nothing
    found = _reasons(columns.as_numbers(reading.frame(spark, lake, tables.ERRORS, **chosen)), period)
    return msgspec.structs.replace(made, reasons=samples.with_values(lake, state, found) if payloads else found)


def _start(rows: DataFrame, first: float, end: float) -> float:
    """Where a report of everything begins."""
    from pyspark.sql import functions as F

    came = rows.agg(F.min("came").alias("came")).collect()[0]["came"]
    return start_of_all(first if came is None else came / 1e6, first, end)


def _measured(rows: DataFrame, period: Period, waiting: list[Arrivals], nothing: Figures, *, is_whole: bool) -> Figures:
    ended = columns.during(rows, period.start, period.end)
    tries, latency = _tries(ended), latencies.latency(ended)
    buckets, at_start = _buckets(rows, period, waiting)
    earlier = Period(period.start - period.seconds, period.start, period.step)
    return msgspec.structs.replace(
        nothing,
        period=period,
        before_is_whole=is_whole,
        queues=queue_figures(period, buckets, at_start, tries, latency),
        buckets=buckets,
        ended_before=_ended_before(rows, earlier, period) if is_whole else [],
        latency=latency,
        course=latencies.course(ended, period),
        tries=tries,
        workers=_workers(ended),
        before=_before(rows, earlier) if is_whole else [],
    )


def _buckets(rows: DataFrame, period: Period, waiting: list[Arrivals]) -> tuple[list[Bucket], dict[str, int]]:
    """What came and what ended, step by step; and how many of each queue were there when the period began."""
    from pyspark.sql import functions as F

    there = rows.where(rows["ended"] >= columns.in_micros(period.start))
    came = F.struct(columns.place(F.col("came"), period).alias("place"), F.lit("arrived").alias("what"))
    ended = F.struct(columns.place(F.col("ended"), period).alias("place"), F.col("status").alias("what"))
    events = there.select("queue", F.explode(F.array(came, ended)).alias("event")).select("queue", "event.*")
    found = events.where("place is not null").groupBy("queue", "place", "what").count().collect()
    table: dict[tuple[str, int], dict[str, int]] = {}
    for queue, place, what, count in [
        *(tuple(row) for row in found),
        *((one.queue, one.place, "arrived", one.count) for one in waiting),
    ]:
        cell = table.setdefault((queue, place), dict.fromkeys(("arrived", *columns.ENDS), 0))
        cell[what] = cell.get(what, 0) + count
    at_start = {queue: cell["arrived"] for (queue, place), cell in table.items() if place < 0}
    made = [Bucket(queue, period.at(place), **cell) for (queue, place), cell in sorted(table.items()) if place >= 0]
    return made, at_start


def _tries(ended: DataFrame) -> list[Tries]:
    rows = ended.groupBy("queue", "attempts").agg(*columns.counts()).orderBy("queue", "attempts").collect()
    return [Tries(**row.asDict()) for row in rows]


def _workers(ended: DataFrame) -> list[Worker]:
    from pyspark.sql import functions as F

    runs = ended.where("worker is not null").withColumn("run", latencies.span("claimed", "ended"))
    sketch = F.kll_sketch_agg_double("run", latencies.SKETCH_K).alias("sketch")
    found = runs.groupBy("worker").agg(
        F.concat_ws(", ", F.sort_array(F.collect_set("queue"))).alias("queues"),
        F.count("*").alias("ended"),
        *columns.counts(),
        F.count_if(F.col("attempts") > 1).alias("retried"),
        F.coalesce(F.sum("run"), F.lit(0.0)).alias("busy"),
        columns.seconds(F.min("ended")).alias("first"),
        columns.seconds(F.max("ended")).alias("last"),
        F.count("run").alias("known"),
        sketch,
    )
    ranks = F.array(F.lit(0.5), F.lit(0.95))
    at = F.when(F.col("known") > 0, F.kll_sketch_get_quantile_double("sketch", ranks)).alias("at")
    names = [name for name in Worker.__struct_fields__ if name not in ("p50", "p95")]
    rows = found.orderBy(F.desc("ended"), "worker").limit(MOST_GROUPS).select(*names, at).collect()
    return [_worker(row.asDict()) for row in rows]


def _worker(row: dict[str, Any]) -> Worker:
    p50, p95 = row.pop("at") or (None, None)
    return Worker(**row, p50=p50, p95=p95)


def _before(rows: DataFrame, period: Period) -> list[Before]:
    """The same period's length earlier, by queue and over all."""
    from pyspark.sql import functions as F

    ended = columns.during(rows, period.start, period.end)
    counted = ended.rollup("queue").agg(
        F.count("*").alias("ended"), *columns.counts(), F.count_if(F.col("attempts") > 1).alias("retried")
    )
    came = rows.where(rows["came"].between(columns.in_micros(period.start), columns.in_micros(period.end) - 1))
    arrived = {row["queue"] or "": row["count"] for row in came.rollup("queue").count().collect()}
    found = {row["queue"] or "": row.asDict() for row in counted.collect()}
    totals = {one.queue: one for one in latencies.latency(ended) if one.metric == "total" and not one.day}
    return [_one_before(name, found.get(name), arrived.get(name, 0), totals.get(name)) for name in {*found, *arrived}]


def _ended_before(rows: DataFrame, earlier: Period, period: Period) -> list[EndedBefore]:
    """The same steps a period earlier, at the time of this one."""
    from pyspark.sql import functions as F

    moved = F.col("ended") + columns.in_micros(period.seconds)
    ended = columns.during(rows, earlier.start, earlier.end).withColumn("place", columns.place(moved, period))
    found = ended.where("place is not null").groupBy("place").count().orderBy("place").collect()
    return [EndedBefore(period.at(row["place"]), row["count"]) for row in found]


def _one_before(queue: str, row: dict[str, Any] | None, arrived: int, total: Latency | None) -> Before:
    counts = {name: (row or {}).get(name, 0) for name in ("ended", *columns.ENDS, "retried")}
    spans = (total.p50, total.p95, total.p99) if total else (0.0, 0.0, 0.0)
    return Before(queue, arrived, **counts, p50=spans[0], p95=spans[1], p99=spans[2])


def _reasons(errors: DataFrame, period: Period) -> list[Reason]:
    """Why messages ended in the period, each reason with the last message that ended for it."""
    from pyspark.sql import functions as F

    now = F.col("ended") >= columns.in_micros(period.start)
    errors = errors.where(F.col("ended") < columns.in_micros(period.end))
    last = F.struct("id", "worker", "attempts", F.substring("error", 1, TEXT_CHARS).alias("error"))
    found = errors.groupBy("fingerprint", "queue", "status").agg(
        F.min("kind").alias("kind"),
        F.min("reason").alias("reason"),
        F.count_if(now).alias("count"),
        F.count_if(~now).alias("before"),
        columns.seconds(F.min(F.when(now, F.col("ended")))).alias("first"),
        columns.seconds(F.max(F.when(now, F.col("ended")))).alias("last"),
        F.max_by(last, "ended").alias("example"),
    )
    rows = found.where("count > 0").orderBy(F.desc("count"), "fingerprint", "queue").limit(MOST_GROUPS).collect()
    return [_reason(row.asDict(recursive=True)) for row in rows]


def _reason(row: dict[str, Any]) -> Reason:
    example = row.pop("example")
    return Reason(
        **row,
        example=example["id"],
        worker=example["worker"] or "",
        attempts=example["attempts"],
        error=example["error"],
    )
