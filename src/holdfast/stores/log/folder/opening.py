"""What a folder must be before anything is written to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ....errors import ConfigError, UnsafeStore
from .faults import FULL, translated
from .files import sync_directory
from .identity import DATABASE, LOCK

# SQLite's shared memory and our locks hold within one machine; these would let several machines in.
# fmt: off
NETWORK = frozenset({
    "nfs", "nfs3", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "afpfs", "webdav", "davfs", "9p", "ceph",
    "glusterfs", "lustre", "beegfs", "gpfs", "gfs", "gfs2", "ocfs2", "orangefs", "pvfs2", "coda", "ncpfs", "moosefs",
    "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.blobfuse", "fuse.blobfuse2", "fuse.rclone", "fuse.glusterfs",
    "fuse.ceph", "fuse.ceph-fuse", "fuse.mfs", "fuse.davfs2", "fuse.curlftpfs", "fuse.smbnetfs", "fuse.juicefs",
    "fuse.goofys", "fuse.mount-s3", "fuse.seaweedfs", "fuse.weed", "macfuse", "osxfuse",
})
# fmt: on

_PRIVATE = 0o700  # of a folder that we make: it holds messages. Whoever shares one with other users makes it himself


def prepare(folder: Path, *, parts: Sequence[str] = ("wake",)) -> list[str]:
    """Make the folder where it is missing; what was done, in words. Raises ConfigError or UnsafeStore."""
    existing = _nearest_existing(folder)
    kind = file_system(existing)
    if kind in NETWORK:
        raise UnsafeStore(
            f"{folder} is on a network file system ({kind}), where locks and shared memory cannot be relied on: "
            "use a local disk, or a bucket (s3://), or a served store (http://)"
        )
    made = []
    try:
        if existing != folder:
            _make_durable(folder, existing)
            made.append(f"create the folder {folder}")
        for part in parts:
            (folder / part).mkdir(exist_ok=True)
            if (folder / part).is_symlink():
                raise UnsafeStore(f"{folder / part} is a symbolic link, which is not followed; remove it")
    except OSError as error:
        if error.errno in FULL:
            raise translated(error) from error
        raise ConfigError(f"{folder} cannot be used as a store: {error.strerror}") from error
    _refuse_unwritable(folder)
    return made


def _refuse_unwritable(folder: Path) -> None:
    for path, rights in ((folder, os.X_OK), *((folder / name, 0) for name in (LOCK, DATABASE))):
        if os.access(path, os.R_OK | os.W_OK | rights) or not os.path.lexists(path):
            continue
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            why = "its file system is mounted read-only"
        else:
            why = f"{path} is not writable for this user (uid {os.geteuid()}); it is owned by uid {path.stat().st_uid}"
        raise ConfigError(f"{folder} cannot be used as a store: {why}")


def file_system(path: Path, *, mounts: str | None = None) -> str:
    """The type of the file system a path is on; "unknown" where the system does not say."""
    if mounts is None:
        mounts = _mounts()
    best, kind = "", "unknown"
    place = os.path.realpath(path)
    for where, candidate in _parsed(mounts):
        inside = place == where or place.startswith(where.rstrip("/") + "/")
        if inside and len(where) >= len(best):  # a later mount on the same place covers the earlier
            best, kind = where, candidate
    return kind


def _nearest_existing(folder: Path) -> Path:
    for path in (folder, *folder.parents):
        if path.is_dir():
            return path
        if path.exists() or path.is_symlink():
            raise ConfigError(f"{path} is not a folder")
    return Path("/")


def _make_durable(folder: Path, existing: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=_PRIVATE, exist_ok=True)
    path = folder
    while path != existing:
        path = path.parent
        sync_directory(str(path))


def _mounts() -> str:
    try:
        if sys.platform == "darwin":
            return subprocess.run(["/sbin/mount"], capture_output=True, text=True, timeout=10, check=True).stdout
        else:
            return Path("/proc/self/mounts").read_text(errors="surrogateescape")
    except (OSError, subprocess.SubprocessError):
        return ""


_LINUX = re.compile(r"^\S+ (/\S*) (\S+) \S+ \d+ \d+$")  # /dev/vda1 / ext4 rw,relatime 0 0
_MACOS = re.compile(r"^.* on (/.*) \(([^,)]+)[^()]*\)$")  # /dev/disk3s1 on /Volumes/Data (apfs, local, journaled)


def _parsed(mounts: str) -> list[tuple[str, str]]:
    found = []
    for line in mounts.splitlines():
        match = _LINUX.match(line) or _MACOS.match(line)
        if match:
            where = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), match[1])
            found.append((where, match[2]))
    return found
