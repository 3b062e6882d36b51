"""The folder's lines for `holdfast doctor`."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path

import apsw

from ...base import Check
from .database import BUSY_TIMEOUT, Snapshot, open_there
from .opening import file_system

_SMALL = 64 << 20
_LITTLE_SPACE = 1 << 30
_FORGETFUL = frozenset({"tmpfs", "ramfs", "overlay"})


def database(view: Snapshot, path: Path) -> list[Check]:
    """How the database is set up, and whether it is sound."""
    mode = view.execute("PRAGMA journal_mode")[0][0]
    sync = view.execute("PRAGMA synchronous")[0][0]
    checks = [
        Check("sqlite", "ok", f"SQLite {apsw.sqlite_lib_version()}"),
        Check("journal", "ok" if mode == "wal" else "fail", f"journal mode {mode}"),
        Check(
            "sync",
            "ok" if sync >= 2 else "fail",
            "what is acknowledged is synced" if sync >= 2 else "commits are not synced",
        ),
    ]
    size = path.stat().st_size
    if size <= _SMALL:
        found = view.execute("PRAGMA quick_check(1)")[0][0]
        checks.append(Check("integrity", "ok" if found == "ok" else "fail", f"quick check: {found}"))
    else:
        checks.append(Check("integrity", "ok", f"not checked, the database has {size >> 20} MiB"))
    return checks


def integrity(path: Path, vfs: str | None) -> list[str]:
    """What SQLite says of every page, and of rows that an index misses; on a connection of its own."""
    try:
        with closing(open_there(path, apsw.SQLITE_OPEN_READONLY, vfs=vfs)) as connection:
            connection.set_busy_timeout(BUSY_TIMEOUT)
            said = [str(line) for (line,) in connection.execute("PRAGMA integrity_check")]
    except apsw.Error as error:
        said = [str(error)]
    return [f"{path.name}: {line}" for line in said if line != "ok"]


def files(gone: list[str], orphans: list[str]) -> Check:
    """Whether database and files belong together."""
    left = f"{len(orphans):,} files belong to no object" + (f", such as {orphans[0]}" if orphans else "")
    if gone:
        return Check("files", "fail", f"{len(gone):,} objects have lost their files, such as {gone[0]}; {left}")
    return Check("files", "warn" if orphans else "ok", f"every object has its file; {left}")


def surroundings(folder: Path, mechanism: str, now: float) -> list[Check]:
    """What the database stands on."""
    kind = file_system(folder)
    free = shutil.disk_usage(folder).free
    ahead = now - time.time()
    lasting = "does not outlive the machine or container" if kind in _FORGETFUL else "survives a power cut"
    return [
        Check("file system", "warn" if kind in _FORGETFUL or kind == "unknown" else "ok", f"{kind}: {lasting}"),
        Check("free space", "ok" if free >= _LITTLE_SPACE else "warn", f"{free >> 20} MiB free"),
        Check("wake-up", "ok" if mechanism != "polling" else "warn", f"other processes are noticed by {mechanism}"),
        Check(
            "clock", "ok" if abs(ahead) < 5.0 else "warn", f"the store's clock is {ahead:+.3f} s from the wall clock"
        ),
    ]
