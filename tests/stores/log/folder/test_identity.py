"""A folder that is moved, removed, replaced or swapped while it is open acknowledges nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import Damaged, Unavailable, UnsafeStore
from holdfast.stores.log.folder import FolderSpace
from holdfast.stores.log.folder import space as folder_space
from holdfast.stores.log.folder.identity import SELDOM
from tests.stores.log.space_suite import keys, value

LARGE = b"x" * 400_000  # a file beside the database
_MAKE = """
import asyncio, sys
from pathlib import Path
from holdfast.stores.log.folder import FolderSpace
async def main():
    space = await FolderSpace.open(Path(sys.argv[1]))
    await space.transact(lambda tx: tx.put("theirs", b"x"))
    await space.close()
asyncio.run(main())
"""


def make_in_another_process(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", _MAKE, str(folder)], check=True, timeout=30)


def remove_the_database(folder: Path) -> None:
    for path in folder.glob("holdfast.db*"):
        path.unlink()


def remove_the_log(folder: Path) -> None:
    (folder / "holdfast.db-wal").unlink()


def move(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def remove_and_make_again(folder: Path) -> None:
    shutil.rmtree(folder)
    make_in_another_process(folder)


def remove_the_database_and_make_it_again(folder: Path) -> None:
    remove_the_database(folder)
    for files in folder.glob("*@*"):  # beside which no new store is made
        shutil.rmtree(files)
    (folder / "lock").unlink()  # which knows that there was one
    make_in_another_process(folder)


def swap(folder: Path) -> None:
    other, aside = folder.with_name("other"), folder.with_name("aside")
    make_in_another_process(other)
    folder.rename(aside)
    other.rename(folder)
    aside.rename(other)


def restore_over_the_top(folder: Path) -> None:
    """As tar and rsync do it: each file is written beside and renamed over the old one."""
    for path in [path for path in folder.glob("*") if path.is_file()]:
        copy = path.with_name(f".{path.name}")
        shutil.copy2(path, copy)
        copy.rename(path)


FAULTS = [
    remove_the_database,
    remove_the_log,
    move,
    remove_and_make_again,
    remove_the_database_and_make_it_again,
    swap,
    restore_over_the_top,
]
faults = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)


@pytest.fixture
async def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(folder_space, "may_wait", lambda loop: True)  # as in the loop of blocking callers
    space = await FolderSpace.open(tmp_path / "store", operation_timeout=5)
    yield space
    await space.close()


async def at_once(space: FolderSpace, key: str, *, lasting: bool = True) -> None:
    if space.at_once(lambda tx: tx.put(key, b"x"), lasting=lasting) is None:
        await space.transact(lambda tx: tx.put(key, b"x"), lasting=lasting)


async def in_a_group(space: FolderSpace, key: str) -> None:
    await space.transact(lambda tx: tx.put(key, b"x"))


async def from_a_thread(space: FolderSpace, key: str) -> None:
    await asyncio.to_thread(space.transact_from_thread, lambda tx: tx.put(key, b"x"))


@faults
@pytest.mark.parametrize("write", [at_once, in_a_group, from_a_thread], ids=lambda write: write.__name__)
async def test_nothing_is_acknowledged(space: FolderSpace, tmp_path: Path, fault: Callable[[Path], None], write):
    await write(space, "q/before")
    fault(tmp_path / "store")
    for number in range(3):
        with pytest.raises(Unavailable, match=r"moved, removed or replaced while it was open .* connect again"):
            await write(space, f"q/{number}")
    with pytest.raises(Unavailable, match="moved, removed or replaced"):
        await space.read(keys("q/"))
    if fault is remove_the_database:
        with pytest.raises(Damaged, match="its database is gone"):
            await FolderSpace.open(tmp_path / "store")
    elif (tmp_path / "store").exists():
        fresh = await FolderSpace.open(tmp_path / "store")
        assert [key for key in await fresh.read(keys("q/")) if key != "q/before"] in ([], ["q/0"])
        await fresh.close()


async def test_each_of_a_group_is_refused(space: FolderSpace, tmp_path: Path):
    move(tmp_path / "store")
    steps = (space.transact(lambda tx, n=n: tx.put(f"q/{n}", b"x")) for n in range(5))
    for answer in await asyncio.gather(*steps, return_exceptions=True):
        assert isinstance(answer, Unavailable)


async def test_what_is_not_synced_stops_after_a_moment(space: FolderSpace, tmp_path: Path):
    async def lease_on() -> None:
        end = time.monotonic() + 20 * SELDOM
        while time.monotonic() < end:
            await at_once(space, "lease", lasting=False)

    move(tmp_path / "store")
    with pytest.raises(Unavailable, match="moved, removed or replaced"):
        await lease_on()


async def test_put_back_it_goes_on(space: FolderSpace, tmp_path: Path):
    await space.write_file("q/file", LARGE)
    await space.transact(lambda tx: tx.adopt("q/file"))
    move(tmp_path / "store")
    with pytest.raises(Unavailable):
        await in_a_group(space, "q/lost")
    with pytest.raises(Unavailable):
        await in_a_group(space, "q/lost")
    (tmp_path / "moved").rename(tmp_path / "store")
    await in_a_group(space, "q/after")
    assert await space.read(value("q/file")) == LARGE
    assert (await space.read(keys("q/")))[0] == "q/after"


async def test_a_file_is_read_from_the_folder_that_is_open(space: FolderSpace, tmp_path: Path):
    """The commit of a claim does not wait for the disk, and it must not find payloads missing."""
    await space.write_file("q/file", LARGE)
    await space.transact(lambda tx: tx.adopt("q/file"))
    move(tmp_path / "store")
    assert space._files.read("q/file") == LARGE
    os.unlink(tmp_path / "moved" / "q/file")
    with pytest.raises(Unavailable, match="moved, removed or replaced"):
        space._files.read("q/file")


async def test_nothing_is_written_into_the_folder_that_came_instead(space: FolderSpace, tmp_path: Path):
    await space.write_file("q/file", LARGE)
    swap(tmp_path / "store")
    before = {path: path.stat().st_size for path in (tmp_path / "store").rglob("*")}
    with pytest.raises(Unavailable):
        await space.transact(lambda tx: tx.adopt("q/2"), files=[("q/2", LARGE)])
    await space.close()
    assert {path: path.stat().st_size for path in (tmp_path / "store").rglob("*")} == before


async def test_uninstalling_leaves_the_folder_that_came_instead(space: FolderSpace, tmp_path: Path):
    swap(tmp_path / "store")
    with pytest.raises(Unavailable):
        await space.uninstall()
    assert (tmp_path / "store" / "holdfast.db").exists()
    assert (tmp_path / "other" / "holdfast.db").exists()


@faults
async def test_no_message_becomes_a_dead_letter(tmp_path: Path, fault: Callable[[Path], None]):
    async with holdfast.connect(f"file://{tmp_path / 'store'}") as broker:
        queue = await broker.queue("jobs", codec="raw")
        await queue.enqueue_many([LARGE, LARGE, b"small"])
        seen: list[bytes] = []

        async def work_on() -> None:
            end = time.monotonic() + 20 * SELDOM
            while time.monotonic() < end:
                seen.extend([delivery.payload for delivery in await queue.dequeue_many(1)])
                await asyncio.sleep(SELDOM / 10)

        fault(tmp_path / "store")
        with pytest.raises(Unavailable, match="moved, removed or replaced"):
            await work_on()
        assert all(payload in (LARGE, b"small") for payload in seen)
        with pytest.raises(Unavailable, match="moved, removed or replaced"):
            await queue.stats()
    where = {move: "moved", swap: "other", remove_the_log: "store", restore_over_the_top: "store"}.get(fault)
    if where is not None:
        async with holdfast.connect(f"file://{tmp_path / where}") as broker:
            stats = await (await broker.queue("jobs", codec="raw")).stats()
            assert (stats.dead, stats.total) == (0, 3)


async def opened(folder: Path) -> str:
    space = await FolderSpace.open(folder)
    await space.close()
    return space.store_id


@pytest.mark.parametrize("emptied", [False, True])
async def test_a_folder_that_lost_its_database_is_no_new_store(tmp_path: Path, emptied: bool) -> None:
    store_id = await opened(tmp_path)
    remove_the_database(tmp_path)
    if emptied:
        (tmp_path / "holdfast.db").touch()
    for _ in range(2):
        with pytest.raises(Damaged, match=f"is the store {store_id}, but its database is gone: put holdfast.db back"):
            await opened(tmp_path)
    assert (tmp_path / "holdfast.db").exists() is emptied
    (tmp_path / "lock").unlink()
    assert await opened(tmp_path) != store_id


async def test_the_database_of_another_store_is_refused(tmp_path: Path) -> None:
    mine, theirs = await opened(tmp_path / "a"), await opened(tmp_path / "b")
    shutil.copy(tmp_path / "b" / "holdfast.db", tmp_path / "a" / "holdfast.db")
    with pytest.raises(UnsafeStore, match=f"is the store {mine}, but holdfast.db is of the store {theirs}"):
        await opened(tmp_path / "a")
    (tmp_path / "a" / "lock").unlink()
    assert await opened(tmp_path / "a") == theirs


async def test_a_copy_of_the_folder_is_the_same_store(tmp_path: Path) -> None:
    mine = await opened(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert await opened(tmp_path / "b") == mine == await opened(tmp_path / "a")
