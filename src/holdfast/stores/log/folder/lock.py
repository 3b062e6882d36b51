"""The lock in front of the database's own: SQLite's busy waiting starves all processes but one, flock queues them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
import time
import weakref
from datetime import UTC, datetime
from pathlib import Path

_HELD = struct.Struct("=qd")  # who took it last, and when by the wall clock
_STORE = struct.Struct("6s16s1s")  # behind it: which store the folder is
_LOCKS = "/proc/locks"
_LONG_S = 1.0  # a write that has taken less may be an ordinary one


class FolderLock:
    """An exclusive lock on a file; held by one thread of one process at a time, first come, first served."""

    def __init__(self, path: Path, *, inside: int | None = None) -> None:
        """`inside`: the descriptor of a directory that a relative path begins in."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=inside)
        self._waits = False
        self._held: tuple[int, float] | None = None  # by which thread of ours, and since when
        self._is_listed = os.path.exists(_LOCKS)
        self._signed_at = 0.0
        _open_locks.add(self)

    def stat(self) -> os.stat_result:
        return os.fstat(self._fd)

    def store_id(self) -> str:
        """Of the store that the folder is; empty: nobody has noted it."""
        try:
            name, id, _ = _STORE.unpack(os.pread(self._fd, _STORE.size, _HELD.size))
        except struct.error:
            return ""
        return id.decode("ascii", "replace") if name == b"store " else ""

    def note_store(self, id: str) -> None:
        os.pwrite(self._fd, _STORE.pack(b"store ", id.encode(), b"\n"), _HELD.size)

    def acquire(self) -> None:
        """Waits without limit: callers above give up by their own deadlines, and a queued waiter keeps its place."""
        self._waits = True
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        finally:
            self._waits = False
        self._sign()

    def try_acquire(self) -> bool:
        """Now or not at all."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._sign()
        return True

    def _sign(self) -> None:
        """Once a second where the system lists who holds it: the write, and the file's new date, cost 10 to 20 µs.

        Not in mapped memory: a file that somebody empties would end every process that looks at it.
        """
        self._held = threading.get_native_id(), (now := time.time())
        if self._is_listed and 0 <= now - self._signed_at < _LONG_S:
            return
        self._signed_at = now
        with contextlib.suppress(OSError):  # a full disk: then only the system knows who holds it
            os.pwrite(self._fd, _HELD.pack(os.getpid(), now), 0)

    def holder(self) -> str:
        """What keeps a thread of ours waiting, in words: another process, or the disk; "": neither. From any thread."""
        if not self._waits:
            return _disk(self._held)
        try:
            there = self.stat()
            signed, since = _HELD.unpack(os.pread(self._fd, _HELD.size, 0))
            when = _shown(since)
        except (struct.error, ValueError, OverflowError):  # emptied, or somebody's own bytes
            signed = 0
        except OSError:  # closed meanwhile
            return ""
        pid = _locked_by(there) or signed
        if pid <= 0:
            return "another process holds the folder's lock"
        return f"process {pid} holds the folder's lock{f' since {when}' if pid == signed else ''}{_condition(pid)}"

    def release(self) -> None:
        self._held = None
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _locked_by(file: os.stat_result) -> int:
    """The process that holds a lock on the file, by the system's list; 0: it has none, or does not show this one."""
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    try:
        with open(_LOCKS) as locks:
            held = [line.split() for line in locks if place in line and "->" not in line]
    except OSError:
        return 0
    pids = (int(each[4]) for each in held if each[1] == "FLOCK" and each[5] == place)
    return max(0, next(pids, 0))  # -1: a process of another container


def _condition(pid: int) -> str:
    """What the system says of a process, where it matters to whoever waits for it."""
    state = _state(f"/proc/{pid}/stat")
    if state is None:
        return "; it is not to be seen from here (in another container?)" if os.path.isdir("/proc/self") else ""
    if state and state in "Tt":
        return f" and is stopped: continue it (kill -CONT {pid}) or end it"
    return " and waits for the disk" if state == "D" else ""


def _disk(held: tuple[int, float] | None) -> str:
    """Of a thread of this process that has the lock."""
    if held is None or time.time() - held[1] < _LONG_S or _state(f"/proc/self/task/{held[0]}/stat") != "D":
        return ""
    return f"its disk has not answered since {_shown(held[1])}"


def _state(path: str) -> str | None:
    """A letter of the system's; None: there is no such process. "": it does not say."""
    try:
        return Path(path).read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None
    except (OSError, IndexError):
        return ""


def _shown(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).isoformat(timespec="seconds")


_open_locks: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _forget_in_child() -> None:
    # A child shares its parent's lock: were the parent killed while it holds it, the child would hold it for ever.
    for lock in list(_open_locks):
        lock.close()


os.register_at_fork(after_in_child=_forget_in_child)
