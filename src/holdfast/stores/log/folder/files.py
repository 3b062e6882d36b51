"""Large objects as plain files: written durably before their row, removed after it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ....errors import ConfigError
from ..space import Buffer

TEMPORARY = ".tmp"
LISTED = ".parquet"  # files that other programs read as they lie there


class Files:
    """The files below a folder; every method blocks."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._durable = {self._folder}  # directories known to survive a power cut

    def path(self, key: str) -> str:
        parts = key.split("/")
        if len(parts) < 2 or any(part in ("", ".", "..") for part in parts) or "\0" in key:
            raise ConfigError(f"{key!r} cannot be a file's name")
        return os.path.join(self._folder, *parts)

    def read(self, key: str) -> bytes | None:
        try:
            with open(self.path(key), "rb", buffering=0) as file:
                return file.read()
        except FileNotFoundError:
            return None

    def write(self, key: str, data: Buffer) -> None:
        """Durable when it returns: the bytes, the name and the directories above it."""
        path = self.path(key)
        try:
            self._write(path, data)
        except FileNotFoundError:  # a sweep took the empty directory away that we remembered
            self._durable.intersection_update({self._folder})
            self._write(path, data)

    def remove(self, keys: Iterable[str]) -> None:
        """What cannot be removed now is left to the sweep."""
        for key in keys:
            with contextlib.suppress(OSError):
                os.unlink(self.path(key))

    def old(self, roots: Iterable[str], seconds: float) -> Iterator[str]:
        """Keys of all files, temporary ones included, that nobody has written to for so long."""
        limit = time.time() - seconds
        for root in roots:
            for directory, _, names in os.walk(os.path.join(self._folder, root)):
                for name in names:
                    path = os.path.join(directory, name)
                    with contextlib.suppress(FileNotFoundError):
                        if os.stat(path, follow_symlinks=False).st_mtime <= limit:
                            yield os.path.relpath(path, self._folder)

    def prune(self, roots: Iterable[str]) -> None:
        """Remove empty directories, deepest first."""
        for root in roots:
            for directory, _, _ in os.walk(os.path.join(self._folder, root), topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(directory)

    def _write(self, path: str, data: Buffer) -> None:
        directory = os.path.dirname(path)
        self._make_durable(directory)
        # Under another name first where others list the folder, who must not see half a file, and where two processes
        # may write the same key, who must not cut each other's bytes. The rename is one more commit of the file
        # system's journal, so a block, which is one producer's and found by its row alone, goes without.
        listed = path.endswith(LISTED)
        name = os.path.join(directory, f".{secrets.token_hex(8)}{TEMPORARY}") if listed else path
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            try:
                _write_all(fd, data)
                sync(fd)
            finally:
                os.close(fd)
            if listed:
                os.rename(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        sync_directory(directory)

    def _make_durable(self, directory: str) -> None:
        if directory in self._durable:
            return
        above = os.path.dirname(directory)
        self._make_durable(above)
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory)
        sync_directory(above)
        self._durable.add(directory)


def _write_all(fd: int, data: Buffer) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def sync(fd: int) -> None:
    """fsync, down to the medium."""
    if sys.platform == "darwin":  # fsync there stops at the drive's cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


def sync_directory(directory: str) -> None:
    """Make the names in a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems have no fsync for directories, and need none
            raise
    finally:
        os.close(fd)
