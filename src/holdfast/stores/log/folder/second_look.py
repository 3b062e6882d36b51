"""A database that SQLite calls malformed: is it damaged, or could the disk only not read it for a moment?

SQLite says the same of both: where a read fails with EIO it takes the file system for damaged. So the database is
looked at once more before anybody is told to restore it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import apsw

from ....errors import Unavailable
from ..entries import Work
from .database import open_there
from .faults import MALFORMED, caused

Run: TypeAlias = Callable[[list[Work]], Callable[[], None] | None]
_LOOK_SECONDS = 5.0  # a database that takes longer to check is in doubt
_STEPS = 1000  # of SQLite's machine between looks at the time
_FAILED_READ = re.compile(r"error code=(\d+)")


def with_second_look(run: Run, path: Path, vfs: str | None) -> Run:
    """The same function over works, those that failed for a database that is sound told so."""

    def looked(works: list[Work]) -> Callable[[], None] | None:
        after = run(works)
        for work in works:
            if work.error is not None:
                _look_again(work, work.error.__cause__, path, vfs)
        return after

    return looked


def _look_again(work: Work, cause: BaseException | None, path: Path, vfs: str | None) -> None:
    if isinstance(cause, MALFORMED) and not _is_damaged(path, vfs):
        text = f"the store's database could not be read, nothing was done; try again later: {cause}"
        work.fail(caused(Unavailable(text), cause))


def _is_damaged(path: Path, vfs: str | None) -> bool:
    """Whether every page can be read and one of them makes no sense."""
    until = time.monotonic() + _LOOK_SECONDS
    try:
        connection = open_there(path, apsw.SQLITE_OPEN_READONLY, vfs=vfs)
        try:
            connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
            said = str(connection.pragma("quick_check", 1))
        finally:
            connection.close()
    except MALFORMED:
        return True
    except apsw.Error:  # it cannot be read now either, or not in time
        return False
    failed = _FAILED_READ.search(said)
    return said != "ok" and not (failed and int(failed[1]) & 0xFF == apsw.SQLITE_IOERR)
