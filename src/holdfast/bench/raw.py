"""The limit of the medium, bare: what the disk and SQLite do with the same bytes and no queue around them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from .measure import Sample, Stopwatch

_TABLE = "CREATE TABLE IF NOT EXISTS objects (key TEXT PRIMARY KEY, data BLOB, tag INTEGER) WITHOUT ROWID"


@contextmanager
def scratch(folder: Path | None = None) -> Iterator[Path]:
    """A folder on the disk under test that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=folder, ignore_cleanup_errors=True) as name:
        yield Path(name)


def database(path: Path) -> apsw.Connection:
    """SQLite as the folder space uses it: WAL, every commit fsynced."""
    connection = apsw.Connection(str(path))
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-64000"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(_TABLE)
    return connection


def _write_synced(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(file, data)
        os.fsync(file)
    finally:
        os.close(file)


def fsynced_blocks(folder: Path | None, blocks: int, size: int, per_block: int) -> Sample:
    """Blocks written to files and fsynced, nothing else; units are messages."""
    data = os.urandom(size)
    with scratch(folder) as where:
        watch = Stopwatch()
        for number in range(blocks):
            _write_synced(where / f"{number:08}", data)
        return Sample(blocks * per_block, watch.seconds())


def blocks_with_index(folder: Path | None, blocks: int, size: int, per_block: int) -> Sample:
    """The durable steps of a bulk enqueue bare: the block in a fsynced file, its folder fsynced, its row committed."""
    data = os.urandom(size)
    with scratch(folder) as where:
        connection = database(where / "index.db")
        directory = os.open(where, os.O_RDONLY)
        watch = Stopwatch()
        for number in range(blocks):
            _write_synced(where / f"{number:08}", data)
            os.fsync(directory)
            connection.execute("INSERT INTO objects VALUES (?, NULL, 0)", (f"inbox/{number:08}-{per_block}",))
        seconds = watch.seconds()
        os.close(directory)
        connection.close()
        return Sample(blocks * per_block, seconds)


def sqlite_inserts(folder: Path | None, count: int, size: int) -> Sample:
    """One committed row per message: a lone durable write."""
    data = os.urandom(size)
    with scratch(folder) as where:
        connection = database(where / "raw.db")
        watch = Stopwatch()
        for number in range(count):
            connection.execute("INSERT INTO objects VALUES (?, ?, 0)", (f"inbox/{number:08}", data))
        seconds = watch.seconds()
        connection.close()
        return Sample(count, seconds)


def sqlite_take_and_delete(folder: Path | None, count: int, size: int, *, take: str = "FULL") -> Sample:
    """Two commits per message: mark the oldest row as taken and read it, synced or not, then delete it."""
    data = os.urandom(size)
    with scratch(folder) as where:
        connection = database(where / "raw.db")
        with connection:
            rows = ((f"inbox/{number:08}", data) for number in range(count))
            connection.executemany("INSERT INTO objects VALUES (?, ?, 0)", rows)
        mark = (
            "UPDATE objects SET tag = 1 WHERE key = (SELECT key FROM objects WHERE tag = 0 ORDER BY key LIMIT 1)"
            " RETURNING key, data"
        )
        watch = Stopwatch()
        for _ in range(count):
            if take != "FULL":
                connection.execute(f"PRAGMA synchronous={take}")
            ((key, _data),) = connection.execute(mark).fetchall()
            if take != "FULL":
                connection.execute("PRAGMA synchronous=FULL")
            connection.execute("DELETE FROM objects WHERE key = ?", (key,))
        seconds = watch.seconds()
        connection.close()
        return Sample(count, seconds)


def sqlite_deletes(folder: Path | None, count: int, size: int, batch: int) -> Sample:
    """Rows deleted in transactions of `batch`: a drain that remembers nothing."""
    data = os.urandom(size)
    with scratch(folder) as where:
        connection = database(where / "raw.db")
        with connection:
            rows = ((f"inbox/{number:08}", data) for number in range(count))
            connection.executemany("INSERT INTO objects VALUES (?, ?, 0)", rows)
        watch = Stopwatch()
        for _ in range(0, count, batch):
            with connection:
                found = connection.execute("SELECT key, data FROM objects ORDER BY key LIMIT ?", (batch,)).fetchall()
                connection.executemany("DELETE FROM objects WHERE key = ?", ((key,) for key, _ in found))
        seconds = watch.seconds()
        connection.close()
        return Sample(count, seconds)
