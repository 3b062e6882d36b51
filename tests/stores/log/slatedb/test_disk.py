"""What a power cut leaves: nothing that was synced is missing, everything else may be, or may be torn."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

import holdfast
from holdfast.config import StoreOptions
from holdfast.errors import Damaged
from holdfast.stores.log import slatedb
from holdfast.stores.log.slatedb import SlateSpace, disk, location
from holdfast.stores.log.slatedb.location import NAME
from tests.stores.log.space_suite import keys, value

LARGE = os.urandom(300_000)


class PowerCut:
    """Notes what is synced, and makes the folder that a power cut would leave."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._synced: set[str] = set()
        self._named: dict[str, set[str]] = {}  # by folder: the names that are on the disk
        sync_file, sync_directory = disk._sync_file, disk.sync_directory

        def file(path: str) -> bool:
            there = sync_file(path)
            if there:
                self._synced.add(path)
            return there

        def directory(path: str) -> None:
            sync_directory(path)
            self._named[path] = set(os.listdir(path))

        monkeypatch.setattr(disk, "_sync_file", file)
        monkeypatch.setattr(disk, "sync_directory", directory)

    def image(self, target: Path, unsynced: str) -> Path:
        """`unsynced` files are lost, empty, cut in half, zeroes, or whole. The note is replaced when it is synced."""
        for path in sorted(self._folder.rglob("*")):
            if path.is_dir():
                continue
            there = path.name in self._named.get(str(path.parent), ())
            whole = there and (str(path) in self._synced or path.name == disk.NOTE)
            if not whole and unsynced == "lost":
                continue
            copy = target / path.relative_to(self._folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
            size = copy.stat().st_size
            if not whole and unsynced != "whole":
                os.truncate(copy, size // 2 if unsynced == "half" else 0)
                os.truncate(copy, size if unsynced == "zeroes" else copy.stat().st_size)
        return target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def power(folder: Path, monkeypatch: pytest.MonkeyPatch) -> PowerCut:
    return PowerCut(folder, monkeypatch)


async def opened(folder: Path) -> SlateSpace:
    return await SlateSpace.open(slatedb.local(folder), StoreOptions(), alone=True)


async def fill(space: SlateSpace) -> None:
    """Acknowledged: twenty objects, some large, one that replaces another."""
    for n in range(20):
        await space.transact(lambda tx, n=n: tx.create(f"a/{n:02}", LARGE if n % 5 == 0 else b"x" * n * 100))
    await space.write_file("b", LARGE)
    await space.transact(lambda tx: (tx.adopt("b"), tx.put("a/00", b"replaced")))


def flush_tables(space: SlateSpace) -> None:
    """As SlateDB does by itself now and then: the log's rows go to a table, and a new manifest names it."""
    package = slatedb.binding.slatedb()
    database = space._core.committer.state.database
    database._run(lambda: database._db.flush_with_options(package.FlushOptions(flush_type=package.FlushType.MEM_TABLE)))


def unsynced_writes(space: SlateSpace) -> None:
    """Written, and the power goes before the sync: three files of the log."""
    package = slatedb.binding.slatedb()
    database = space._core.committer.state.database

    async def write() -> None:
        for n in range(3):
            await database._db.put(
                b"kc/%d" % n, slatedb.layout.encode(slatedb.index.Entry(n, b"never acknowledged" * 1000))
            )
            await database._db.flush_with_options(package.FlushOptions(flush_type=package.FlushType.WAL))

    database._run(write)


@pytest.mark.parametrize("tables", [False, True], ids=["log", "tables"])
@pytest.mark.parametrize("unsynced", ["lost", "empty", "half", "zeroes", "whole"])
async def test_what_was_acknowledged_survives(
    folder: Path, tmp_path: Path, power: PowerCut, monkeypatch: pytest.MonkeyPatch, unsynced: str, tables: bool
):
    space = await opened(folder)
    await fill(space)
    await asyncio.to_thread(unsynced_writes, space)
    if tables:
        await asyncio.to_thread(flush_tables, space)
    image = power.image(tmp_path / "image", unsynced)
    await space.close()
    monkeypatch.setattr(disk, "boot_id", lambda: "the next boot")
    again = await opened(image)
    assert await again.read(keys("a/")) == [f"a/{n:02}" for n in range(20)]
    assert await again.read(value("a/00")) == b"replaced"
    assert await again.read(value("a/05")) == LARGE
    assert await again.read(value("b")) == LARGE
    assert await again.read(keys("c/")) in ([], [f"c/{n}" for n in range(3)])  # no hole in what was not acknowledged
    await again.transact(lambda tx: tx.put("d", b"goes on"))
    await again.close()
    monkeypatch.setattr(disk, "boot_id", lambda: "the boot after")
    third = await opened(image)
    assert await third.read(value("d")) == b"goes on"
    await third.close()


async def test_without_syncing_it_would_not(
    folder: Path, tmp_path: Path, power: PowerCut, monkeypatch: pytest.MonkeyPatch
):
    space = await opened(folder)
    monkeypatch.setattr(disk.Disk, "sync", lambda self: None)
    await fill(space)
    image = power.image(tmp_path / "image", "lost")
    await space.close()
    again = await opened(image)
    assert await again.read(keys("a/")) == []
    await again.close()


@pytest.mark.parametrize("written", [unsynced_writes, flush_tables])
async def test_without_mending_it_would_not_open(folder: Path, tmp_path: Path, power: PowerCut, written):
    space = await opened(folder)
    await fill(space)
    await asyncio.to_thread(written, space)
    image = power.image(tmp_path / "image", "half")
    await space.close()
    with pytest.raises(Exception, match="damaged"):  # the same boot: nothing is taken away
        await opened(image)


async def counted(folder: Path, kind: str, until: int) -> int:
    """Files of a kind, once there are at most so many; or after a while."""
    for _ in range(100):
        if len(os.listdir(folder / NAME / kind)) <= until:
            break
        await asyncio.sleep(0.1)
    return len(os.listdir(folder / NAME / kind))


async def test_garbage_is_collected(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(location, "_COLLECTED_LOCALLY", dict.fromkeys(location._COLLECTED_LOCALLY, ("1s", "1s")))
    space = await opened(folder)
    for _ in range(3):
        await fill_again(space)
        await asyncio.to_thread(flush_tables, space)
    assert len(os.listdir(folder / NAME / disk.LOG)) > 30
    assert await counted(folder, disk.LOG, 2) <= 2
    assert await counted(folder, disk.MANIFESTS, 1) == 1  # with boundary files it would stop at the first
    assert len(await space.read(keys("a/"))) == 10
    await space.close()


async def fill_again(space: SlateSpace) -> None:
    for n in range(10):
        await space.transact(lambda tx, n=n: tx.put(f"a/{n}", os.urandom(2000)))


async def test_a_killed_process_leaves_nothing_to_mend(folder: Path):
    first = await opened(folder)
    await fill(first)
    await asyncio.to_thread(unsynced_writes, first)
    second = await opened(folder)  # as after a crash of the process: the files are whole
    assert len(await second.read(keys("c/"))) == 3
    assert not (folder / NAME / disk.ASIDE).exists()
    await first.close()
    await second.close()


async def test_two_owners_write_their_notes_at_the_same_time(tmp_path: Path):
    """One of them is being fenced, and does not know it yet."""
    owners = [disk.Disk(tmp_path) for _ in range(2)]

    def notes(owner: disk.Disk) -> None:
        for _ in range(200):
            owner._write_note()

    await asyncio.gather(*(asyncio.to_thread(notes, owner) for owner in owners))
    assert os.listdir(tmp_path) == [disk.NOTE]


@pytest.mark.parametrize(
    ("part", "which"), [("wal/*", slice(None)), ("wal/*", slice(-1, None)), ("manifest/*", slice(-1, None))]
)
async def test_a_database_that_lost_its_newest_files_is_no_new_one(tmp_path: Path, part: str, which: slice) -> None:
    async with holdfast.connect(f"slatedb+file://{tmp_path}/store") as broker:
        await (await broker.queue("jobs")).enqueue_many(range(50))
    gone = sorted((tmp_path / "store" / NAME).glob(part))[which]
    kept = [path.read_bytes() for path in gone]
    for path in gone:
        path.unlink()
    for _ in range(2):  # nor the second time
        with pytest.raises(Damaged, match=f"files of {part[:-2]} are gone"):
            await holdfast.connect(f"slatedb+file://{tmp_path}/store").__aenter__()
    for path, data in zip(gone, kept, strict=True):
        path.write_bytes(data)
    async with holdfast.connect(f"slatedb+file://{tmp_path}/store") as broker:
        assert (await (await broker.queue("jobs")).stats()).pending == 50


async def test_who_says_so_goes_on_with_what_is_left(tmp_path: Path) -> None:
    async with holdfast.connect(f"slatedb+file://{tmp_path}") as broker:
        await (await broker.queue("jobs")).enqueue_many(range(50))
    max((tmp_path / NAME / disk.LOG).iterdir()).unlink()
    (tmp_path / NAME / disk.NOTE).unlink()
    async with holdfast.connect(f"slatedb+file://{tmp_path}") as broker:
        queue: holdfast.Queue[int] = await broker.queue("jobs")
        assert (await queue.stats()).pending == 0  # all of it was in that file
        await queue.enqueue(1)
    async with holdfast.connect(f"slatedb+file://{tmp_path}") as broker:
        assert (await (await broker.queue("jobs")).stats()).pending == 1
