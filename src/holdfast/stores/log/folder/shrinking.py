"""Space that deleted messages have left goes back to the disk; SQLite alone would keep it for what comes next."""

from __future__ import annotations

import contextlib

import apsw

from .database import BUSY_TIMEOUT
from .wal import WriteAheadLog

_WORTH_BYTES = 8 << 20  # less than this stays for what comes next
_LONG_LOG_BYTES = 16 << 20  # twice what the write-ahead log usually has: to make it longer again costs every commit
_COPIED_BYTES = 64 << 20  # everything that is kept is copied, and whoever writes waits: half a second for so much


def shrink(connection: apsw.Connection, wal: WriteAheadLog) -> None:
    """Under the folder's lock, outside of a transaction. What is in the way, or a full disk, puts it off."""
    kept, free = _sizes(connection)
    rewrites = free >= _WORTH_BYTES and free >= kept and kept <= _COPIED_BYTES
    if not rewrites and wal.stat().st_size < _LONG_LOG_BYTES:
        return
    connection.set_busy_timeout(0)
    try:
        with contextlib.suppress(apsw.Error):
            if rewrites:
                connection.execute("VACUUM")
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.set_busy_timeout(BUSY_TIMEOUT)
    wal.was_cut()


def _sizes(connection: apsw.Connection) -> tuple[int, int]:
    """Bytes that are kept, and bytes that are not."""
    size, pages, free = (int(connection.pragma(name)) for name in ("page_size", "page_count", "freelist_count"))
    return (pages - free) * size, free * size
