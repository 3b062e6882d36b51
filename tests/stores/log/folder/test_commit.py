"""What has reached the disk when a call returns."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import apsw
import pytest

from holdfast.errors import Damaged, Unavailable
from holdfast.stores.log.folder import FolderSpace, files
from tests.stores.log.folder.watched_disk import Disk, unreadable
from tests.stores.log.space_suite import blocking, keys


@pytest.fixture
def disk(tmp_path: Path):
    disk = Disk(f"disk-{tmp_path.name}")
    yield disk
    disk.unregister()


@pytest.fixture
async def space(tmp_path: Path, disk: Disk):
    space = await FolderSpace.open(tmp_path / "store", vfs=disk.name)
    disk.log.clear()
    yield space
    await space.close()


async def test_a_commit_is_synced_before_it_is_answered(space: FolderSpace, disk: Disk):
    for number in range(5):
        disk.log.clear()
        await space.transact(lambda tx, number=number: tx.put(f"a/{number}", b"x"))
        assert disk.log[-1] == "sync wal"
        assert "write wal" in disk.log


async def test_a_thread_waits_for_the_sync_too(space: FolderSpace, disk: Disk):
    await asyncio.to_thread(blocking, space, lambda tx: tx.put("a", b"x"))
    assert disk.log[-1] == "sync wal"


async def test_nothing_written_nothing_synced(space: FolderSpace, disk: Disk):
    await space.transact(keys())
    await space.transact(lambda tx: tx.signal("a"))
    assert disk.log == []


async def test_steps_that_wait_together_share_a_sync(space: FolderSpace, disk: Disk):
    await asyncio.gather(*(space.transact(lambda tx, n=n: tx.put(f"a/{n}", b"x")) for n in range(300)))
    assert disk.log.count("sync wal") < 30
    assert len(await space.read(keys("a/"))) == 300


async def test_a_file_is_synced_before_its_row(space: FolderSpace, disk: Disk, monkeypatch):
    fsync = os.fsync

    def recorded(fd):
        kind = "directory" if os.path.isdir(f"/dev/fd/{fd}") else "file"
        fsync(fd)
        disk.log.append(f"sync {kind}")

    await space.write_file("q/inbox/0", b"so that the directories are there")
    monkeypatch.setattr(files.os, "fsync", recorded)
    disk.log.clear()
    await space.write_file("q/inbox/1", b"large")
    assert disk.log == ["sync file", "sync directory"]
    await space.transact(lambda tx: tx.adopt("q/inbox/1"))
    assert disk.log[:2] == ["sync file", "sync directory"]
    assert disk.log[-1] == "sync wal"


async def test_new_directories_are_synced_into_their_parents(
    space: FolderSpace, disk: Disk, tmp_path: Path, monkeypatch
):
    synced = []
    sync_directory = files.sync_directory

    def recorded(directory: str, *, inside: int):
        assert os.path.samestat(os.fstat(inside), os.stat(tmp_path / "store"))
        synced.append(directory)
        sync_directory(directory, inside=inside)

    monkeypatch.setattr(files, "sync_directory", recorded)
    await space.write_file("q/inbox/250/1", b"large")
    assert synced == ["", "q", "q/inbox", "q/inbox/250"]
    await space.write_file("q/inbox/250/2", b"large")
    assert synced[4:] == ["q/inbox/250"]


@pytest.mark.parametrize("kind", [apsw.IOError, apsw.FullError])
async def test_a_failing_disk_is_survived(space: FolderSpace, disk: Disk, kind: type[apsw.Error]):
    await space.transact(lambda tx: tx.put("a/before", b"x"))
    disk.failing = kind
    steps = (space.transact(lambda tx, n=n: tx.put(f"a/{n}", b"x")) for n in range(3))
    for result in await asyncio.gather(*steps, return_exceptions=True):
        assert isinstance(result, Unavailable)
        assert isinstance(result.__cause__, kind)
    disk.failing = None
    await space.transact(lambda tx: tx.put("a/after", b"x"))
    assert await space.read(keys("a/")) == ["a/after", "a/before"]


async def test_a_commit_counts_although_its_log_cannot_be_copied(space: FolderSpace, disk: Disk, tmp_path: Path):
    """No room for the database, only for its log: what is committed is there, and nobody is told otherwise."""
    database = tmp_path / "store" / "holdfast.db"
    disk.full = "db"
    for number in range(40):
        await space.transact(lambda tx, n=number: tx.put(f"a/{n:02}", os.urandom(250_000)))
    assert len(await space.read(keys("a/"))) == 40
    assert database.stat().st_size < 1_000_000
    disk.full = ""
    await space.transact(lambda tx: tx.put("a/after", b"x"))
    assert database.stat().st_size > 10_000_000


@pytest.fixture
async def filled(tmp_path: Path) -> None:
    """A store of more pages than a connection has read when it is opened, none of them in the log."""
    space = await FolderSpace.open(tmp_path / "store")
    for number in range(50):
        await space.transact(lambda tx, number=number: tx.put(f"a/{number:02d}", bytes(20_000)))
    await space.close()


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("reads", [1, 1000])
async def test_a_disk_that_cannot_read_for_a_moment_is_no_damage(tmp_path: Path, reads: int):
    """SQLite calls the database malformed after an EIO; whoever restored a backup then would lose what came since."""
    space = await FolderSpace.open(tmp_path / "store")
    try:
        for call, key in ((space.read, "a/30"), (space.transact, "a/40")):
            await call(lambda view: view.get("a/00"))
            with unreadable(reads), pytest.raises(Unavailable, match="try again") as failure:
                await call(lambda view, key=key: view.get(key))
            assert isinstance(failure.value.__cause__, apsw.CorruptError)
            assert "backup" not in str(failure.value)
            found = await call(lambda view, key=key: view.get(key))
            assert found is not None
            assert len(found.data) == 20_000
    finally:
        await space.close()


@pytest.mark.usefixtures("filled")
async def test_a_page_that_makes_no_sense_is_damage(tmp_path: Path):
    database = tmp_path / "store" / "holdfast.db"
    data = bytearray(database.read_bytes())
    data[8192:] = bytes(byte ^ 0x5A for byte in data[8192:])
    database.write_bytes(data)
    with pytest.raises(Damaged, match="restore the folder from a backup"):
        await FolderSpace.open(tmp_path / "store")
