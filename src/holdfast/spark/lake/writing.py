"""What executors do for a lake: rows become Parquet files that nobody sees until the driver commits them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from . import tables
from .folder import Folder, sync_folder
from .manifest import File

if TYPE_CHECKING:
    import pyarrow as pa

FILES = "table string, path string, queue string, day string, rows long, size long, first double, last double"
FILE_ROWS = 2_000_000  # of a full file, however small the messages
FILE_BYTES = 512 << 20  # the usual size of a Parquet file in a lake
_REPETITIVE = [
    *("queue", "day", "status", "content_type", "priority", "attempts", "max_attempts", "worker", "error"),
    *("kind", "reason", "fingerprint", "replay"),
]


class Writer:
    """One task's open files. A task that runs twice writes twice; only what its last run answers is committed."""

    def __init__(self, root: str, *, rows: int = FILE_ROWS, size: int = FILE_BYTES) -> None:
        self._place = Folder(root)
        self._rows = rows
        self._size = size
        self._open: dict[tuple[str, str, str], _Open] = {}
        self.files: list[File] = []

    def write(self, table: str, rows: pa.Table) -> None:
        """Each row into the file of its queue and day."""
        for queue, day, part in _parts(rows):
            key = (table, queue, day)
            if key not in self._open:
                self._open[key] = _Open(self._place, table, queue, day)
            opened = self._open[key]
            opened.write(part)
            if opened.rows >= self._rows or opened.size >= self._size:
                self.files.append(self._open.pop(key).close())

    def close(self) -> list[File]:
        """Everything durable; what was written."""
        self.files += [opened.close() for opened in self._open.values()]
        self._open.clear()
        return self.files

    def abandon(self) -> None:
        """Nothing of this will be committed."""
        for opened in self._open.values():
            opened.close()
        for file in [*self.files, *(opened.file for opened in self._open.values() if opened.file)]:
            self._place.delete(file.path)


class _Open:
    def __init__(self, place: Folder, table: str, queue: str, day: str) -> None:
        import pyarrow.parquet as pq

        self._place, self._table, self._queue, self._day = place, table, queue, day
        self._name = f"{table}/queue={queue}/day={day}/{secrets.token_hex(12)}.parquet"
        self._path = place.path(self._name)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        schema = tables.arrow_schema(table)
        repetitive = [name for name in _REPETITIVE if name in schema.names]
        self._writer = pq.ParquetWriter(
            self._path,
            schema,
            compression="zstd",
            use_dictionary=repetitive,
            write_page_checksum=True,
        )
        self.rows = self.size = 0
        self._first, self._last = float("inf"), float("-inf")
        self.file: File | None = None

    def write(self, part: pa.Table) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self._writer.write_table(part)
        self.rows += part.num_rows
        self.size += part.nbytes
        bounds = pc.min_max(part["finished_at"].cast(pa.int64())).as_py()
        self._first = min(self._first, bounds["min"] / 1e6)
        self._last = max(self._last, bounds["max"] / 1e6)

    def close(self) -> File:
        self._writer.close()
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
        sync_folder(self._path.parent)
        size = self._path.stat().st_size
        bounds = (self._first, self._last)
        self.file = File(self._table, self._name, self._queue, self._day, self.rows, size, *bounds)
        return self.file


def _parts(rows: pa.Table) -> Iterator[tuple[str, str, pa.Table]]:
    """The rows by queue and day; mostly there is one of each."""
    import pyarrow.compute as pc

    for queue in pc.unique(rows["queue"]).to_pylist():
        own = rows.filter(pc.equal(rows["queue"], queue))
        days = pc.unique(own["day"]).to_pylist()
        for day in days:
            yield queue, day.isoformat(), own if len(days) == 1 else own.filter(pc.equal(own["day"], day))


class LakeTask:
    """For `mapInArrow` over rows of finished messages: writes `messages` and `errors`, answers the files."""

    def __init__(self, root: str) -> None:
        self._root = root

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        writer = Writer(self._root)
        try:
            for batch in batches:
                if batch.num_rows:
                    rows = as_table(pa.Table.from_batches([batch]), tables.MESSAGES)
                    writer.write(tables.MESSAGES, rows)
                    writer.write(tables.ERRORS, tables.errors_of(rows))
            files = writer.close()
        except BaseException:
            writer.abandon()
            raise
        yield file_rows(files)


def as_table(rows: pa.Table, table: str) -> pa.Table:
    """Rows as a table of the lake has them; `day` is the UTC day on which a message finished."""
    import pyarrow as pa

    schema = tables.arrow_schema(table)
    columns: list[Any] = []
    for field in schema:
        if field.name == "day":
            columns.append(rows["finished_at"].cast(pa.timestamp("us", tz="UTC")).cast(pa.date32()))
        elif field.name in rows.schema.names:
            columns.append(rows[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.table(columns, schema=schema)


def file_rows(files: Iterable[File]) -> pa.RecordBatch:
    """Files as rows of `FILES`."""
    import pyarrow as pa

    kinds = {"rows": pa.int64(), "size": pa.int64(), "first": pa.float64(), "last": pa.float64()}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in File.__struct_fields__])
    rows = [{name: getattr(file, name) for name in schema.names} for file in files]
    return pa.RecordBatch.from_pylist(rows, schema=schema)
