"""Commits of a folder: who leads them, what is synced when, and what becomes of files."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import shutil
import signal
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast.errors import QueueNotFound
from holdfast.stores.log.entries import Step
from holdfast.stores.log.folder import FolderSpace, wal
from holdfast.stores.records import Envelope
from tests.stores.log.folder.watched_disk import Disk
from tests.stores.log.space_suite import blocking, keys


def put(key: str, data: bytes = b"x"):
    def step(tx):
        tx.put(key, data)
        return threading.get_ident()

    return step


@pytest.fixture
def disk(tmp_path: Path):
    disk = Disk(f"disk-{tmp_path.name}")
    yield disk
    disk.unregister()


@pytest.fixture
async def space(tmp_path: Path, disk: Disk):
    space = await FolderSpace.open(tmp_path / "store", vfs=disk.name)
    await space.transact(put("warm"))
    disk.log.clear()
    yield space
    await space.close()


async def in_a_thread(space: FolderSpace, step: Callable[[Any], Any], *, durable: bool = True) -> Any:
    """As a blocking caller."""
    entry = Step(step, durable=durable)
    await asyncio.to_thread(lambda: space.commits.put(entry, 10))
    return entry.result


async def test_a_blocking_caller_commits_in_its_own_thread(space: FolderSpace):
    def call() -> bool:
        return blocking(space, put("a")) == threading.get_ident()

    assert await asyncio.to_thread(call)
    assert await space.transact(put("b")) != threading.get_ident(), "an event loop waits for no disk"
    assert await space.read(keys("")) == ["a", "b", "warm"]


async def test_it_is_synced_before_it_is_answered(space: FolderSpace, disk: Disk):
    await in_a_thread(space, put("a"))
    assert disk.log[-1] == "sync wal"
    assert "write wal" in disk.log


async def test_what_need_not_last_is_synced_soon_after(space: FolderSpace, disk: Disk, monkeypatch):
    synced = threading.Event()
    sync = wal.sync
    monkeypatch.setattr(wal, "sync", lambda fd: (sync(fd), synced.set()))
    assert await in_a_thread(space, put("a"), durable=False)
    assert "write wal" in disk.log
    assert "sync wal" not in disk.log
    assert not synced.is_set()
    assert await asyncio.to_thread(synced.wait, 10)
    assert await space.transact(put("b")), "the next one waits for the disk again"
    assert disk.log[-1] == "sync wal"


async def test_a_file_goes_only_after_the_disk_knows_that_it_is_not_needed(
    space: FolderSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    await space.write_file("q/large", b"large")
    await space.transact(lambda tx: tx.adopt("q/large"))
    large = tmp_path / "store" / "q" / "large"
    sync, seen = wal.sync, []
    monkeypatch.setattr(wal, "sync", lambda fd: (seen.append(large.exists()), sync(fd)))
    assert await in_a_thread(space, lambda tx: tx.delete("q/large"), durable=False)
    assert seen[0]
    for _ in range(5000):
        if not os.listdir(large.parent):
            return
        await asyncio.sleep(0.002)
    raise AssertionError("the file stayed")


async def test_a_file_stays_for_the_sweep_where_the_disk_refuses(
    space: FolderSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    await space.write_file("q/large", b"large")
    await space.transact(lambda tx: tx.adopt("q/large"))

    def refuses(fd: int) -> None:
        raise OSError("told to fail")

    monkeypatch.setattr(wal, "sync", refuses)
    assert await in_a_thread(space, lambda tx: tx.delete("q/large"), durable=False)
    await asyncio.sleep(0.1)
    assert os.listdir(tmp_path / "store" / "q") == ["large"]


async def test_its_own_error_is_raised_and_undoes_it(space: FolderSpace):
    def step(tx):
        tx.put("a", b"x")
        raise QueueNotFound("no such queue")

    with pytest.raises(QueueNotFound):
        await in_a_thread(space, step)
    assert await space.read(keys("a")) == []
    await in_a_thread(space, put("a"))


async def test_a_failing_disk_is_told(space: FolderSpace, disk: Disk):
    disk.failing = apsw.FullError
    with pytest.raises(holdfast.Unavailable):
        await in_a_thread(space, put("a"))
    disk.failing = None
    await space.transact(put("b"))
    assert await space.read(keys("")) == ["b", "warm"]


async def test_while_another_process_commits_the_thread_waits_in_line(space: FolderSpace, tmp_path: Path):
    fd = os.open(tmp_path / "store" / "lock", os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        late = asyncio.ensure_future(asyncio.to_thread(blocking, space, put("late"), deadline=0.1))
        waits = asyncio.ensure_future(asyncio.to_thread(blocking, space, put("a")))
        with pytest.raises(holdfast.Unavailable, match="nothing was done"):
            await late
        assert not waits.done()
    finally:
        os.close(fd)
    await waits
    assert await space.read(keys("")) == ["a", "warm"]


@pytest.mark.timeout(60)
def test_an_interrupt_in_the_middle_of_a_commit_undoes_it_and_harms_nobody(tmp_path: Path):
    """The main thread leads; the interrupt comes inside its step."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted(tx):
        tx.put("half", b"x")
        signal.raise_signal(signal.SIGINT)

    space = asyncio.run(FolderSpace.open(tmp_path / "store"))
    try:
        for number in range(5):
            blocking(space, put(f"before/{number}"))
            with pytest.raises(KeyboardInterrupt):
                blocking(space, interrupted)
            blocking(space, put(f"after/{number}"))
        assert blocking(space, keys("half")) == []
        assert len(blocking(space, keys(""))) == 10
    finally:
        signal.signal(signal.SIGINT, before)
        asyncio.run(space.close())


