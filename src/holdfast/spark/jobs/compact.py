"""`holdfast pipeline compact`: small files become large ones, old days and old versions go."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec

from ... import config
from ...errors import ConfigError
from ..lake import Change, Lake, LakeConflict, State, compacting, parquet
from ..lake.adding import JOB_TRIES
from ..lake.delta import Table
from ..lake.lake import Alone, alone
from ..lake.lake import floor as floor_of_state
from ..lake.place import open_place
from .lake import drop_before, floor_of, opened
from .progress import Tell, silent, tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CompactSummary(msgspec.Struct, frozen=True):
    """What a run of `compact` did, or would do."""

    lake: str
    version: int
    merged: int  # files before
    into: int  # files after
    dropped: int  # rows of days past the retention
    swept: int  # files deleted that no version needs any more
    files: int
    seconds: float


def compact(
    spark: SparkSession,
    lake: str | os.PathLike[str],
    *,
    keep_days: int | None = None,
    keep_versions: float = compacting.KEEP_FILES_S,
    dry_run: bool = False,
    tell: Tell = silent,
) -> CompactSummary:
    """Merge small files of one queue and day, drop days older than `keep_days`, delete what no version needs.

    Also of a Delta table of fields, where `keep_days` needs one that was made `by_day`. Readers are not disturbed:
    files that went are deleted `keep_versions` seconds later, in whole hours.
    """
    if keep_days is not None:
        config.whole("keep_days", keep_days)
    config.seconds("keep_versions", keep_versions)
    place, base = _opened(lake)
    if keep_days is not None and isinstance(place, Alone) and not place.has_days:
        raise ConfigError(f"{place.shown} is not divided by day: make it with by_day for days to be dropped")
    started, floor = time.monotonic(), max(floor_of_state(base), floor_of(keep_days))
    if dry_run:
        gone = compacting.expired(place.parts[0], base, floor) if floor else None
        dropped = sum(file.rows for file in gone.remove) if gone else 0
        found = [group for table in place.parts for group in compacting.groups(table.state())]
        merged, into, swept = sum(map(len, found)), len(found), 0
    else:
        dropped = drop_before(place, floor) if floor else 0
        did = [_merge(spark, table, tell) for table in place.parts]
        merged, into = sum(before for before, _ in did), sum(after for _, after in did)
        swept = compacting.sweep(place, keep_versions=keep_versions)
    now, took = place.state(), time.monotonic() - started
    return CompactSummary(place.shown, now.version, merged, into, dropped, swept, len(now.files), took)


def _opened(given: str | os.PathLike[str]) -> tuple[Lake | Alone, State]:
    """A lake, or a table by itself, that must be there; ConfigError."""
    place = open_place(given)
    if (table := alone(place)) is not None:
        return table, table.state()
    if parquet.is_one(place):
        raise ConfigError(f"{place.shown} is a folder of Parquet files: only Delta tables are compacted")
    return opened(given)


def _merge(spark: SparkSession, table: Table, tell: Tell) -> tuple[int, int]:
    """How many files became how many. Who loses a race against another compaction looks again."""
    for attempt in range(1, JOB_TRIES + 1):
        base = table.state()
        found = compacting.groups(base)
        if not found:
            break
        files = [file for group in found for file in group]
        with tasks(spark, f"compact: {len(files)} files", tell):
            made = compacting.merge(spark, table, found)
        try:
            table.commit(base, Change("OPTIMIZE", add=tuple(made), remove=tuple(files)))
        except LakeConflict:
            for file in made:
                table.place.delete(file.path)
            if attempt == JOB_TRIES:
                raise
            continue
        return len(files), len(made)
    return 0, 0
