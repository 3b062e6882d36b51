"""The lock in front of the database's own: SQLite's busy waiting starves all processes but one, flock queues them."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path


class FolderLock:
    """An exclusive lock on a file; held by one thread of one process at a time, first come, first served."""

    def __init__(self, path: Path, *, inside: int | None = None) -> None:
        """`inside`: the descriptor of a directory that a relative path begins in."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=inside)
        _open_locks.add(self)

    def stat(self) -> os.stat_result:
        return os.fstat(self._fd)

    def acquire(self) -> None:
        """Waits without limit: callers above give up by their own deadlines, and a queued waiter keeps its place."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def try_acquire(self) -> bool:
        """Now or not at all."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


_open_locks: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _forget_in_child() -> None:
    # A child shares its parent's lock: were the parent killed while it holds it, the child would hold it for ever.
    for lock in list(_open_locks):
        lock.close()


os.register_at_fork(after_in_child=_forget_in_child)
