"""The database: how it is opened, and what a step may do with it."""

from __future__ import annotations

import ctypes
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import apsw

from ....errors import ConfigError, Damaged, Unavailable, UnsafeStore
from ... import formats
from .. import names, rows
from ..calendar import IN_STEP, Calendar
from ..space import LAST, Buffer, Found, Range, Survey
from . import clock
from .files import Files
from .identity import LOCK

OLDEST_SQLITE = (3, 51, 3)
BUSY_TIMEOUT = 5_000  # ms; only foreign tools can be in the way, our own processes queue at the folder's lock
PAGE_SIZE = 8192  # measured with 4, 8 and 16 KiB: small commits are fastest here, large blobs are files anyway

# A rowid table: its unique index alone answers a list. WITHOUT ROWID keeps the bytes between the keys: lists were 6 to
# 90 times slower and swaps of a head a third slower.
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
    # data IS NULL: the bytes are the file <folder>/<key>
    "CREATE TABLE IF NOT EXISTS objects (key TEXT NOT NULL UNIQUE, data BLOB, tag INTEGER NOT NULL)",
    # top folders in which files are ours to sweep; nothing else in the folder is touched
    "CREATE TABLE IF NOT EXISTS roots (name TEXT PRIMARY KEY)",
    clock.SCHEMA,
)


def refuse_old_sqlite(version: str) -> None:
    """Older ones can corrupt a database with several writers when the WAL is reset."""
    if tuple(map(int, version.split(".")[:3])) < OLDEST_SQLITE:
        need = ".".join(map(str, OLDEST_SQLITE))
        raise ConfigError(f"SQLite {version} is not safe with several processes; {need} is needed: pip install -U apsw")


def connect(path: Path, *, vfs: str | None) -> apsw.Connection:
    """A connection with our settings; the database may be empty still."""
    refuse_old_sqlite(apsw.sqlite_lib_version())
    connection = open_there(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, vfs=vfs)
    try:
        connection.set_busy_timeout(BUSY_TIMEOUT)
        connection.pragma("page_size", PAGE_SIZE)  # has no effect once there is a table
        connection.pragma("mmap_size", 0)  # a mapped page can change under a reader when there are several writers
        if connection.pragma("journal_mode", "wal") != "wal":
            raise UnsafeStore(f"{path}: the file system does not support SQLite's write-ahead log")
        connection.pragma("synchronous", "FULL")
        connection.pragma("cache_size", -16_384)  # KiB
        connection.pragma("journal_size_limit", 64 << 20)
        if sys.platform == "darwin":  # fsync there stops at the drive's cache
            connection.pragma("fullfsync", True)
            connection.pragma("checkpoint_fullfsync", True)
    except BaseException:
        connection.close()
        raise
    return connection


def open_there(path: Path, flags: int, *, vfs: str | None) -> apsw.Connection:
    """A connection to this very file: links may lead to the folder, but inside it none is followed."""
    place = os.path.join(os.path.realpath(path.parent), path.name)
    try:
        return apsw.Connection(place, flags=flags | apsw.SQLITE_OPEN_NOFOLLOW, vfs=vfs)
    except apsw.CantOpenError as error:
        if os.path.islink(place):
            raise UnsafeStore(
                f"{path} is a symbolic link, which is not followed; put the database itself there"
            ) from error
        raise


def is_moved(connection: apsw.Connection) -> bool:
    """SQLite's own word on whether its path still leads to the file it has open."""
    answer = ctypes.c_int(0)
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(answer))
    return answer.value != 0


