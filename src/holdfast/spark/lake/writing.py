"""What executors do for a lake: rows become Parquet files that nobody sees until the driver commits them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from . import tables
from .delta import File
from .place import Place, fresh_name, open_place

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FILES = "file string"  # what tasks answer: a file each, as JSON
FILE_ROWS = 2_000_000  # of a full file, however small the messages
FILE_BYTES = 512 << 20  # the usual size of a Parquet file in a lake
GROUP_BYTES = 32 << 20  # in memory, of a part that readers can skip: smaller ones compress badly
MESSAGE_ID = "message_id"  # of a table that is made of a queue's fields
_TEXTS = ("id", MESSAGE_ID, "status")  # short, and asked for: their bounds are worth a place in the log
_REPETITIVE = (
    *("queue", "status", "content_type", "priority", "attempts", "max_attempts", "worker", "error"),
    *("kind", "reason", "fingerprint"),
)
_INSTANT = "%Y-%m-%dT%H:%M:%S.%fZ"
Rows: TypeAlias = "Callable[[pa.Table], pa.Table]"


class Writer:
    """One task's open files. A task that runs twice writes twice; only what its last run answers is committed."""

    def __init__(
        self,
        place: Place,
        partitions: tuple[str, ...],
        *,
        of: dict[str, str | None] | None = None,
        rows: int = FILE_ROWS,
        size: int = FILE_BYTES,
    ) -> None:
        """`of` is the partition of all rows, where they do not say it themselves."""
        self._of = of or {}
        self._place = place
        self._partitions = partitions
        self._rows = rows
        self._size = size
        self._open: dict[tuple[str | None, ...], _Open] = {}
        self.files: list[File] = []

    def write(self, rows: pa.Table) -> None:
        """Each row into the file of its partition."""
        for values, part in _parts(rows, self._partitions):
            if values not in self._open:
                self._open[values] = _Open(
                    self._place, {**self._of, **dict(zip(self._partitions, values, strict=True))}
                )
            opened = self._open[values]
            opened.write(part)
            if opened.rows >= self._rows or opened.size >= self._size:
                self.files.append(self._open.pop(values).close())

    def close(self) -> list[File]:
        """Everything durable; what was written."""
        while self._open:
            self.files.append(self._open.popitem()[1].close())
        return self.files

    def abandon(self) -> None:
        """Nothing of this will be committed."""
        for opened in self._open.values():
            opened.abandon()
        for file in self.files:
            self._place.delete(file.path)


class _Open:
    def __init__(self, place: Place, partition: dict[str, str | None]) -> None:
        self._partition = partition
        self._name = fresh_name("/".join(f"{name}={value}" for name, value in partition.items()))
        self._place = place
        self._writer: Any = None
        self._held: list[pa.Table] = []
        self._held_bytes = self.rows = self.size = 0
        self._stack = ExitStack()

    def write(self, part: pa.Table) -> None:
        self._held.append(part)
        self._held_bytes += part.nbytes
        self.rows += part.num_rows
        self.size += part.nbytes
        if self._held_bytes >= GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        group = pa.concat_tables(self._held)
        if self._writer is None:
            self._path = self._stack.enter_context(self._place.writing(self._name))
            self._writer = pq.ParquetWriter(
                self._path,
                group.schema,
                compression="zstd",
                use_dictionary=_repetitive(group.schema.names),
                write_page_checksum=True,
            )
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._held, self._held_bytes = [], 0

    def close(self) -> File:
        import pyarrow.parquet as pq

        with self._stack:
            if self._held:
                self._write_group()
            self._writer.close()
            found = pq.read_metadata(self._path)
            size = _size(self._path)
            told = statistics(found)
        return described(self._name, self._partition, size, told)

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._stack.close()
        self._place.delete(self._name)


def _repetitive(names: list[str]) -> bool | list[str]:
    """The columns that are worth a dictionary; of somebody's own fields each is tried."""
    return MESSAGE_ID in names or [name for name in _REPETITIVE if name in names]


def _size(path: str) -> int:
    import os

    return os.path.getsize(path)


def described(name: str, partition: dict[str, str | None], size: int, told: dict[str, Any]) -> File:
    """A file with its statistics as Delta writes them down."""
    moments = [_moment(told[bound].get("finished_at")) for bound in ("minValues", "maxValues")]
    return File(name, partition, told["numRecords"], size, msgspec.json.encode(told).decode(), *moments)


def _moment(told: Any) -> float | None:
    """Of an instant as statistics have it; anybody's table may have other things under the name."""
    try:
        return datetime.strptime(told, _INSTANT).replace(tzinfo=UTC).timestamp()
    except (TypeError, ValueError):
        return None


def statistics(found: Any) -> dict[str, Any]:
    """Of a Parquet file's footer: how many rows, and of its columns the bounds and how many values are missing."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for number in range(found.num_columns):
        parts = [found.row_group(group).column(number) for group in range(found.num_row_groups)]
        name, known = parts[0].path_in_schema, [part.statistics for part in parts if part.statistics is not None]
        if "." in name or len(known) < len(parts) or not all(one.has_null_count for one in known):
            continue  # the inside of a map, or nobody knows
        nulls[name] = sum(one.null_count for one in known)
        bounds = [one for one in known if one.has_min_max]
        if bounds and nulls[name] < found.num_rows:
            low, high = _json(name, min(one.min for one in bounds)), _json(name, max(one.max for one in bounds))
            if low is not None and high is not None:
                least[name], most[name] = low, high
    return {"numRecords": found.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _json(name: str, value: Any) -> Any:
    """A bound as Delta writes it down; None for what readers do not skip by."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime(_INSTANT) if value.tzinfo is not None else None
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value if name in _TEXTS else None
    return value if type(value) is int else None


def _parts(rows: pa.Table, by: tuple[str, ...]) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """The rows by partition, without its columns; mostly there is one."""
    import pyarrow.compute as pc

    if not rows.num_rows:
        return
    if not by:
        yield (), rows
        return
    for value in pc.unique(rows[by[0]]).to_pylist():
        chosen = pc.is_null(rows[by[0]]) if value is None else pc.equal(rows[by[0]], value)
        for values, part in _parts(rows.filter(chosen).drop_columns(by[0]), by[1:]):
            yield (value.isoformat() if isinstance(value, date) else value, *values), part


class WriteTask:
    """For `mapInArrow`: writes rows as files of a table, answers the files."""

    def __init__(self, place: str, partitions: tuple[str, ...], made: Rows) -> None:
        self._place, self._partitions, self._made = place, partitions, made

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        writer = Writer(open_place(self._place), self._partitions)
        try:
            for batch in batches:
                if batch.num_rows:
                    writer.write(self._made(pa.Table.from_batches([batch])))
            files = writer.close()
        except BaseException:
            writer.abandon()
            raise
        yield file_rows(files)


class AsTable:
    """Rows of a view, or of a replay, as a table of the lake has them; it travels to executors."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __call__(self, rows: pa.Table) -> pa.Table:
        return tables.as_table(rows, self._table)


def file_rows(files: Iterable[File]) -> pa.RecordBatch:
    """Files as rows of `FILES`."""
    import pyarrow as pa

    texts = [msgspec.json.encode(file).decode() for file in files]
    return pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["file"])


def written(df: DataFrame, place: Place, partitions: tuple[str, ...], made: Rows) -> list[File]:
    """Have executors write rows; the files, which nobody sees yet."""
    rows = df.mapInArrow(WriteTask(place.text, partitions, made), FILES).collect()
    return [msgspec.json.decode(row.file, type=File) for row in rows]
