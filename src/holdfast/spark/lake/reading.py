"""A view of the lake as a DataFrame: exactly the files of one version, read by executors without a jar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from . import tables
from .delta import File
from .lake import Lake
from .place import Place

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

COPIED_ROWS = 8192  # at a time, of a file that is read
SMALL_FILE_BYTES = 64 << 20  # an eighth of a full file: what is merged, and about what one task reads


class Chosen(msgspec.Struct, frozen=True):
    """Which rows of which view: of these queues, that finished from `since` until before `until`."""

    lake: str
    view: str = tables.MESSAGES
    version: int | None = None
    queues: tuple[str, ...] | None = None
    since: float | None = None
    until: float | None = None

    def may_hold(self, file: File) -> bool:
        queue = file.partition.get("queue")
        if self.queues is not None and queue is not None and queue not in self.queues:
            return False
        if self.since is not None and file.last is not None and file.last < self.since:
            return False
        return self.until is None or file.first is None or file.first < self.until


class Piece(msgspec.Struct, frozen=True):
    """A file, or a part of one: `number` of `of` equal ones."""

    path: str
    partition: dict[str, str | None]
    number: int = 0
    of: int = 1

    def groups(self, total: int) -> list[int]:
        """Which of a file's row groups are its."""
        return list(range(total * self.number // self.of, total * (self.number + 1) // self.of))


def plan(chosen: Chosen) -> list[list[Piece]]:
    """What each task reads. Opens the table: on a worker or the driver, never before a fork."""
    state = Lake(chosen.lake).table(chosen.view).state(chosen.version)
    return shared_out([file for file in state.files if chosen.may_hold(file)])


def shared_out(files: Sequence[File]) -> list[list[Piece]]:
    """Files as tasks of about one size."""
    tasks: list[list[Piece]] = []
    room = 0
    for file in sorted(files, key=lambda one: -one.size):
        parts = -(-file.size // SMALL_FILE_BYTES)
        if parts > 1:
            tasks += [[Piece(file.path, file.partition, number, parts)] for number in range(parts)]
            continue
        if file.size > room:
            tasks.append([])
            room = SMALL_FILE_BYTES
        tasks[-1].append(Piece(file.path, file.partition))
        room -= file.size
    return tasks


def read(chosen: Chosen, pieces: Sequence[Piece], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of these files, with these columns of the view."""
    place = Lake(chosen.lake).table(chosen.view).place
    for piece in pieces:
        yield from _piece(place, piece, chosen, names)


def _piece(place: Place, piece: Piece, chosen: Chosen, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(place.source(piece.path), page_checksum_verification=True, pre_buffer=True) as file:
        groups = piece.groups(file.num_row_groups)
        if not groups:
            return
        there = set(file.schema_arrow.names)
        wanted = {*names, *_filtered(chosen)} & there
        for batch in file.iter_batches(COPIED_ROWS, row_groups=groups, columns=sorted(wanted) or ["id"]):
            rows = _passing(batch, chosen)
            if rows.num_rows:
                yield _whole(rows, piece, chosen.view, names)


def _filtered(chosen: Chosen) -> Iterator[str]:
    if chosen.since is not None or chosen.until is not None:
        yield "finished_at"
    if chosen.view == tables.ERRORS:
        yield "error"
    if chosen.queues is not None:
        yield "queue"


def _passing(batch: pa.RecordBatch, chosen: Chosen) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    if chosen.view == tables.ERRORS:
        batch = batch.filter(pc.is_valid(batch["error"]))
    if chosen.queues is not None and "queue" in batch.schema.names:
        batch = batch.filter(pc.is_in(batch["queue"], pa.array(chosen.queues)))
    for moment, passes in ((chosen.since, pc.greater_equal), (chosen.until, pc.less)):
        if moment is not None:
            at = pa.scalar(datetime.fromtimestamp(moment, UTC), pa.timestamp("us", tz="UTC"))
            batch = batch.filter(passes(batch["finished_at"], at))
    return batch


def _whole(rows: pa.RecordBatch, piece: Piece, view: str, names: Sequence[str]) -> pa.RecordBatch:
    """The asked columns in their order: of the file, of its partition, or empty where the file is older than they."""
    import pyarrow as pa

    schema = tables.arrow_schema(view)
    columns: list[Any] = []
    for name in names:
        kind = schema.field(name).type
        if name in piece.partition:
            columns.append(constant(piece.partition[name], kind, rows.num_rows))
        elif name in rows.schema.names:
            columns.append(rows[name].cast(kind))
        else:
            columns.append(pa.nulls(rows.num_rows, kind))
    return pa.RecordBatch.from_arrays(columns, names=list(names))


def constant(value: str | None, kind: Any, count: int) -> pa.Array:
    """The column of a partition, or of a file that is older than the column."""
    import pyarrow as pa

    read: Any = date.fromisoformat(value) if value is not None and pa.types.is_date(kind) else value
    return pa.repeat(pa.scalar(read, pa.string() if isinstance(read, str) else kind), count).cast(kind)


def frame(
    spark: SparkSession,
    lake: Lake,
    view: str = tables.MESSAGES,
    *,
    version: int | None = None,
    queues: Sequence[str] | None = None,
    since: float | None = None,
    columns: Sequence[str] = (),
) -> DataFrame:
    """A view through the format `holdfast`; `columns` are read and no others."""
    from .. import register

    register(spark)
    reader = spark.read.format("holdfast").option("lake", lake.text).schema(tables.ddl(view, tuple(columns)))
    if version is not None:
        reader = reader.option("versionAsOf", str(version))
    if queues is not None:
        reader = reader.option("queue", ",".join(queues))
    if since is not None:
        reader = reader.option("finishedSince", datetime.fromtimestamp(since, UTC).isoformat())
    return reader.load(view)
