"""The lock in front of the database's own: SQLite's busy waiting starves all processes but one, flock queues them."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import time
import weakref
from datetime import UTC, datetime
from pathlib import Path

_HELD = struct.Struct("=qd")  # who has it, and since when by the wall clock; zeros: nobody, or a version before this


class FolderLock:
    """An exclusive lock on a file; held by one thread of one process at a time, first come, first served."""

    def __init__(self, path: Path, *, inside: int | None = None) -> None:
        """`inside`: the descriptor of a directory that a relative path begins in."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=inside)
        self._waits = False
        self._note: mmap.mmap | None = None
        with contextlib.suppress(OSError, ValueError):  # a file system without shared memory: nobody is named
            if self.stat().st_size < _HELD.size:
                os.pwrite(self._fd, bytes(_HELD.size), 0)  # written, not a hole: a full disk must not be met in memory
            self._note = mmap.mmap(self._fd, _HELD.size)
        _open_locks.add(self)

    def stat(self) -> os.stat_result:
        return os.fstat(self._fd)

    def acquire(self) -> None:
        """Waits without limit: callers above give up by their own deadlines, and a queued waiter keeps its place."""
        self._waits = True
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        finally:
            self._waits = False
        self._sign(os.getpid(), time.time())

    def try_acquire(self) -> bool:
        """Now or not at all."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._sign(os.getpid(), time.time())
        return True

    def _sign(self, pid: int, since: float) -> None:
        """In memory that all processes share: a write to the file would cost each commit its time."""
        if self._note is not None:
            _HELD.pack_into(self._note, 0, pid, since)

    def holder(self) -> str:
        """Who keeps a thread of ours waiting, in words; "": nobody does. From any thread."""
        note = self._note
        if not self._waits or note is None:
            return ""
        try:
            pid, since = _HELD.unpack_from(note, 0)
            when = datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds")
        except (ValueError, OverflowError, OSError):  # closed meanwhile, or somebody's own bytes
            return ""
        if pid <= 0:
            return "another process holds the folder's lock"
        return f"process {pid} holds the folder's lock since {when}{_condition(pid)}"

    def release(self) -> None:
        self._sign(0, 0.0)
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        note, self._note = self._note, None
        if note is not None:
            note.close()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _condition(pid: int) -> str:
    """What the system says of a process, where it matters to whoever waits for it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "; it is not to be seen from here (in another container?)" if os.path.isdir("/proc/self") else ""
    except (OSError, IndexError):
        return ""
    if state in "Tt":
        return f" and is stopped: continue it (kill -CONT {pid}) or end it"
    return " and waits for the disk" if state == "D" else ""


_open_locks: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _forget_in_child() -> None:
    # A child shares its parent's lock: were the parent killed while it holds it, the child would hold it for ever.
    for lock in list(_open_locks):
        lock.close()


os.register_at_fork(after_in_child=_forget_in_child)
