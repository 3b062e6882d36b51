from __future__ import annotations

import asyncio
import errno
import os
import tempfile
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.errors import ConfigError, StoreError, Unavailable, UnsafeStore
from holdfast.stores import formats
from holdfast.stores.log.folder import FolderSpace, opening
from holdfast.stores.log.folder.database import refuse_old_sqlite

MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
proc /proc proc rw,nosuid 0 0
server:/export /mnt/shared nfs4 rw,relatime,vers=4.2 0 0
/dev/vdb /mnt/shared/local xfs rw 0 0
user@host:/ /mnt/with\\040space fuse.sshfs rw 0 0
tmpfs /mnt/twice tmpfs rw 0 0
//host/share /mnt/twice cifs rw 0 0
"""
MACOS = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse)
//user@nas/jobs on /Volumes/jobs (smbfs, nodev, nosuid, mounted by user)
"""


async def refused(path: Path, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        await FolderSpace.open(path, operation_timeout=5)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/jobs", "ext4"),
        ("/mnt/shared", "nfs4"),
        ("/mnt/shared/jobs", "nfs4"),
        ("/mnt/shared/local/jobs", "xfs"),
        ("/mnt/shared2", "ext4"),
        ("/mnt/with space/jobs", "fuse.sshfs"),
        ("/mnt/twice/jobs", "cifs"),
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str):
    assert opening.file_system(Path(path), mounts=MOUNTS) == kind


def test_the_file_system_on_macos():
    assert opening.file_system(Path("/Volumes/jobs/x"), mounts=MACOS) == "smbfs"
    assert opening.file_system(Path("/Users/me"), mounts=MACOS) == "apfs"
    assert opening.file_system(Path("/anywhere"), mounts="") == "unknown"


async def test_a_network_file_system_is_unsafe(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(opening, "_mounts", lambda: f"server:/x {os.path.realpath(tmp_path)} nfs4 rw 0 0\n")
    await refused(tmp_path / "new" / "store", UnsafeStore, "network file system .nfs4.")
    assert not (tmp_path / "new").exists()


async def test_a_file_is_no_folder(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    await refused(tmp_path / "file", ConfigError, "file is not a folder")
    await refused(tmp_path / "file" / "below", ConfigError, "file is not a folder")


NOBODY = 65534


def as_nobody(check: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run a check in a child that may not write everywhere, as root may; its exit code."""
    child = os.fork()
    if not child:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresuid(NOBODY, NOBODY, NOBODY)
            asyncio.run(check())
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a child of a fork must end here, whatever happened
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_folder_without_permission():
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o755)
        locked = Path(above) / "locked"
        locked.mkdir(mode=0o555)

        async def check():
            await refused(locked, ConfigError, "cannot be used as a store: Permission denied")
            await refused(locked / "below", ConfigError, "cannot be used as a store")

        assert as_nobody(check) == 0


def test_a_database_of_another_user():
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o755)
        folder = Path(above) / "store"

        async def make():
            await (await FolderSpace.open(folder)).close()

        asyncio.run(make())
        for path in (folder, *folder.iterdir()):
            os.chmod(path, 0o777 if path.is_dir() else 0o666)
        os.chmod(folder / "holdfast.db", 0o444)

        async def check():
            await refused(folder, ConfigError, r"holdfast\.db is not writable for this user .*owned by uid")

        assert as_nobody(check) == 0


async def test_a_read_only_folder_is_refused_by_what_the_system_says(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(opening.os, "access", lambda *_: False)
    await refused(tmp_path, ConfigError, "not writable")


async def test_a_newer_format_is_refused(tmp_path: Path):
    space = await FolderSpace.open(tmp_path)
    await space.transact(lambda tx: tx.execute("UPDATE meta SET value = ? WHERE name = 'format'", (formats.LOG + 1,)))
    await space.close()
    await refused(tmp_path, StoreError, f"has format {formats.LOG + 1}.*upgrade Holdfast")


async def test_somebody_elses_database(tmp_path: Path):
    connection = apsw.Connection(str(tmp_path / "holdfast.db"))
    connection.execute("CREATE TABLE things (name)")
    connection.close()
    await refused(tmp_path, ConfigError, "something else")


async def test_a_file_that_is_no_database(tmp_path: Path):
    (tmp_path / "holdfast.db").write_bytes(b"not a database " * 1000)
    await refused(tmp_path, StoreError, "damaged")


def test_an_old_sqlite_is_refused():
    refuse_old_sqlite("3.51.3")
    refuse_old_sqlite("3.54.1")
    for version in ("3.51.2", "3.40.0"):
        with pytest.raises(ConfigError, match="pip install -U apsw"):
            refuse_old_sqlite(version)


async def test_no_room_to_make_the_folder_can_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", full)
        await refused(tmp_path / "store", Unavailable, "the store's disk is full.* make room")
    await (await FolderSpace.open(tmp_path / "store")).close()
