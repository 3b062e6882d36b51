"""Lakes of 0.1.0 become Delta tables where they lie. Their rows are written again, and the old files go at the end.

Until the commit of `messages` the lake is the old one, from then on the new one: a conversion that was killed is run
again, and either starts over or only tidies up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import ConfigError, StoreError
from ..cluster import cores
from . import tables
from .delta import Change, File
from .lake import NOTED, OLD, SENT, Lake, Replay, floor_mark
from .place import open_place
from .reading import COPIED_ROWS
from .writing import FILES, Writer, file_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_FORMAT = 1  # of the manifests of 0.1.0


class OldFile(msgspec.Struct, frozen=True):
    """A data file of 0.1.0."""

    table: str
    path: str
    rows: int


class OldReplay(msgspec.Struct, frozen=True):
    """Messages that went back to a queue, or are about to."""

    url: str
    queue: str
    at: float
    done: bool = False
    rate: float | None = None


class OldVersion(msgspec.Struct, frozen=True):
    """One version of a lake of 0.1.0."""

    version: int
    files: tuple[OldFile, ...] = ()
    marks: dict[str, float] = {}
    floor: str = ""
    replays: dict[str, OldReplay] = {}
    format: int = _FORMAT

    def of(self, table: str) -> list[OldFile]:
        return [file for file in self.files if file.table == table]


def versions(lake: Lake) -> list[str]:
    """The names of the old versions, in order."""
    return sorted(name for name in lake.place.names(OLD) if name.endswith(".json"))


def version(lake: Lake, name: str) -> OldVersion:
    found = msgspec.json.decode(lake.place.read(name) or b"", type=OldVersion)
    if found.format > _FORMAT:
        raise StoreError(f"the lake has format {found.format}, and lakes of format {_FORMAT} can be converted")
    return found


def convert(spark: SparkSession, lake: Lake) -> int:
    """Make the tables; how many messages they hold."""
    names = versions(lake)
    if not names:
        raise ConfigError(f"{lake.shown} is not a lake of 0.1.0: there is nothing to convert")
    if lake.messages.state().version < 0:
        old = version(lake, names[-1])
        _replayed(spark, lake, old)
        made = _written(spark, lake, old, tables.MESSAGES)
        if versions(lake)[-1] != names[-1]:
            raise StoreError(f"another job wrote to {lake.shown} meanwhile: stop it, then convert again")
        marks = {f"holdfast/lake/{name}": int(mark * 1e6) for name, mark in old.marks.items()}
        marks |= floor_mark(old.floor) if old.floor else {}
        lake.messages.commit(lake.messages.state(), Change("WRITE", add=tuple(made), marks=marks))
    rows = lake.messages.state().rows
    _tidy(lake)
    return rows


def _replayed(spark: SparkSession, lake: Lake, old: OldVersion) -> None:
    base = lake.replayed.state()
    if base.version >= 0 or not old.replays:
        return
    made = _written(spark, lake, old, tables.REPLAYED)
    marks: dict[str, int] = {}
    for name, one in old.replays.items():
        replay = Replay.to(one.url, one.queue, name)
        marks |= {replay.mark: SENT if one.done else NOTED, replay.target: 1}
    lake.replayed.commit(base, Change("WRITE", add=tuple(made), marks=marks))


def _written(spark: SparkSession, lake: Lake, old: OldVersion, table: str) -> list[File]:
    """Executors write the rows of the old files; the new files."""
    paths = [(file.path,) for file in old.of(table)]
    if not paths:
        return []
    frame = spark.createDataFrame(paths, "path string").repartition(min(len(paths), cores(spark)))
    task = ConvertTask(lake.text, table, old.replays if table == tables.REPLAYED else {})
    made = [msgspec.json.decode(row.file, type=File) for row in frame.mapInArrow(task, FILES).collect()]
    if (rows := sum(file.rows for file in made)) != (told := sum(file.rows for file in old.of(table))):
        raise StoreError(f"{lake.shown}: {table} has {rows} rows and should have {told}; nothing was changed")
    return made


class ConvertTask:
    """For `mapInArrow` over the paths of old files: writes their rows as a table has them."""

    def __init__(self, lake: str, table: str, replays: dict[str, OldReplay]) -> None:
        self._lake, self._table, self._replays = lake, table, replays

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        root = open_place(self._lake)
        writer = Writer(root.below(self._table), tables.PARTITIONS[self._table])
        try:
            for batch in batches:
                for path in batch["path"].to_pylist():
                    self._copy(root.source(path), writer)
            files = writer.close()
        except BaseException:
            writer.abandon()
            raise
        yield file_rows(files)

    def _copy(self, source: Any, writer: Writer) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with pq.ParquetFile(source, page_checksum_verification=True) as file:
            for batch in file.iter_batches(COPIED_ROWS):
                rows = pa.Table.from_batches([batch])
                if self._table == tables.REPLAYED:
                    rows = self._with_target(rows)
                writer.write(tables.as_table(rows, self._table))

    def _with_target(self, rows: pa.Table) -> pa.Table:
        import pyarrow as pa

        of = [self._replays[name] for name in rows["replay"].to_pylist()]
        names = [
            Replay.to(one.url, one.queue, own).name for one, own in zip(of, rows["replay"].to_pylist(), strict=True)
        ]
        rows = rows.drop_columns("replay").append_column("replay", pa.array(names, pa.string()))
        rows = rows.append_column("store", pa.array([one.url for one in of], pa.string()))
        rows = rows.append_column("to", pa.array([one.queue for one in of], pa.string()))
        due = [
            None if one.rate is None else (int(one.at) + int(place // one.rate)) * 1_000_000
            for one, place in zip(of, rows["place"].to_pylist(), strict=True)
        ]
        return rows.append_column("deliver_at", pa.array(due, pa.timestamp("us", tz="UTC")))


def _tidy(lake: Lake) -> None:
    """The old files, then what named them: as long as one name is there, this can be done again."""
    names = versions(lake)
    for path in {file.path for name in names for file in version(lake, name).files}:
        lake.place.delete(path)
    for name in names:
        lake.place.delete(name)
