"""Symbolic links that somebody has put into a folder lead nowhere; a folder that we make is ours alone."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

import holdfast
from holdfast import sync
from holdfast.errors import HoldfastError, UnsafeStore
from holdfast.stores.log.folder import FolderSpace

SECRET = b"root:$6$secret:20000:0:99999:7:::\n"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "shadow"
    path.write_bytes(SECRET)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_a_folder_that_we_make_is_private(folder: Path):
    with sync.connect(folder.as_uri()) as broker:
        broker.queue("q").enqueue(1)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_mode_of_a_folder_that_was_there_is_left_alone(folder: Path):
    folder.mkdir()
    folder.chmod(0o750)
    with sync.connect(folder.as_uri()) as broker:
        broker.queue("q").enqueue(1)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750


def replaced_block(folder: Path, target: Path) -> str:
    """The key of the only block that is a file, with a link in its place."""
    (block,) = [path for path in folder.glob("q@*/inbox/*/*") if path.is_file()]
    block.unlink()
    block.symlink_to(target)
    return str(block.relative_to(folder))


async def test_a_link_in_place_of_a_block_is_not_read(folder: Path, secret: Path):
    async with holdfast.connect(folder.as_uri()) as broker:
        queue = await broker.queue("q", bytes)
        await queue.enqueue(bytes(300_000))
        key = replaced_block(folder, secret)
        assert await broker.store.space.read(lambda view: view.get(key)) is None
        assert not broker.store.space._files.exists(key)


async def test_a_link_in_place_of_a_directory_is_not_followed(folder: Path, tmp_path: Path):
    space = await FolderSpace.open(folder)
    try:
        await space.write_file("a/b/1", b"mine")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "1").write_bytes(SECRET)
        os.rename(folder / "a" / "b", folder / "a" / "gone")
        (folder / "a" / "b").symlink_to(elsewhere)
        assert space._files.read("a/b/1") is None
        with pytest.raises(HoldfastError):
            await space.write_file("a/b/2", b"mine")
        space._files.remove(["a/b/1"])
        assert sorted(path.name for path in elsewhere.iterdir()) == ["1"]
    finally:
        await space.close()


@pytest.mark.parametrize("name", ["lock", "holdfast.db", "wake"])
def test_a_link_in_place_of_our_own_files_is_refused(folder: Path, tmp_path: Path, name: str):
    folder.mkdir()
    target = tmp_path / "target"
    target.mkdir() if name == "wake" else target.write_bytes(b"")
    (folder / name).symlink_to(target)
    with pytest.raises(UnsafeStore, match="symbolic link"):
        asyncio.run(FolderSpace.open(folder))
    assert (target.is_dir() and not list(target.iterdir())) or target.read_bytes() == b""


def test_a_link_in_place_of_a_wake_file_is_not_written(folder: Path, secret: Path):
    with sync.connect(folder.as_uri()) as broker:
        queue = broker.queue("q")
        (folder / "wake" / "q%2Fwork.wake").symlink_to(secret)
        queue.enqueue(1)
        assert queue.dequeue(wait=0.1) is not None
    assert secret.read_bytes() == SECRET


def test_links_may_lead_to_the_folder(folder: Path, tmp_path: Path):
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    with sync.connect((tmp_path / "link").as_uri()) as broker:
        broker.queue("q").enqueue(1)
        assert broker.stats()["q"].pending == 1
