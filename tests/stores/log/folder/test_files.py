from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast.errors import ConfigError, Unavailable
from holdfast.stores.log import sums
from holdfast.stores.log.folder import FolderSpace, files
from tests.stores.log.space_suite import value

KEY = "q/archive/date=2026-01-01/1.parquet"


@pytest.fixture
async def space(tmp_path: Path):
    space = await FolderSpace.open(tmp_path)
    yield space
    await space.close()


async def test_nobody_sees_half_a_file(space: FolderSpace, tmp_path: Path, monkeypatch):
    seen = []
    rename = os.rename

    def watched(source, target, **inside):
        seen.append((os.path.getsize(tmp_path / source), os.path.exists(tmp_path / target)))
        assert not list(tmp_path.rglob("*.parquet"))
        rename(source, target, **inside)

    monkeypatch.setattr(files.os, "rename", watched)
    await space.write_file(KEY, b"x" * 100_000)
    sealed = sums.seal(KEY, b"x" * 100_000)
    assert seen == [(len(sealed), False)]
    assert (tmp_path / KEY).read_bytes() == sealed


async def test_a_deleted_object_takes_its_file_along(space: FolderSpace, tmp_path: Path):
    await space.write_file(KEY, b"rows")
    await space.transact(lambda tx: tx.adopt(KEY))
    await space.transact(lambda tx: tx.delete(KEY))
    await space.close()
    assert not (tmp_path / KEY).exists()


async def test_a_vanished_file_is_no_object(space: FolderSpace, tmp_path: Path):
    await space.write_file(KEY, b"rows")
    await space.transact(lambda tx: tx.adopt(KEY))
    (tmp_path / KEY).unlink()
    assert await space.read(value(KEY)) is None


async def test_the_same_key_written_twice(space: FolderSpace):
    await space.write_file(KEY, b"rows")
    await space.write_file(KEY, b"rows")
    assert await space.transact(lambda tx: tx.adopt(KEY))
    assert await space.read(value(KEY)) == b"rows"


async def test_sweep_leaves_what_is_not_ours(space: FolderSpace, tmp_path: Path):
    await space.write_file("q/inbox/1", b"orphan")
    (tmp_path / "q/inbox/.abc.tmp").write_bytes(b"half")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/mine.txt").write_text("mine")
    (tmp_path / "readme.txt").write_text("mine")
    assert await space.sweep(0) == 2
    assert not (tmp_path / "q").exists()
    assert (tmp_path / "notes/mine.txt").exists()
    assert (tmp_path / "readme.txt").exists()
    await space.write_file("q/inbox/1", b"the directory is made again")
    assert (tmp_path / "q/inbox/1").exists()


async def test_an_object_put_over_a_file_leaves_it_to_the_sweep(space: FolderSpace, tmp_path: Path):
    await space.write_file("q/a", b"file")
    await space.transact(lambda tx: tx.adopt("q/a"))
    await space.transact(lambda tx: tx.put("q/a", b"row"))
    assert await space.read(value("q/a")) == b"row"
    assert await space.sweep(0) == 1
    assert await space.read(value("q/a")) == b"row"


async def test_a_full_disk_leaves_no_temporary_file(space: FolderSpace, tmp_path: Path, monkeypatch):
    def full(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "_write_all", full)
        with pytest.raises(Unavailable, match="No space left"):
            await space.write_file(KEY, b"rows")
    assert [path for path in (tmp_path / "q").rglob("*") if path.is_file()] == []
    await space.write_file(KEY, b"rows")


@pytest.mark.parametrize("key", ["../outside", "a/../../b", "/etc/x", "a//b", "top", "", "a/\0"])
async def test_keys_that_are_no_file_names(space: FolderSpace, key: str):
    with pytest.raises(ConfigError):
        await space.write_file(key, b"x")
