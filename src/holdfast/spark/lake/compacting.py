"""Small files of one queue and day become one; days that are too old and files nobody can see any more go."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from . import tables
from .folder import Folder
from .manifest import VERSIONS, Change, File, Lake, Snapshot
from .writing import FILES, Writer, file_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SMALL_FILE_BYTES = 64 << 20  # an eighth of a full file: fewer would be rewritten again and again
KEEP_FILES_S = 24 * 3600.0  # no reader goes on so long with what it saw, and no job writes so long before it commits
_COPIED_ROWS = 8192  # at a time, of files that are merged


def groups(snapshot: Snapshot, *, small: int = SMALL_FILE_BYTES, least: int = 2) -> list[list[File]]:
    """Small files of one table, queue and day, where there are at least so many."""

    def kind(file: File) -> tuple[str, str, str]:
        return file.table, file.queue, file.day

    found = sorted((file for file in snapshot.files if file.size < small), key=kind)
    together = (list(group) for _, group in groupby(found, key=kind))
    return [group for group in together if len(group) >= least]


def merge(spark: SparkSession, lake: Lake, found: list[list[File]]) -> list[File]:
    """One file instead of each group; nobody sees it yet."""
    rows = [(msgspec.json.encode(group).decode(),) for group in found]
    frame = spark.createDataFrame(rows, "files string").repartition(len(rows))
    made = frame.mapInArrow(MergeTask(str(lake.place.root)), FILES).collect()
    return [File(**row.asDict()) for row in made]


class MergeTask:
    """For `mapInArrow` over groups of files."""

    def __init__(self, root: str) -> None:
        self._root = root

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = Writer(self._root)
        try:
            for batch in batches:
                for text in batch["files"].to_pylist():
                    self._merge(writer, msgspec.json.decode(text, type=list[File]))
            files = writer.close()
        except BaseException:
            writer.abandon()
            raise
        yield file_rows(files)

    def _merge(self, writer: Writer, group: list[File]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        place = Folder(self._root)
        for file in sorted(group, key=lambda one: one.first):
            with pq.ParquetFile(place.path(file.path), page_checksum_verification=True) as source:
                for batch in source.iter_batches(_COPIED_ROWS):
                    rows = pa.Table.from_batches([batch]).cast(tables.arrow_schema(file.table))
                    writer.write(file.table, rows)


def expired(snapshot: Snapshot, floor: str) -> Change:
    """The change that drops everything that finished before a day."""
    gone = frozenset(file.path for file in snapshot.files if file.day < floor)
    return Change("expire", remove=gone, floor=floor)


def sweep(lake: Lake, *, keep_versions: float, now: float | None = None) -> tuple[int, int]:
    """Delete versions older than so many seconds and files that no version names; how many of each."""
    at = time.time() if now is None else now
    versions = lake.versions()
    kept = [lake.version(number) for number in versions]
    old = [one for one in kept[:-1] if one.at < at - keep_versions]
    for one in old:
        lake.place.delete(f"{VERSIONS}/{one.version:012d}.json")
    named = {file.path for one in kept if one not in old for file in one.files}
    once_named = {file.path for one in old for file in one.files}
    swept = 0
    for table in tables.TABLES:
        for name, written_at in lake.place.walk(table):
            # A file that was named once may go with its last version; one that never was may be under way.
            if name not in named and (name in once_named or written_at < at - KEEP_FILES_S):
                lake.place.delete(name)
                swept += 1
    return len(old), swept