def create_schema(connection: apsw.Connection, path: Path, known: str) -> bool:
    """Make the tables where they are missing; True: they were. Needs a write transaction.

    `known` is the id of the store that was in the folder before; empty: none that anybody knows of.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "meta" in tables:
        format = read_format(connection)
        if format is not None:
            formats.checked(format, formats.LOG, str(path), oldest=formats.FIRST)
            clock.complete(connection)
            return False
    elif tables:
        raise ConfigError(f"{path} is a database of something else")
    if known:
        raise _lost(path, known)
    _refuse_remains(path)
    for statement in SCHEMA:
        connection.execute(statement)
    connection.execute("INSERT INTO meta (name, value) VALUES ('format', ?1), ('born', ?1)", (formats.LOG,))
    return True


def refuse_lost(path: Path, known: str) -> None:
    """Before anything is made in its place."""
    if known and not path.exists():
        raise _lost(path, known)


def _lost(path: Path, known: str) -> Damaged:
    return Damaged(
        f"{path.parent} is the store {known}, but its database is gone: put {path.name} back from a backup; or remove "
        f"the file {LOCK} there to begin with an empty store",
        key=path.name,
    )


def read_store(connection: apsw.Connection, path: Path, known: str) -> str:
    """The store's id, which a database of an earlier version gets now. UnsafeStore: it is another one's."""
    connection.execute(
        "INSERT INTO meta (name, value) VALUES ('store', ?) ON CONFLICT DO NOTHING", (secrets.randbits(63),)
    )
    row = connection.execute("SELECT value FROM meta WHERE name = 'store'").fetchone()
    assert row is not None
    id = f"{int(row[0]):016x}"
    if known and id != known:
        raise UnsafeStore(
            f"{path.parent} is the store {known}, but {path.name} is of the store {id}: put the right one back; or, if "
            f"this one and the files beside it belong together, remove the file {LOCK}"
        )
    return id


def _refuse_remains(path: Path) -> None:
    """Files of blocks or of an archive need the database that knows them: without it this is no new store."""
    for directory, _, found in os.walk(path.parent):
        for each in found:
            key = os.path.relpath(os.path.join(directory, each), path.parent)
            if "/" in key and names.is_ours(key):
                raise Damaged(
                    f"{path.parent} has messages ({key}) but no database: put {path.name} back from a backup, "
                    "or make the store in an empty folder",
                    key=path.name,
                )


def read_format(connection: apsw.Connection, name: str = "format") -> int | None:
    """The store's; or `born`: the one it was made with, if that was noted."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else int(row[0])


@cache
def _survey_sql(gets: int, firsts: tuple[bool, ...]) -> str:
    """One row for everything, for the reason given at `Snapshot.list`; the first key alone is four times as fast."""
    get = "(SELECT data FROM objects WHERE key = ?)"
    keys = "SELECT key FROM objects WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
    ranges = [f"({keys})" if first else f"(SELECT group_concat(key, char(0)) FROM ({keys}))" for first in firsts]  # nosec B608 # ours
    return "SELECT " + ", ".join([get] * gets + ranges)


class NotHere(Exception):
    """A step in the thread of its caller came to something that may take long; it has to start over elsewhere."""


