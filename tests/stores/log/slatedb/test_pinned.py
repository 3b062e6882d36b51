"""SlateDB opens files by path and makes folders that are missing: a database that was moved acknowledges nothing."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import Unavailable

REASON = "moved, removed or replaced while it was open"
AGAIN = 10.0  # seconds: a database that failed is opened again once a second


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def move(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def remove_what_is_in_it(folder: Path) -> None:
    shutil.rmtree(folder / "slatedb")


def swap(folder: Path) -> None:
    move(folder)
    folder.with_name("other").rename(folder)


@pytest.fixture
async def other(tmp_path: Path) -> Path:
    async with holdfast.connect(f"slatedb+file://{tmp_path / 'other'}") as broker:
        await (await broker.queue("other")).enqueue_many([1, 2, 3])
    return tmp_path / "other"


@pytest.mark.parametrize("fault", [move, remove, remove_what_is_in_it, swap], ids=lambda fault: fault.__name__)
async def test_nothing_is_acknowledged(tmp_path: Path, other: Path, fault: Callable[[Path], None]):
    theirs = contents(other)
    async with holdfast.connect(f"slatedb+file://{tmp_path / 'store'}") as broker:
        queue = await broker.queue("jobs", codec="raw")
        await queue.enqueue_many([b"x" * 400_000, b"small"])
        fault(tmp_path / "store")
        for call in (lambda: queue.enqueue(b"lost"), queue.dequeue, queue.stats, lambda: queue.enqueue(b"lost")):
            with pytest.raises(Unavailable, match=REASON):
                await call()
    if fault is swap:
        assert contents(tmp_path / "store") == theirs
    if fault in (move, swap):
        async with holdfast.connect(f"slatedb+file://{tmp_path / 'moved'}") as broker:
            stats = await (await broker.queue("jobs", codec="raw")).stats()
            assert (stats.pending, stats.dead) == (2, 0)


async def test_put_back_it_goes_on(tmp_path: Path):
    async with holdfast.connect(f"slatedb+file://{tmp_path / 'store'}") as broker:
        queue = await broker.queue("jobs", codec="raw")
        await queue.enqueue_many([b"x" * 400_000, b"small"])
        move(tmp_path / "store")
        with pytest.raises(Unavailable, match=REASON):
            await queue.enqueue(b"lost")
        (tmp_path / "moved").rename(tmp_path / "store")
        end = time.monotonic() + AGAIN
        while True:
            try:
                await queue.enqueue(b"after")
                break
            except Unavailable:
                assert time.monotonic() < end
        found = await queue.dequeue_many(5)
        assert [len(each.payload) for each in found] == [400_000, 5, 5]
