"""`holdfast pipeline replay`: chosen messages of a lake, or dead letters, back into a queue; each once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ... import config
from ...causes import cause
from ...errors import ConfigError
from ...messages import instant
from ...stores.base import PAGE_ROWS
from ..cluster import cores
from ..lake import Change, File, Lake, LakeConflict, State, reading, tables, writing
from ..lake.adding import JOB_TRIES
from ..lake.lake import NOTED, SENT, Replay
from ..options import check_url
from . import source
from .lake import opened
from .progress import Tell, silent, tasks
from .store import place_of, queues_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_STATUSES = ("completed", "failed", "dead")


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages: everything that is said must hold."""

    status: str | None = None
    since: datetime | None = None  # finished from then
    until: datetime | None = None  # until before then
    reason: str | None = None  # a fingerprint, or a part of the error's text
    ids: Sequence[str] | None = None
    where: str | None = None  # a condition in SQL over the columns
    limit: int | None = None  # the first so many, by the time they finished

    def check(self) -> None:
        if self.status is not None and self.status not in _STATUSES:
            raise ConfigError(config.unknown("status: unknown status", self.status, _STATUSES))
        if self.limit is not None:
            config.whole("limit", self.limit)

    def of(self, df: DataFrame) -> DataFrame:
        """The rows that are chosen."""
        from pyspark.sql import functions as F

        if self.status is not None:
            df = df.where(F.col("status") == self.status)
        if self.since is not None:
            df = df.where(F.col("finished_at") >= datetime.fromtimestamp(instant("since", self.since), UTC))
        if self.until is not None:
            df = df.where(F.col("finished_at") < datetime.fromtimestamp(instant("until", self.until), UTC))
        if self.ids is not None:
            df = df.where(F.col("id").isin(list(self.ids)))
        if self.reason is not None:
            same = fingerprint_of()(F.col("error")) == self.reason
            df = df.where(F.contains(F.col("error"), F.lit(self.reason)) | same)
        if self.where is not None:
            df = df.where(self.where)
        return df

    def first(self, df: DataFrame) -> DataFrame:
        """No more of them than asked for."""
        return df if self.limit is None else df.orderBy("finished_at", "id").limit(self.limit)


class ReplaySummary(msgspec.Struct, frozen=True):
    """What a replay did, or would do."""

    source: str
    replayed: int
    by_queue: dict[str, int]  # where they went
    dry_run: bool
    seconds: float


def replay(
    spark: SparkSession,
    lake: str | os.PathLike[str] | None = None,
    *,
    dead: str | None = None,
    to: str | None = None,
    queues: Sequence[str] | None = None,
    url: str | None = None,
    rate: float | None = None,
    again: bool = False,
    dry_run: bool = False,
    tell: Tell = silent,
    **chosen: Any,
) -> ReplaySummary:
    """Copies of messages of a lake, or the dead letters of the queue `dead`, back into their queue (a lake's also `to`
    another). `chosen` are the fields of `Chosen`: status, since, until, reason, ids, where, limit.

    Each message once, however often and in whatever overlapping choices it is asked for; `again` forgets earlier
    replays of a lake. `rate` messages a second become due at most.
    """
    check_url(url)
    started, filters = time.monotonic(), _filters(chosen)
    if rate is not None:
        config.positive("rate", rate)
    if (lake is None) == (dead is None):
        raise ConfigError("replay what? Give a lake, or dead=QUEUE")
    if dead is not None:
        if to is not None or queues or again:
            raise ConfigError(
                "dead letters go back to their own queue, once; `to`, `queues` and `again` are for a lake"
            )
        done = _dead_letters(spark, url, queues_of(url, [dead])[0], filters, rate=rate, dry_run=dry_run, tell=tell)
        return ReplaySummary(f"{dead}/dead", done, {dead: done}, dry_run, time.monotonic() - started)
    place, seen = opened(lake)  # type: ignore[arg-type]  # one of the two is there
    names = list(queues or sorted({file.partition["queue"] or "" for file in seen.files}))
    by_queue: dict[str, int] = {}
    for name in names:
        target = to or name
        if not dry_run:
            queues_of(url, [target])
        one = _FromLake(spark, place, url, name, target, filters, rate=rate, again=again)
        with tasks(spark, f"replay {name} into {target}", tell):
            by_queue[target] = by_queue.get(target, 0) + (one.count() if dry_run else one.run())
    return ReplaySummary(place.shown, sum(by_queue.values()), by_queue, dry_run, time.monotonic() - started)