class Snapshot:
    """A step's view for reading."""

    now: float = 0.0
    calendar: Calendar = IN_STEP

    def __init__(self, connection: apsw.Connection, files: Files) -> None:
        self._execute: Callable[..., apsw.Cursor] = connection.execute
        self._connection = connection
        self._files = files

    @property
    def connection(self) -> apsw.Connection:
        return self._connection

    def get(self, key: str) -> Found | None:
        row = self._execute("SELECT data, tag FROM objects WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        data, tag = row
        data = self._read_file(key) if data is None else self._files.sums.opened(key, data)
        return None if data is None else Found(data, tag)

    def _read_file(self, key: str) -> bytes | None:
        return self._files.read(key)

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        # All keys in one row: every row fetched lets other threads of the interpreter in, and beside a busy event loop
        # each of those can take its 5 ms to give way again.
        row = self._execute(
            "SELECT group_concat(key, char(0)) FROM ("
            "SELECT key FROM objects WHERE key > ? AND key >= ? AND key < ? ORDER BY key LIMIT ?)",
            (after, prefix, prefix + LAST, limit),
        ).fetchone()
        return row[0].split("\0") if row and row[0] is not None else []

    def made(self, key: str) -> float | None:
        return None

    def survey(self, keys: Sequence[str], ranges: Sequence[Range]) -> Survey:
        bindings: list[Any] = list(keys)
        for each in ranges:
            bindings += each
        firsts = tuple([limit == 1 for _, _, limit in ranges])
        row = self._execute(_survey_sql(len(keys), firsts), bindings).fetchone()
        assert row is not None
        opened = self._files.sums.reopened
        found = [None if data is None else opened(key, data) for key, data in zip(keys, row, strict=False)]
        return found, [keys.split("\0") if keys else [] for keys in row[len(keys) :]]

    def is_file(self, key: str) -> bool:
        """There is an object of this key whose bytes are a file."""
        return self._execute("SELECT 1 FROM objects WHERE key = ? AND data IS NULL", (key,)).fetchone() is not None

    def execute(self, sql: str, bindings: tuple[Any, ...] = ()) -> Sequence[tuple[Any, ...]]:
        """For the space's own tables."""
        return self._execute(sql, bindings).fetchall()


class Writing(Snapshot):
    """A transaction that several steps share; each can be undone alone."""

    def __init__(self, connection: apsw.Connection, files: Files) -> None:
        super().__init__(connection, files)
        self.topics: list[str] = []
        self.gone: list[str] = []  # files whose objects were deleted
        self._tags = count(secrets.randbits(62))  # a random start: no two processes, no two lives of a key agree
        self._begun = (0, 0)
        self._wrote = self._others_wrote = self._saved = False
        self._lasting = True
        self._hurries = False  # in the thread of a caller, which must not be held up

    def hurry(self, hurries: bool) -> None:
        """Whether to raise NotHere instead of waiting for foreign tools or pyarrow, or reading files."""
        self._hurries = hurries
        self._connection.set_busy_timeout(0 if hurries else BUSY_TIMEOUT)

    def begin(self, now: float, *, lasting: bool = True) -> None:
        if lasting is not self._lasting:
            self._execute("PRAGMA synchronous = FULL" if lasting else "PRAGMA synchronous = NORMAL")
            self._lasting = lasting
        try:
            self._execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            if self._hurries:
                raise NotHere from None
            raise
        self.now = now
        self.topics, self.gone = [], []
        self._others_wrote = False

    def commit(self) -> bool:
        """Durable when it returns, if it is to last; False: nobody knows when it will be."""
        self._execute("COMMIT")
        return self._lasting or not self._others_wrote

    def get(self, key: str) -> Found | None:
        found = super().get(key)
        if self._hurries and found is not None and rows.waits_to_decode(found.data):
            raise NotHere
        return found

    def _read_file(self, key: str) -> bytes | None:
        if self._hurries:
            raise NotHere
        return super()._read_file(key)

    @property
    def wrote(self) -> bool:
        return self._others_wrote

    @property
    def lasting(self) -> bool:
        """The transaction waits for the disk."""
        return self._lasting

    @property
    def open(self) -> bool:
        """Still a transaction; a full or failing disk makes SQLite give up all of it."""
        return self._connection.in_transaction

    def rollback(self) -> None:
        if self.open:
            self._execute("ROLLBACK")

    def step_begins(self) -> None:
        self._begun = (len(self.topics), len(self.gone))
        self._wrote = self._saved = False

    def step_done(self) -> None:
        if self._saved:
            self._execute("RELEASE step")
        self._others_wrote = self._others_wrote or self._wrote

    def step_failed(self) -> None:
        """Undo this step alone, unless SQLite has undone everything already."""
        del self.topics[self._begun[0] :]
        del self.gone[self._begun[1] :]
        if not self.open or not self._wrote:
            return
        if not self._others_wrote:
            self._execute("ROLLBACK")
            self._execute("BEGIN IMMEDIATE")
        elif self._saved:
            self._execute("ROLLBACK TO step")
            self._execute("RELEASE step")

    def _writes(self) -> None:
        # A savepoint only where it is needed: before the first write of a step, if there are earlier writes to keep.
        if not self._wrote:
            self._wrote = True
            if self._others_wrote:
                self._execute("SAVEPOINT step")
                self._saved = True

    def create(self, key: str, data: Buffer) -> bool:
        return self._insert(key, data)

    def adopt(self, key: str) -> bool:
        if not self._files.exists(key) and self.get(key) is None:
            raise Unavailable(f"the file {key} is gone: it waited too long to become an object; write it again")
        return self._insert(key, None)

    def put(self, key: str, data: Buffer, *, proof: Callable[[bytes | None], bool] | None = None) -> None:
        # Over an object that is a file, the file stays behind for the sweep: looking first would cost every put.
        self._writes()
        self._execute(
            "INSERT INTO objects (key, data, tag) VALUES (?, ?, ?) "
            "ON CONFLICT (key) DO UPDATE SET data = excluded.data, tag = excluded.tag",
            (key, self._files.sums.sealed(key, data), self._tag()),
        )

    def delete(self, key: str) -> bool:
        self._writes()
        row = self._execute("DELETE FROM objects WHERE key = ? RETURNING data IS NULL", (key,)).fetchone()
        if row is not None and row[0]:
            self.gone.append(key)
        return row is not None

    def signal(self, topic: str) -> None:
        self.topics.append(topic)

    def _insert(self, key: str, data: Buffer | None) -> bool:
        self._writes()
        self._execute(
            "INSERT INTO objects (key, data, tag) VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING",
            (key, None if data is None else self._files.sums.sealed(key, data), self._tag()),
        )
        return self._connection.changes() == 1

    def _tag(self) -> int:
        return next(self._tags) & 0x7FFF_FFFF_FFFF_FFFF
