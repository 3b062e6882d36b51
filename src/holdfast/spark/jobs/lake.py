"""`holdfast pipeline lake`: finished and dead messages into Parquet tables, each once."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING

import msgspec

from ... import config
from ...errors import ConfigError
from ..lake import File, Lake, LakeConflict, Snapshot, compacting, reading, tables, writing
from ..lake.manifest import Change
from . import source
from .progress import Tell, silent, tasks
from .store import place_of, queues_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OVERLAP_S = 3600.0  # before the last mark: what was settled may be seen a little later
JOB_TRIES = 3  # of a job whose commit lost a race; then somebody should look
_BROADCAST_IDS = 500_000  # that every executor can hold: then nothing is shuffled
_KEY = ["queue", "id", "status"]


class LakeSummary(msgspec.Struct, frozen=True):
    """What a run of `lake` did."""

    lake: str
    version: int
    added: int
    errors: int
    files: int
    dropped: int  # rows of days past the retention
    rows: int  # in the lake now
    by_queue: dict[str, int]
    seconds: float


def lake(
    spark: SparkSession,
    queues: str | Sequence[str],
    lake: str | os.PathLike[str],
    *,
    url: str | None = None,
    keep_days: int | None = None,
    full: bool = False,
    tell: Tell = silent,
) -> LakeSummary:
    """Add what finished or died since the last run; `full` compares with everything instead of the last hours.

    Running it again adds nothing. `keep_days` drops whole days (UTC) older than that, now and in later runs.
    """
    if keep_days is not None:
        config.whole("keep_days", keep_days)
    names = queues_of(url, [queues] if isinstance(queues, str) else queues)
    place, started = Lake(lake), time.monotonic()
    before = place.snapshot()
    floor = max(before.floor, floor_of(keep_days))
    for _ in range(JOB_TRIES):
        base = place.snapshot()
        with tasks(spark, f"lake: reading {', '.join(names)}", tell):
            files = _write(spark, place, base, names, url, floor=floor, full=full)
        try:
            base = _commit(place, base, files, names, url)
            break
        except LakeConflict as error:
            conflict = error
            for file in files:
                place.place.delete(file.path)
    else:
        raise conflict
    dropped = 0
    if any(file.day < floor for file in base.files) or floor > base.floor:
        rows = base.rows(tables.MESSAGES)
        base = place.commit(base, compacting.expired(base, floor))
        dropped = rows - base.rows(tables.MESSAGES)
    return _summary(place, base, files, dropped, time.monotonic() - started)


def _write(
    spark: SparkSession,
    place: Lake,
    base: Snapshot,
    names: Sequence[str],
    url: str | None,
    *,
    floor: str,
    full: bool,
) -> list[File]:
    """The files of what is new, which nobody sees yet."""
    parts = []
    for name in names:
        mark = None if full else base.marks.get(_mark(url, name))
        since = None if mark is None else mark - OVERLAP_S
        ended = [_as_messages(source.view(spark, url, name, view, since=since)) for view in ("archive", "dead")]
        new = ended[0].unionByName(ended[1])
        known = base.of(tables.MESSAGES, queues=[name], since=since)
        if known:
            there = reading.of_files(spark, place, tables.MESSAGES, known).select(*_KEY)
            few = sum(file.rows for file in known) < _BROADCAST_IDS
            new = new.join(there.hint("broadcast") if few else there, _KEY, "left_anti")
        parts.append(new)
    everything = reduce(lambda one, other: one.unionByName(other), parts)
    everything = everything.coalesce(2 * spark.sparkContext.defaultParallelism)  # or each view would be small files
    if floor:
        everything = everything.where(everything["finished_at"] >= datetime.fromisoformat(floor).replace(tzinfo=UTC))
    task = writing.LakeTask(str(place.place.root))
    return [File(**row.asDict()) for row in everything.mapInArrow(task, writing.FILES).collect()]


def _as_messages(df: DataFrame) -> DataFrame:
    """The columns of the table that a view has."""
    return df.select(*[name for name in tables.COLUMNS[tables.MESSAGES] if name in df.columns])


def _commit(place: Lake, base: Snapshot, files: Sequence[File], names: Sequence[str], url: str | None) -> Snapshot:
    if not files:
        return base
    marks: dict[str, float] = {}
    for name in names:
        ends = [file.last for file in files if file.queue == name]
        if ends:
            marks[_mark(url, name)] = max(ends)
    return place.commit(base, Change("lake", add=tuple(files), marks=marks))


def _mark(url: str | None, queue: str) -> str:
    return f"{place_of(url)}#{queue}"


def floor_of(keep_days: int | None) -> str:
    if keep_days is None:
        return ""
    return (datetime.now(UTC).date() - timedelta(days=keep_days)).isoformat()


def _summary(place: Lake, base: Snapshot, files: Sequence[File], dropped: int, seconds: float) -> LakeSummary:
    by_queue: dict[str, int] = {}
    for file in files:
        if file.table == tables.MESSAGES:
            by_queue[file.queue] = by_queue.get(file.queue, 0) + file.rows
    errors = sum(file.rows for file in files if file.table == tables.ERRORS)
    rows = base.rows(tables.MESSAGES)
    return LakeSummary(
        str(place.place.root),
        base.version,
        sum(by_queue.values()),
        errors,
        len(files),
        dropped,
        rows,
        by_queue,
        seconds,
    )


def opened(lake: str | os.PathLike[str]) -> tuple[Lake, Snapshot]:
    """A lake that must be there, and its newest version; ConfigError."""
    place = Lake(lake)
    snapshot = place.snapshot()
    if not snapshot.version:
        raise ConfigError(f"there is no lake at {place.place.root}; make one with `holdfast pipeline lake QUEUE… LAKE`")
    return place, snapshot
