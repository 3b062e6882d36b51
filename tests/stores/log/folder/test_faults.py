"""What SQLite's errors say to a caller."""

from __future__ import annotations

import apsw

from holdfast.errors import Unavailable
from holdfast.stores.log.folder.faults import translated


def test_a_disk_that_refuses_is_told_from_what_may_pass() -> None:
    """As after a file system has become read-only below an open store."""
    error = apsw.IOError("disk I/O error")
    error.extendedresult = apsw.SQLITE_IOERR_WRITE
    ours = translated(error)
    assert isinstance(ours, Unavailable)
    assert "became read-only (SQLITE_IOERR_WRITE)" in str(ours)
    assert ours.__cause__ is error
