"""`holdfast pipeline lake`: finished and dead messages into Delta tables, each once."""

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
from ..cluster import cores
from ..lake import Change, File, Lake, LakeConflict, State, compacting, reading, tables, writing
from ..lake.adding import JOB_TRIES
from ..lake.lake import Alone, marked
from ..lake.lake import floor as floor_of_state
from . import source
from .progress import Tell, silent, tasks
from .store import place_of, queues_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OVERLAP_S = 3600.0  # before the last mark: what was settled may be seen a little later
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
    place, started = Lake(lake), time.monotonic()
    names = queues_of(url, [queues] if isinstance(queues, str) else queues)
    floor = max(floor_of_state(place.state()), floor_of(keep_days))
    for _ in range(JOB_TRIES):
        base = place.state()
        with tasks(spark, f"lake: reading {', '.join(names)}", tell):
            files = _write(spark, place, base, names, url, floor=floor, full=full)
        try:
            _commit(place, base, files, names, url)
            break
        except LakeConflict as error:
            conflict = error
            for file in files:
                place.messages.place.delete(file.path)
    else:
        raise conflict
    dropped = drop_before(place, floor) if floor else 0
    return _summary(place, files, dropped, time.monotonic() - started)


def drop_before(place: Lake | Alone, day: str) -> int:
    """Drop what finished before a day, for good; how many messages."""
    dropped = 0
    for table in place.parts:
        for attempt in range(1, JOB_TRIES + 1):
            base = table.state()
            change = compacting.expired(table, base, day) if base.version >= 0 else None
            if change is None:
                break
            try:
                table.commit(base, change)
            except LakeConflict:
                if attempt == JOB_TRIES:
                    raise
                continue
            dropped += sum(file.rows for file in change.remove) if table is place.parts[0] else 0
            break
    return dropped


def _write(
    spark: SparkSession,
    place: Lake,
    base: State,
    names: Sequence[str],
    url: str | None,
    *,
    floor: str,
    full: bool,
) -> list[File]:
    """The files of what is new, which nobody sees yet."""
    parts = []
    for name in names:
        mark = None if full else base.mark(marked(place_of(url), name))
        since = None if mark is None else mark / 1e6 - OVERLAP_S
        ended = [_as_messages(source.view(spark, url, name, view, since=since)) for view in ("archive", "dead")]
        new = ended[0].unionByName(ended[1], allowMissingColumns=True)
        chosen = reading.Chosen(place.text, queues=(name,), since=since)
        known = [file for file in base.files if chosen.may_hold(file)]
        if known:
            there = reading.frame(spark, place, version=base.version, queues=[name], since=since, columns=_KEY)
            few = sum(file.rows for file in known) < _BROADCAST_IDS
            new = new.join(there.hint("broadcast") if few else there, _KEY, "left_anti")
        parts.append(new)
    everything = reduce(lambda one, other: one.unionByName(other), parts)
    everything = everything.coalesce(2 * cores(spark))  # or each view would be small files
    if floor:
        everything = everything.where(everything["finished_at"] >= datetime.fromisoformat(floor).replace(tzinfo=UTC))
    made = writing.AsTable(tables.MESSAGES)
    return writing.written(everything, place.messages.place, tables.PARTITIONS[tables.MESSAGES], made)


def _as_messages(df: DataFrame) -> DataFrame:
    """The columns of the table that a view has."""
    return df.select(*[name for name in tables.COLUMNS[tables.MESSAGES] if name in df.columns])


def _commit(place: Lake, base: State, files: Sequence[File], names: Sequence[str], url: str | None) -> None:
    if not files:
        return
    marks: dict[str, int] = {}
    for name in names:
        ends = [file.last for file in files if file.partition["queue"] == name and file.last is not None]
        if ends:
            mark = marked(place_of(url), name)
            marks[mark] = max(int(max(ends) * 1e6), base.mark(mark) or 0)
    place.messages.commit(base, Change("WRITE", add=tuple(files), marks=marks))


def floor_of(keep_days: int | None) -> str:
    if keep_days is None:
        return ""
    return (datetime.now(UTC).date() - timedelta(days=keep_days)).isoformat()


def _summary(place: Lake, files: Sequence[File], dropped: int, seconds: float) -> LakeSummary:
    by_queue: dict[str, int] = {}
    for file in files:
        queue = file.partition["queue"] or ""
        by_queue[queue] = by_queue.get(queue, 0) + file.rows
    errors = sum(file.rows - msgspec.json.decode(file.stats)["nullCount"]["error"] for file in files)
    now = place.state()
    added = sum(by_queue.values())
    return LakeSummary(place.shown, now.version, added, errors, len(files), dropped, now.rows, by_queue, seconds)


def opened(lake: str | os.PathLike[str]) -> tuple[Lake, State]:
    """A lake that must be there, and its newest version; ConfigError."""
    place = Lake(lake)
    state = place.state()
    if state.version < 0:
        raise ConfigError(f"there is no lake at {place.shown}; make one with `holdfast pipeline lake QUEUE… LAKE`")
    return place, state