def _filters(chosen: dict[str, Any]) -> Chosen:
    for name in chosen:
        if name not in Chosen.__struct_fields__:
            raise ConfigError(config.unknown("replay: unknown argument", name, Chosen.__struct_fields__))
    made = Chosen(**{name: value for name, value in chosen.items() if value is not None})
    made.check()
    return made


# ---------------------------------------------------------------------- from a lake


class _FromLake:
    """First the lake says which messages will go, then they go under that name, then the lake says that they went.

    A run that was killed in between is finished by the next: the queue takes a name only once.
    """

    def __init__(
        self,
        spark: SparkSession,
        place: Lake,
        url: str | None,
        queue: str,
        to: str,
        chosen: Chosen,
        *,
        rate: float | None,
        again: bool,
    ) -> None:
        self._spark, self._place, self._url = spark, place, url
        self._queue, self._to, self._chosen = queue, to, chosen
        self._rate, self._again = rate, again

    def count(self) -> int:
        return self._fresh(self._place.replayed.state()).count()

    def run(self) -> int:
        self._finish_others()
        for _ in range(JOB_TRIES):
            base = self._place.replayed.state()
            replay = Replay.to(place_of(self._url), self._to)
            files = self._note(base, replay)
            rows = sum(file.rows for file in files)
            if not rows:
                return 0
            marks = {replay.mark: NOTED, replay.target: (base.mark(replay.target) or 0) + 1}
            try:
                self._place.replayed.commit(base, Change("WRITE", add=tuple(files), marks=marks))
            except LakeConflict as error:
                conflict = error
                for file in files:
                    self._place.replayed.place.delete(file.path)
                continue
            self._publish(replay)
            return rows
        raise conflict

    def _before(self, seen: State) -> list[Replay]:
        """What went to the same queue before."""
        target = Replay.to(place_of(self._url), self._to).target
        return [one for one in self._place.replays(seen) if one.target == target]

    def _finish_others(self) -> None:
        seen = self._place.replayed.state()
        for one in self._before(seen):
            if seen.mark(one.mark) != SENT:
                self._publish(one)

    def _fresh(self, seen: State) -> DataFrame:
        """What is chosen and did not go before."""
        rows = reading.frame(self._spark, self._place, version=self._place.state().version, queues=[self._queue])
        chosen = self._chosen.of(rows).select("id", "queue", "finished_at").dropDuplicates(["id"])
        before = [one.name for one in self._before(seen)]
        if not before or self._again:
            return self._chosen.first(chosen)
        columns = ("id", "queue", "replay")
        gone = reading.frame(
            self._spark, self._place, tables.REPLAYED, version=seen.version, queues=[self._queue], columns=columns
        )
        fresh = chosen.join(gone.where(gone["replay"].isin(before)).select("id"), "id", "left_anti")
        return self._chosen.first(fresh)

    def _note(self, base: State, replay: Replay) -> list[File]:
        """The files that say which messages go, and when each is due."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        due = F.lit(None).cast("timestamp")
        if self._rate is not None:  # whole seconds, so that what is due together stays together
            place = F.row_number().over(Window.orderBy("finished_at", "id")) - 1
            due = F.timestamp_seconds(F.lit(int(time.time())) + F.floor(place / F.lit(self._rate)))
        said = {"replay": replay.name, "store": place_of(self._url), "to": self._to}
        named = [F.lit(value).alias(name) for name, value in said.items()]
        rows = self._fresh(base).select("id", "queue", "finished_at", due.alias("deliver_at"), *named).coalesce(4)
        made = writing.AsTable(tables.REPLAYED)
        return writing.written(rows, self._place.replayed.place, tables.PARTITIONS[tables.REPLAYED], made)

    def _publish(self, replay: Replay) -> None:
        from pyspark.sql import functions as F

        from .. import register

        register(self._spark)
        seen = self._place.replayed.state()
        columns = ("id", "queue", "deliver_at", "replay")
        noted = reading.frame(self._spark, self._place, tables.REPLAYED, version=seen.version, columns=columns)
        noted = noted.where(noted["replay"] == replay.name).drop("replay")
        version = self._place.state().version
        rows = reading.frame(self._spark, self._place, version=version).dropDuplicates(["queue", "id"])
        origin = F.create_map(F.lit("replayed_from"), F.col("id"))
        kept = F.map_filter(F.col("headers"), lambda key, value: key != "replayed_from")
        df = rows.join(noted, ["queue", "id"]).select(
            "value",
            "content_type",
            "priority",
            F.map_concat(F.coalesce(kept, F.create_map().cast("map<string,string>")), origin).alias("headers"),
            "deliver_at",
        )
        writer = df.write.format("holdfast").mode("append").option("idempotencyKey", replay.key)
        (writer if self._url is None else writer.option("url", self._url)).save(self._to)
        self._place.replayed.commit(self._place.replayed.state(), Change("WRITE", marks={replay.mark: SENT}))


def fingerprint_of() -> Any:
    """The fingerprint of an error, as a function of Spark."""
    from pyspark.sql import functions as F

    return F.udf(lambda error: None if error is None else cause(error).fingerprint, "string")


# ---------------------------------------------------------------------- dead letters


def _dead_letters(
    spark: SparkSession, url: str | None, queue: str, chosen: Chosen, *, rate: float | None, dry_run: bool, tell: Tell
) -> int:
    since, until = (None if moment is None else instant("time", moment) for moment in (chosen.since, chosen.until))
    with tasks(spark, f"replay the dead letters of {queue}", tell):
        return _moved(spark, url, queue, chosen, (since, until), rate=rate, dry_run=dry_run)


def _moved(
    spark: SparkSession,
    url: str | None,
    queue: str,
    chosen: Chosen,
    between: tuple[float | None, float | None],
    *,
    rate: float | None,
    dry_run: bool,
) -> int:
    since, until = between
    rows = chosen.first(chosen.of(source.view(spark, url, queue, "dead", since=since, until=until))).select("id")
    if dry_run:
        return rows.count()
    parts = 1 if rate is not None else cores(spark)
    moved = rows.coalesce(parts).mapInArrow(_MoveTask(url, queue, rate), "moved long").collect()
    return sum(row.moved for row in moved)


class _MoveTask:
    """For `mapInArrow` over ids of dead letters: each goes back in one step; a repeat moves nothing."""

    def __init__(self, url: str | None, queue: str, rate: float | None) -> None:
        self._url, self._queue, self._rate = url, queue, rate

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from ..link import link

        at, moved, started, sent = link(self._url), 0, time.monotonic(), 0
        page = PAGE_ROWS if self._rate is None else max(1, min(PAGE_ROWS, int(self._rate)))
        for batch in batches:
            ids = batch["id"].to_pylist()
            for start in range(0, len(ids), page):
                part = ids[start : start + page]
                if self._rate is not None:
                    time.sleep(max(0.0, started + sent / self._rate - time.monotonic()))
                moved += at.run(at.store.replay(self._queue, "dead", part))
                sent += len(part)
        yield pa.RecordBatch.from_arrays([pa.array([moved], pa.int64())], names=["moved"])
