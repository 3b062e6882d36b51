"""`holdfast pipeline compact`: small files become large ones, old days and old versions go."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec

from ... import config
from ..lake import LakeConflict, compacting, tables
from ..lake.manifest import Change
from .lake import floor_of, opened
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
    versions: int  # old versions deleted
    swept: int  # files deleted that no version names
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
    """Merge small files of one queue and day, drop days older than `keep_days`, delete what no version names.

    Readers are not disturbed: files that went are deleted when the versions that name them are `keep_versions`
    seconds old.
    """
    if keep_days is not None:
        config.whole("keep_days", keep_days)
    config.seconds("keep_versions", keep_versions)
    place, base = opened(lake)
    started, floor = time.monotonic(), max(base.floor, floor_of(keep_days))
    change = compacting.expired(base, floor)
    dropped = sum(file.rows for file in base.files if file.path in change.remove and file.table == tables.MESSAGES)
    if not dry_run and (change.remove or floor > base.floor):
        base = place.commit(base, change)
    found = compacting.groups(base)
    merged, into = [file for group in found for file in group], len(found)
    versions = swept = 0
    if not dry_run:
        if found:
            with tasks(spark, f"compact: {len(merged)} files", tell):
                made = compacting.merge(spark, place, found)
            gone = frozenset(file.path for file in merged)
            try:
                base = place.commit(base, Change("compact", add=tuple(made), remove=gone))
            except LakeConflict:
                for file in made:
                    place.place.delete(file.path)
                raise
            into = len(made)
        versions, swept = compacting.sweep(place, keep_versions=keep_versions)
    took = time.monotonic() - started
    return CompactSummary(
        str(place.place.root), base.version, len(merged), into, dropped, versions, swept, len(base.files), took
    )
