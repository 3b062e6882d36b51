"""Rows of a backup on their way, in files; the time that a step of it may take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .. import backups
from ..backups import TABLE_BYTES, Part, Row
from . import deadline
from .faults import mapped

if TYPE_CHECKING:
    import pyarrow as pa

_FILE_ROWS_MOST = 10_000  # of one file of a backup, where messages are small


@contextmanager
def verb(doing: str, timeout: float) -> Iterator[None]:
    with deadline.within(timeout), mapped(doing):
        yield


class Spool:
    """Rows on their way, in files: there may be more than fit into memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: list[Row] = []
        self._size = 0
        self._count = 0
        self.parts: list[Part] = []

    def add(self, row: Row) -> None:
        self._waiting.append(row)
        self._size += len(row.value) + len(row.result or b"")
        if len(self._waiting) >= _FILE_ROWS_MOST or self._size >= TABLE_BYTES:
            self.write()

    def write(self) -> None:
        if self._waiting:
            self.keep(backups.table(self._waiting))
            self._waiting, self._size = [], 0

    def keep(self, table: pa.Table) -> None:
        import pyarrow as pa

        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{len(self.parts)}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        self.parts.append(Part("", table.num_rows, path))


def spooled(part: Part) -> pa.Table:
    import pyarrow as pa

    with pa.OSFile(str(part.body), "rb") as file:
        return pa.ipc.open_file(file).read_all()
