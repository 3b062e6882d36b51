from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from holdfast.errors import ConfigError, StoreError, UnsafeStore
from holdfast.stores.log.folder import FolderSpace, opening
from holdfast.stores.log.folder.database import FORMAT, refuse_old_sqlite

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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_without_permission(tmp_path: Path):
    (tmp_path / "locked").mkdir(mode=0o500)
    await refused(tmp_path / "locked", ConfigError, "cannot be used as a store")
    await refused(tmp_path / "locked" / "below", ConfigError, "cannot be used as a store")


async def test_a_read_only_folder_is_refused_by_what_the_system_says(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(opening.os, "access", lambda *_: False)
    await refused(tmp_path, ConfigError, "not writable")


async def test_a_newer_format_is_refused(tmp_path: Path):
    space = await FolderSpace.open(tmp_path)
    await space.transact(lambda tx: tx.execute("UPDATE meta SET value = ? WHERE name = 'format'", (FORMAT + 1,)))
    await space.close()
    await refused(tmp_path, ConfigError, f"has format {FORMAT + 1}.*upgrade Holdfast")


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
