"""Everything this process writes below a folder, in order: what SQLite does, and what we do beside it. Linux only."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import apsw
import msgspec


class Wrote(msgspec.Struct, frozen=True):
    path: str
    offset: int
    data: bytes


class Truncated(msgspec.Struct, frozen=True):
    path: str
    size: int


class Named(msgspec.Struct, frozen=True):
    """A name came (`old` is empty), went (`new` is empty) or changed."""

    old: str
    new: str
    is_directory: bool = False


class Synced(msgspec.Struct, frozen=True):
    """A file or a directory; covers what was there when it began."""

    path: str
    begun: int
    is_directory: bool = False


class Acknowledged(msgspec.Struct, frozen=True):
    """A call has returned."""

    kind: str
    ids: list[str]


_BASE = "unix"  # SQLite's own way to the disk
Event: TypeAlias = Wrote | Truncated | Named | Synced | Acknowledged


class Trace:
    """Events by number. A write is noted when it is done, a sync with the number at which it began."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.events: list[Event] = []
        self._lock = threading.Lock()

    def note(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)

    def here(self) -> int:
        return len(self.events)

    def covers(self, path: str) -> bool:
        """Of shared memory nothing is left after a power cut, and nothing needs to be."""
        return path.startswith(self.folder) and not path.endswith("-shm") and "/wake" not in path


@contextmanager
def tracing(folder: Path) -> Iterator[Trace]:
    """Trace this process until the block ends."""
    trace = Trace(folder.resolve())
    vfs = _Vfs(trace)
    calls = _Calls(trace)
    real = {name: getattr(os, name) for name in _PATCHED}
    for name in _PATCHED:
        setattr(os, name, getattr(calls, name))
    try:
        yield trace
    finally:
        for name, call in real.items():
            setattr(os, name, call)
        vfs.unregister()


class _Vfs(apsw.VFS):
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        super().__init__("holdfast-power", base=_BASE, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> _File:
        return _File(self._trace, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        if self._trace.covers(filename):
            self._trace.note(Named(filename, ""))


class _File(apsw.VFSFile):
    def __init__(self, trace: Trace, name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        is_new = path is not None and not os.path.exists(path)
        super().__init__(_BASE, name, flags)
        self._trace, self._path = trace, path or ""
        self._is_covered = path is not None and trace.covers(path)
        if is_new and self._is_covered:
            trace.note(Named("", path))

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        if self._is_covered:
            self._trace.note(Wrote(self._path, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        if self._is_covered:
            self._trace.note(Truncated(self._path, newsize))

    def xSync(self, flags: int) -> None:
        begun = self._trace.here()
        super().xSync(flags)
        if self._is_covered:
            self._trace.note(Synced(self._path, begun))


_PATCHED = ("open", "write", "pwrite", "fsync", "rename", "unlink", "mkdir")


class _Calls:
    """The calls of `os` by which files are written, in place of the real ones."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._open, self._write, self._pwrite, self._fsync = os.open, os.write, os.pwrite, os.fsync
        self._rename, self._unlink, self._mkdir = os.rename, os.unlink, os.mkdir

    def open(self, path: Any, flags: int, *rest: Any, **more: Any) -> int:
        where = _place(path, more.get("dir_fd"))
        is_new = bool(flags & os.O_CREAT) and not os.path.exists(where)
        fd = self._open(path, flags, *rest, **more)
        if is_new:
            self._named("", where)
        return fd

    def write(self, fd: int, data: Any) -> int:
        path = _path_of(fd)
        offset = os.lseek(fd, 0, os.SEEK_CUR) if self._trace.covers(path) else 0
        done = self._write(fd, data)
        self._wrote(path, offset, data, done)
        return done

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        done = self._pwrite(fd, data, offset)
        self._wrote(_path_of(fd), offset, data, done)
        return done

    def fsync(self, fd: int) -> None:
        begun = self._trace.here()
        self._fsync(fd)
        if self._trace.covers(path := _path_of(fd)):
            self._trace.note(Synced(path, begun, os.path.isdir(path)))

    def rename(self, old: Any, new: Any, **more: Any) -> None:
        self._rename(old, new, **more)
        self._named(_place(old, more.get("src_dir_fd")), _place(new, more.get("dst_dir_fd")))

    def unlink(self, path: Any, **more: Any) -> None:
        self._unlink(path, **more)
        self._named(_place(path, more.get("dir_fd")), "")

    def mkdir(self, path: Any, *rest: Any, **more: Any) -> None:
        self._mkdir(path, *rest, **more)
        self._named("", _place(path, more.get("dir_fd")), is_directory=True)

    def _named(self, old: str, new: str, *, is_directory: bool = False) -> None:
        if self._trace.covers(new or old):
            self._trace.note(Named(old, new, is_directory))

    def _wrote(self, path: str, offset: int, data: Any, done: int) -> None:
        if self._trace.covers(path):
            self._trace.note(Wrote(path, offset, bytes(memoryview(data)[:done])))


def _place(path: Any, directory: int | None) -> str:
    """The whole path of a name that may be relative to an open directory."""
    return str(path) if directory is None else os.path.join(_path_of(directory), str(path))


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")
