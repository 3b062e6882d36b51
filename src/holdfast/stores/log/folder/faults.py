"""What the driver's errors mean for a caller; the only place that decides it."""

from __future__ import annotations

import errno

import apsw

from ....errors import Damaged, Unavailable, UnsafeStore

# A full disk, a failing disk, somebody else's lock: all of these can pass, so the caller may try again and the thread
# that owns the connection must outlive them; a store that stayed broken after the disk was freed would need a restart.
_PASSING = (
    apsw.FullError,
    apsw.IOError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.CantOpenError,
    apsw.ReadOnlyError,
    apsw.NoMemError,
    apsw.InterruptError,
    OSError,
)
MALFORMED = (apsw.CorruptError, apsw.NotADBError)
FULL = (errno.ENOSPC, errno.EDQUOT)


def translated(error: BaseException) -> BaseException:
    """Our error with the driver's as its cause; any other error as it is."""
    if isinstance(error, apsw.FullError) or (isinstance(error, OSError) and error.errno in FULL):
        return caused(
            Unavailable(f"the store's disk is full, nothing was done; make room and try again: {error}"), error
        )
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        text = f"a symbolic link inside the store's folder is not followed; remove it: {error}"
        return caused(UnsafeStore(text), error)
    if isinstance(error, apsw.IOError):
        what = apsw.mapping_extended_result_codes.get(getattr(error, "extendedresult", 0), "SQLITE_IOERR")
        text = f"the store's disk fails, or its folder became read-only ({what}); try again later: {error}"
        return caused(Unavailable(text), error)
    if isinstance(error, _PASSING):
        return caused(Unavailable(f"the store could not do it, try again later: {error}"), error)
    if isinstance(error, MALFORMED):
        text = f"the store's database is damaged, restore the folder from a backup: {error}"
        return caused(Damaged(text, key="holdfast.db"), error)
    if isinstance(error, StopIteration):  # a future cannot carry it
        return caused(RuntimeError("the step raised StopIteration"), error)
    return error


def caused(error: BaseException, cause: BaseException) -> BaseException:
    """`raise error from cause`, without raising."""
    error.__cause__ = cause
    return error
