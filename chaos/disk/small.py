"""Disks that can be made full: a small file system of its own, or, where nobody may mount one, a limit of our own.

Root mounts a tmpfs. Others mount it in a user namespace of their own, in which the whole run is started again. Where
that is forbidden too (some containers, macOS), each process of the run sets its own limit for the size of files while
the disk is to be full: the kernel then refuses every write to a file, with another error number (EFBIG).
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
_LOOK = 0.02  # seconds between two looks at the flag of a limit
_FILLER = "filler"


class SmallDisk(Protocol):
    folder: Path
    flag: str  # for processes that limit themselves; "": they need not

    def fill(self, *, leave: int = 0) -> None:
        """Take all but so many bytes of the room; called again, also what has become free since."""

    def free(self) -> None:
        """Give it back."""


class Mounted:
    """A file system of its own, and a file that fills it."""

    flag = ""

    def __init__(self, mount: Path) -> None:
        self.folder = mount / "store"
        self._filler = mount / _FILLER

    def fill(self, *, leave: int = 0) -> None:
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while (room := _free(self._filler) - leave) > 0:
                file.write(bytes(min(room, 1 << 20)))

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)


class Limited:
    """A flag that tells the processes of a run to limit themselves."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "store"
        self.flag = str(root / "full")

    def fill(self, *, leave: int = 0) -> None:
        Path(self.flag).touch()

    def free(self) -> None:
        Path(self.flag).unlink(missing_ok=True)


def _free(path: Path) -> int:
    found = os.statvfs(path.parent)
    return found.f_bavail * found.f_frsize


@contextlib.contextmanager
def small_disk(root: Path, size: int) -> Iterator[SmallDisk]:
    """The best that is possible here; `can_mount` says which."""
    mount = root / "disk"
    mount.mkdir(parents=True)
    if not _mounted(mount, size):
        yield Limited(root)
        return
    try:
        yield Mounted(mount)
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True, capture_output=True, timeout=30)


def _mounted(mount: Path, size: int) -> bool:
    return _works("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount))


def _works(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def can_mount(*within: str) -> bool:
    """Whether this process may mount a tmpfs, or one that is started by the command `within`."""
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as folder:
        mounts = _works(*within, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder)
        if mounts and not within:
            subprocess.run(["umount", folder], check=True, capture_output=True, timeout=30)
        return mounts


# What a process does that limits itself.


def limit_while(flag: str) -> None:
    """While the file `flag` is there, this process cannot write to files. (Python ignores the signal of it.)"""

    def look() -> None:
        full = False
        while True:
            if os.path.exists(flag) != full:
                full = not full
                _limit(0 if full else resource.RLIM_INFINITY)
            time.sleep(_LOOK)

    threading.Thread(target=look, daemon=True).start()


def _limit(size: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))


def write_anyway(fd: int, data: bytes) -> None:
    """For histories, which are not what is tested: a limit of this process is lifted for the moment."""
    try:
        os.write(fd, data)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        os.write(fd, data)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
