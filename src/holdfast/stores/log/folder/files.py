"""Large objects as plain files: written durably before their row, removed after it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ....errors import ConfigError
from ..names import PARQUET
from ..space import Buffer
from ..sums import Sums
from .identity import Identity

TEMPORARY = ".tmp"
SCARCE = (errno.EMFILE, errno.ENFILE)
LINK = (errno.ELOOP, errno.ENOTDIR)  # what the system says of a symbolic link that must not be followed
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Files:
    """The files below a folder; every method blocks.

    All names are relative to a descriptor of the folder: whatever its path leads to by now, these are the files that
    belong to the open database.
    """

    def __init__(self, folder: Path, identity: Identity) -> None:
        self._folder = folder
        self._identity = identity
        self.inside = -1
        self.sums = Sums()
        self._durable = {""}  # directories known to survive a power cut
        self.spare: Callable[[], bool] = lambda: False  # close descriptors that can be spared; False: there are none

    def open(self) -> None:
        if self.inside < 0:
            self.inside = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def again(self) -> Files:
        """The same files, with a descriptor of its own."""
        other = Files(self._folder, self._identity)
        other.inside = os.dup(self.inside)
        return other

    def close(self) -> None:
        fd, self.inside = self.inside, -1
        if fd >= 0:
            os.close(fd)

    def path(self, key: str) -> str:
        """The file's name, relative to the folder."""
        parts = key.split("/")
        if len(parts) < 2 or any(part in ("", ".", "..") for part in parts) or "\0" in key:
            raise ConfigError(f"{key!r} cannot be a file's name")
        return os.path.join(*parts)

    def exists(self, key: str) -> bool:
        try:
            with self._above(self.path(key)) as (inside, name):
                return stat.S_ISREG(os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def read(self, key: str) -> bytes | None:
        """None: it is not there, although the folder is. Raises Unavailable when that is in doubt."""
        try:
            fd = self._open(self.path(key), os.O_RDONLY)
        except FileNotFoundError:
            self._identity.check()
            return None
        except OSError as error:
            if error.errno not in LINK:
                raise
            return None  # no file of ours, wherever it leads
        with open(fd, "rb", buffering=0) as file:
            return self.sums.opened(key, file.read())

    def write(self, key: str, data: Buffer) -> None:
        """Durable when it returns: the bytes, the name and the directories above it."""
        self.write_parts(key, self.sums.begin(key, data))

    def write_parts(self, key: str, parts: Iterable[Buffer]) -> None:
        path = self.path(key)
        try:
            self._write(path, parts)
        except FileNotFoundError:  # a sweep took the empty directory away that we remembered
            self._durable.intersection_update({""})
            self._write(path, parts)

    def remove(self, keys: Iterable[str]) -> None:
        """What cannot be removed now is left to the sweep."""
        for key in keys:
            with contextlib.suppress(OSError), self._above(self.path(key)) as (inside, name):
                os.unlink(name, dir_fd=inside)

    def old(self, roots: Iterable[str], seconds: float) -> Iterator[str]:
        """Keys of all files, temporary ones included, that nobody has written to for so long."""
        limit = time.time() - seconds
        for root in roots:
            with contextlib.suppress(FileNotFoundError):
                for directory, _, names, fd in os.fwalk(root, dir_fd=self.inside):
                    yield from (os.path.join(directory, name) for name in names if _is_old(name, fd, limit))

    def prune(self, roots: Iterable[str]) -> None:
        """Remove empty directories, deepest first."""
        for root in roots:
            with contextlib.suppress(FileNotFoundError):
                for directory, _, _, _ in os.fwalk(root, topdown=False, dir_fd=self.inside):
                    with contextlib.suppress(OSError):
                        os.rmdir(directory, dir_fd=self.inside)

    def _write(self, path: str, parts: Iterable[Buffer]) -> None:
        directory = os.path.dirname(path)
        self._make_durable(directory)
        # Under another name first where others list the folder, who must not see half a file, and where two processes
        # may write the same key, who must not cut each other's bytes. The rename is one more commit of the file
        # system's journal, so a block, which is one producer's and found by its row alone, goes without.
        listed = path.endswith(PARQUET)  # other programs read these as they lie there
        name = os.path.join(directory, f".{secrets.token_hex(8)}{TEMPORARY}") if listed else path
        fd = self._open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                for part in parts:
                    _write_all(fd, part)
                sync(fd)
            finally:
                os.close(fd)
            if listed:
                os.rename(name, path, src_dir_fd=self.inside, dst_dir_fd=self.inside)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self.inside)
            raise
        sync_directory(directory, inside=self.inside)

    def _open(self, path: str, flags: int) -> int:
        """A descriptor; when this process has too many, those that can be spared are closed first."""
        try:
            return self._open_inside(path, flags)
        except OSError as error:
            if error.errno not in SCARCE or not self.spare():
                raise
        return self._open_inside(path, flags)

    def _open_inside(self, path: str, flags: int) -> int:
        with self._above(path) as (inside, name):
            return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=inside)

    @contextlib.contextmanager
    def _above(self, path: str) -> Iterator[tuple[int, str]]:
        """A descriptor of the directory, and the last name. No symbolic link is followed: anybody may have put it."""
        *parts, name = path.split("/")
        fds: list[int] = []
        try:
            for part in parts:
                fds.append(os.open(part, _DIRECTORY, dir_fd=fds[-1] if fds else self.inside))
            yield (fds[-1] if fds else self.inside), name
        finally:
            for fd in fds:
                os.close(fd)

    def _make_durable(self, directory: str) -> None:
        if directory in self._durable:
            return
        above = os.path.dirname(directory)
        self._make_durable(above)
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, dir_fd=self.inside)
        sync_directory(above, inside=self.inside)
        self._durable.add(directory)


def _is_old(name: str, directory: int, limit: float) -> bool:
    """Nobody has written to it since `limit`; False also when it is gone."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime <= limit
    except FileNotFoundError:
        return False


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


def sync_directory(directory: str, *, inside: int | None = None) -> None:
    """Make the names in a directory durable; a relative one begins `inside` another, which "" is itself."""
    fd = os.open(directory or ".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=inside)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems have no fsync for directories, and need none
            raise
    finally:
        os.close(fd)
