"""Small files of one partition become one; days that are too old and files nobody can see any more go."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from . import tables
from .delta import CHECKPOINT_COMMITS, LOG, Change, File, State, Table, name_of, opened
from .lake import DAY, Alone, Lake, floor, floor_mark
from .place import open_place
from .reading import COPIED_ROWS, SMALL_FILE_BYTES
from .writing import FILES, Writer, file_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

KEEP_FILES_S = 24 * 3600.0  # no reader goes on so long with what it saw, and no job writes so long before it commits


def groups(state: State, *, small: int = SMALL_FILE_BYTES, least: int = 2) -> list[list[File]]:
    """Small files of one partition, where there are at least so many."""

    def kind(file: File) -> list[tuple[str, str]]:
        return sorted((name, value or "") for name, value in file.partition.items())

    found = sorted((file for file in state.files if file.size < small and file.is_plain), key=kind)
    together = (list(group) for _, group in groupby(found, key=kind))
    return [group for group in together if len(group) >= least]


def merge(spark: SparkSession, table: Table, found: list[list[File]]) -> list[File]:
    """One file instead of each group; nobody sees it yet."""
    rows = [(msgspec.json.encode(group).decode(),) for group in found]
    frame = spark.createDataFrame(rows, "files string").repartition(len(rows))
    made = frame.mapInArrow(MergeTask(table.place.text), FILES).collect()
    return [msgspec.json.decode(row.file, type=File) for row in made]


class MergeTask:
    """For `mapInArrow` over groups of files of one partition each."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch["files"].to_pylist():
                yield file_rows(self._merged(msgspec.json.decode(text, type=list[File])))

    def _merged(self, group: list[File]) -> list[File]:
        import pyarrow.parquet as pq

        place = open_place(self._place)
        writer = Writer(place, (), of=group[0].partition)
        try:
            files = sorted(group, key=lambda one: one.first or 0.0)
            schema = _columns(pq.read_schema(place.source(file.path)) for file in files)
            for file in files:
                with pq.ParquetFile(place.source(file.path), page_checksum_verification=True) as source:
                    for batch in source.iter_batches(COPIED_ROWS):
                        writer.write(_fitted(batch, schema))
            return writer.close()
        except BaseException:
            writer.abandon()
            raise


def _columns(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Of all of these: files may be older than some columns."""
    import pyarrow as pa

    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            fields.setdefault(field.name, field)
    return pa.schema(list(fields.values()))


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    columns = [
        batch[field.name].cast(field.type) if field.name in batch.schema.names else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def expired(table: Table, state: State, day: str) -> Change | None:
    """The change that drops everything that finished before a day; None: there is nothing to change."""
    start = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
    gone = tuple(file for file in state.files if _is_before(file, day, start))
    if table.spec != tables.spec(tables.MESSAGES):
        return Change("DELETE", remove=gone) if gone else None
    return None if not gone and floor(state) >= day else Change("DELETE", remove=gone, marks=floor_mark(day))


def _is_before(file: File, day: str, start: float) -> bool:
    own = file.partition.get("day") or file.partition.get(DAY)
    return own < day if own is not None else file.last is not None and file.last < start


def sweep(lake: Lake | Alone, *, keep_versions: float) -> int:
    """Delete files that went more than so many seconds ago, and what no commit ever named; how many."""
    return sum(_swept(table, keep_versions) for table in lake.parts)


def _swept(table: Table, keep: float) -> int:
    delta = opened(table.place)
    if delta is None:
        return 0
    before = delta.version()
    there = {name for name in table.place.names("") if not name.startswith(LOG)}
    gone: set[str] = set()
    # A file that was named once may go with its last version; one that never was may be under way.
    for age, full in ((keep, False), (max(keep, KEEP_FILES_S), True)):
        asked: dict[str, Any] = {"retention_hours": math.ceil(age / 3600), "full": full}
        asked["enforce_retention_duration"] = False  # of a week: our readers say how long they may lag
        found = there.intersection(delta.vacuum(dry_run=True, **asked))
        if found:
            delta.vacuum(dry_run=False, **asked)
            gone, there = gone | found, there - found
    for version in range(before, before + CHECKPOINT_COMMITS):
        table.place.sync(name_of(version))
    delta.cleanup_metadata()
    return len(gone)
