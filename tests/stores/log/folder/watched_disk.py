"""A disk under SQLite that can be watched, and that fails when told to."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

_READ = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, use_errno=True
)


@contextmanager
def unreadable(reads: int) -> Iterator[None]:
    """The next so many reads by SQLite fail with EIO, in every thread of this process."""
    system = apsw.VFS(f"unreadable-{reads}", base="unix")
    name = next(each for each in ("pread64", "pread") if system.xGetSystemCall(each))
    address = system.xGetSystemCall(name)
    real = _READ(address)
    left = reads

    @_READ
    def read(fd: int, buffer: int, size: int, offset: int) -> int:
        nonlocal left
        if left > 0:
            left -= 1
            ctypes.set_errno(errno.EIO)
            return -1
        return real(fd, buffer, size, offset)

    system.xSetSystemCall(name, ctypes.cast(read, ctypes.c_void_p).value)
    try:
        yield
    finally:
        system.xSetSystemCall(name, address)
        system.unregister()


class Disk(apsw.VFS):
    """Records what SQLite syncs, and fails when told to."""

    def __init__(self, name: str):
        self.name = name
        self.log: list[str] = []
        self.failing: type[apsw.Error] | None = None
        self.full = ""  # "db": there is no room for the database any more, only for the log
        self.synced: Callable[[], object] = lambda: None  # called after every sync
        super().__init__(name, base="")

    def xOpen(self, name, flags):
        return DiskFile(self, name, flags)


class DiskFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name, flags):
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._kind = "wal" if str(path).endswith("-wal") else "db"
        super().__init__("", name, flags)

    def xSync(self, flags):
        if self._disk.failing is not None and self._kind == "wal":
            raise self._disk.failing("told to fail")
        super().xSync(flags)
        self._disk.log.append(f"sync {self._kind}")
        self._disk.synced()

    def xWrite(self, data, offset):
        if self._disk.failing is apsw.FullError and self._kind == "wal":
            raise apsw.FullError("told to be full")
        if self._disk.full == self._kind:
            raise apsw.FullError("told to be full")
        super().xWrite(data, offset)
        self._disk.log.append(f"write {self._kind}")
