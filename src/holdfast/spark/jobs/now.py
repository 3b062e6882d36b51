"""What a report asks a store: what is in its queues, how far the lake and streams are behind, what is retried."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from ... import config
from ...broker import Broker
from ...causes import cause
from ...errors import HoldfastError
from ...queue_reports import ConsumerReport, QueueReport, consumers, overview
from ...stores.base import PAGE_ROWS
from ...stores.records import Stored
from ..lake import State
from ..lake.lake import marked
from ..report import columns
from ..report.figures import TEXT_CHARS
from ..report.periods import Period
from ..report.present import Arrivals, Present, QueueNow, Retrying, Store, StreamNow
from .faults import in_plain_words
from .store import ask, place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LIVE = ("ready", "delayed", "processing", "retry")
_SETTLED = ("archive", "dead")


def store_of(spark: SparkSession, url: str | None) -> Store:
    """The store that was given, or that the environment names; nobody when there is none."""
    return Store() if url is None and config.load().url is None else Asked(spark, url)


class Asked(Store):
    """A store whose answers are in the report. One that does not answer is no reason to have no report."""

    def __init__(self, spark: SparkSession, url: str | None) -> None:
        """Without a URL every process takes the one of its own environment, which may have a secret in it."""
        self._spark = spark
        self._url = url
        self._waiting: DataFrame | None = None  # what has not ended, or only since the lake was filled

    def present(self, state: State, queues: Sequence[str] | None) -> Present:
        place = place_of(self._url)
        try:
            found, streams, retrying, looked = ask(self._url, lambda broker: _look(broker, queues))
        except HoldfastError as error:
            return Present(store=place, wrong=f"The store did not answer: {error}", at=time.time())
        seen = {one.name: _seen(state, place, one.name) for one in found}
        wrong, unseen = self._look_closer({name: at for name, at in seen.items() if at is not None})
        return Present(
            store=place,
            wrong=wrong,
            at=time.time(),
            counts_waiting=self._waiting is not None,
            queues=[_queue(one, seen[one.name], unseen.get(one.name)) for one in found],
            streams=[StreamNow(one.queue, one.consumer, one.owner, one.claimed, one.lag, one.tries) for one in streams],
            retrying=retrying,
            retrying_of=looked,
        )

    def waiting(self, period: Period) -> list[Arrivals]:
        from pyspark.sql import functions as F

        if self._waiting is None:
            return []
        places = self._waiting.withColumn("place", columns.place(F.col("came"), period)).where("place is not null")
        return [Arrivals(*row) for row in places.groupBy("queue", "place").count().collect()]

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.unpersist()

    def _look_closer(self, seen: dict[str, float]) -> tuple[str, dict[str, int]]:
        """Count by Spark what the lake has not seen end; what is wrong when Spark cannot."""
        from pyspark.sql import functions as F

        if not seen:
            return "", {}
        views = [self._view(view, seen) for view in (*_SETTLED, *_LIVE)]
        rows = reduce(lambda one, other: one.unionByName(other), views).cache()
        try:
            with in_plain_words():
                counted = rows.groupBy("queue").agg(F.count_if("has_ended").alias("count")).collect()
        except HoldfastError as error:
            rows.unpersist()
            return f"Spark cannot read this store, so arrivals and backlog lack what has not ended: {error}", {}
        self._waiting = rows
        return "", {**dict.fromkeys(seen, 0), **{row["queue"]: row["count"] for row in counted}}

    def _view(self, view: str, seen: dict[str, float]) -> DataFrame:
        """When messages of these queues came; of settled ones those that ended after the lake looked at their queue."""
        from pyspark.sql import functions as F

        from .. import register

        register(self._spark)
        has_ended = view in _SETTLED
        ddl = "queue string, enqueued_at timestamp" + (", finished_at timestamp" if has_ended else "")
        reader = self._spark.read.format("holdfast").schema(ddl).option("view", view)
        if self._url is not None:
            reader = reader.option("url", self._url)
        if has_ended:
            reader = reader.option("finishedSince", datetime.fromtimestamp(min(seen.values()), UTC).isoformat())
        rows = columns.as_numbers(reader.load(next(iter(seen))) if len(seen) == 1 else reader.load())
        rows = rows.where(F.col("queue").isin(list(seen)))
        if has_ended:
            marks = F.create_map(*[F.lit(each) for pair in seen.items() for each in pair])
            rows = rows.where(F.col("ended") > F.round(marks[F.col("queue")] * 1e6))
        return rows.select("queue", "came", F.lit(has_ended).alias("has_ended"))


Looked: TypeAlias = tuple[list[QueueReport], list[ConsumerReport], list[Retrying], int]


async def _look(broker: Broker, queues: Sequence[str] | None) -> Looked:
    found = [one for one in await overview(broker) if queues is None or one.name in queues]
    names = [one.name for one in found]
    streams = [] if broker.store.batches is None else await consumers(broker, names)
    retrying: list[Retrying] = []
    looked = 0
    for one in found:
        if one.stats.retry:
            rows = await broker.store.scan(one.name, "retry", limit=PAGE_ROWS)  # enough to see what is wrong
            looked += len(rows)
            retrying += _by_reason(one.name, rows)
    return found, streams, sorted(retrying, key=lambda one: -one.count), looked


def _by_reason(queue: str, rows: Sequence[Stored]) -> list[Retrying]:
    groups: dict[str, list[Stored]] = {}
    for one in rows:
        if one.error is not None:
            groups.setdefault(cause(one.error).fingerprint, []).append(one)
    return [_retrying(queue, fingerprint, of) for fingerprint, of in groups.items()]


def _retrying(queue: str, fingerprint: str, rows: list[Stored]) -> Retrying:
    last = rows[-1]
    text = last.error or ""
    return Retrying(queue, fingerprint, cause(text).reason, len(rows), last.id, last.attempts, text[:TEXT_CHARS])


def _seen(state: State, place: str, queue: str) -> float | None:
    mark = state.mark(marked(place, queue))
    return None if mark is None else mark / 1e6


def _queue(one: QueueReport, seen: float | None, unseen: int | None) -> QueueNow:
    stats = one.stats
    return QueueNow(
        queue=one.name,
        paused=one.paused,
        ready=stats.pending,
        delayed=stats.delayed,
        running=stats.processing,
        retry=stats.retry,
        dead=stats.dead,
        oldest=stats.oldest_age,
        seen=seen,
        unseen=unseen,
    )