@pytest.fixture
async def queue(tmp_path: Path):
    async with holdfast.connect(f"file://{tmp_path / 'store'}") as broker:
        yield await broker.queue("q", bytes, archive=False)


async def test_a_lone_caller_leaves_turns_to_others(queue: holdfast.Queue[bytes]):
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    await queue.enqueue_many([b"x"] * 200)
    task = asyncio.ensure_future(other())
    for _ in range(200):
        delivery = await queue.dequeue()
        assert delivery is not None
        await delivery.complete()
    task.cancel()
    assert turns >= 200


async def test_what_a_refused_call_held_is_let_go(tmp_path: Path):
    """The error, its traceback and the call know each other, and the garbage collector does not look at calls."""
    async with holdfast.connect(f"file://{tmp_path / 'store'}") as broker:
        appender = broker.store._log("missing").appender
        kept = []
        for _ in range(30):
            future = asyncio.ensure_future(appender.append([Envelope(b"x")]))
            kept.append(weakref.ref(future))
            with pytest.raises(QueueNotFound):
                await future
            del future
        gc.collect()
        assert sum(ref() is not None for ref in kept) <= 1, "the last one may be"


async def test_callers_that_come_together_share_commits(queue: holdfast.Queue[bytes], monkeypatch):
    for _ in range(50):
        await queue.enqueue(b"x")
    deliveries = await queue.dequeue_many(50)
    commits = 0
    make_room = wal.WriteAheadLog.make_room

    def counted(log: wal.WriteAheadLog) -> None:
        nonlocal commits
        commits += 1
        make_room(log)

    monkeypatch.setattr(wal.WriteAheadLog, "make_room", counted)
    await asyncio.gather(*(each.complete() for each in deliveries))
    assert 1 <= commits <= 5
    assert (await queue.stats()).processing == 0


async def test_a_claim_may_be_gone_after_a_power_cut_and_nothing_else(tmp_path: Path, disk: Disk):
    """Only what was synced exists: copies of database and log as they were after the last sync."""
    store, image = tmp_path / "store", tmp_path / "image"
    image.mkdir()

    def cut() -> None:
        for name in ("holdfast.db", "holdfast.db-wal"):
            if (store / name).exists():
                shutil.copy(store / name, image / name)

    space = await FolderSpace.open(store, vfs=disk.name)
    disk.synced = cut
    await space.transact(put("warm"))
    await in_a_thread(space, put("kept"))
    await in_a_thread(space, put("fleeting"), durable=False)
    assert await space.read(keys("")) == ["fleeting", "kept", "warm"]
    disk.synced = lambda: None
    await space.close()

    again = await FolderSpace.open(image)
    try:
        assert await again.read(keys("")) == ["kept", "warm"]
    finally:
        await again.close()
