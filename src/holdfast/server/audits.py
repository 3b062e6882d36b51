"""Who changed what: lines that are only ever added, in the file of the history."""

from __future__ import annotations

import sqlite3
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ..escaping import logger_named

_AUDIT = logger_named("holdfast.audit")
_LOG = logger_named("holdfast.server")
_SCHEMA = """
create table if not exists audits (
    id integer primary key autoincrement, store text not null, at real not null,
    who text not null, what text not null, count integer
)
"""


class Deed(msgspec.Struct, frozen=True, array_like=True):
    """One line; `count` is how many messages or options, None where nobody counts."""

    id: int
    at: float
    who: str
    what: str
    count: int | None

    @property
    def when(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)


class Audits:
    """Of one store. Every call may block: for a thread."""

    def __init__(self, path: Path | None, store: str = "") -> None:
        """Without a path, or where it cannot be written, they are in memory; the log has them too."""
        self._store = store
        self._lock = threading.Lock()
        self.is_kept = path is not None
        try:
            self._open(str(path) if path is not None else ":memory:")
        except sqlite3.Error as error:
            _LOG.warning("%s cannot be written, so the audit lines are in the log alone: %s", path, error)
            self.is_kept = False
            self._open(":memory:")

    def _open(self, path: str) -> None:
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=5)
        self._db.execute(_SCHEMA)

    def add(self, who: str, what: str, count: int | None) -> None:
        """In the log, and here."""
        _AUDIT.info("%s %s%s", who, what, "" if count is None else f" {count}")
        try:
            with self._lock:
                self._db.execute(
                    "insert into audits (store, at, who, what, count) values (?, ?, ?, ?, ?)",
                    (self._store, time.time(), who, what, count),
                )
        except sqlite3.Error as error:
            _LOG.warning("an audit line is in the log alone: %s", error)

    def newest(self, limit: int, before: int | None = None) -> list[Deed]:
        """The newest first, of those that were written before one of them."""
        with self._lock:
            found = self._db.execute(
                "select id, at, who, what, count from audits where store = ? and id < ? order by id desc limit ?",
                (self._store, 2**62 if before is None else before, limit),
            )
            return [Deed(*row) for row in found.fetchall()]

    def close(self) -> None:
        with self._lock:
            self._db.close()
