"""Steps that a loop of blocking callers runs itself, because they are alone; no other loop waits for a disk."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import shutil
import threading
import time
import weakref
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.errors import QueueNotFound
from holdfast.stores.log.folder import FolderSpace, database, wal
from holdfast.stores.log.folder import space as folder_space
from holdfast.stores.records import Envelope
from tests.stores.log.folder.watched_disk import Disk
from tests.stores.log.space_suite import keys


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
def blocking(monkeypatch: pytest.MonkeyPatch):
    """The loop of the test counts as that of blocking callers."""
    monkeypatch.setattr(folder_space, "may_wait", lambda loop: True)


@pytest.fixture
async def space(tmp_path: Path, disk: Disk, blocking: None):
    space = await FolderSpace.open(tmp_path / "store", vfs=disk.name)
    await space.transact(put("warm"))
    disk.log.clear()
    yield space
    await space.close()


async def at_once(space: FolderSpace, step, **more):
    """As soon as the committing thread has nothing more to do with what came before."""
    for _ in range(5000):
        done = space.at_once(step, **more)
        if done is not None:
            return done
        await asyncio.sleep(0.002)
    raise AssertionError("it was never done at once")


async def test_a_lone_step_runs_in_the_thread_of_its_caller(space: FolderSpace):
    assert await at_once(space, put("a")) == (threading.get_ident(),)
    assert await space.transact(put("b")) != threading.get_ident()
    assert await space.read(keys("")) == ["a", "b", "warm"]


async def test_it_is_synced_before_it_is_answered(space: FolderSpace, disk: Disk):
    assert await at_once(space, put("a")) is not None
    assert disk.log[-1] == "sync wal"
    assert "write wal" in disk.log


async def test_what_need_not_last_is_synced_soon_after(space: FolderSpace, disk: Disk, monkeypatch):
    synced = threading.Event()
    sync = wal.sync
    monkeypatch.setattr(wal, "sync", lambda fd: (sync(fd), synced.set()))
    assert await at_once(space, put("a"), lasting=False) is not None
    assert "write wal" in disk.log
    assert "sync wal" not in disk.log
    assert not synced.is_set()
    assert await asyncio.to_thread(synced.wait, 10)
    assert await space.transact(put("b")), "the next one waits for the disk again"
    assert disk.log[-1] == "sync wal"


async def test_what_need_not_last_is_synced_soon_after_in_the_committing_thread_too(space: FolderSpace, disk: Disk):
    await space.transact(put("a"), lasting=False)
    assert "write wal" in disk.log
    assert "sync wal" not in disk.log
    log = space._committer._wal
    assert log is not None
    deadline = time.monotonic() + 10
    while log.is_behind and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert not log.is_behind


def committing_threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the threads that commit from now on."""
    names: set[str] = set()
    commit = database.Writing.commit
    monkeypatch.setattr(
        database.Writing, "commit", lambda view: (names.add(threading.current_thread().name), commit(view))[1]
    )
    return names


async def test_the_loop_of_an_async_caller_never_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """However often a lone caller found the disk quick: the next commit may hang."""
    names = committing_threads(monkeypatch)
    async with holdfast.connect(f"file://{tmp_path / 'store'}") as broker:
        queue = await broker.queue("q", bytes)
        for _ in range(30):
            await queue.enqueue(b"x")
            delivery = await queue.dequeue()
            assert delivery is not None
            await delivery.extend(60)
            await delivery.complete()
        await queue.enqueue(b"x" * 300_000)  # a file of its own
    assert names == {"holdfast-commit"}


def test_the_loop_of_blocking_callers_commits_for_a_lone_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with holdfast.sync.connect(f"file://{tmp_path / 'store'}") as broker:
        queue = broker.queue("q", bytes)
        names = committing_threads(monkeypatch)
        for _ in range(30):
            queue.enqueue(b"x")
            delivery = queue.dequeue()
            assert delivery is not None
            delivery.complete()
    assert "holdfast-sync" in names


async def test_a_file_goes_only_after_the_disk_knows_that_it_is_not_needed(
    space: FolderSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    await space.write_file("q/large", b"large")
    await space.transact(lambda tx: tx.adopt("q/large"))
    large = tmp_path / "store" / "q" / "large"
    sync, seen = wal.sync, []
    monkeypatch.setattr(wal, "sync", lambda fd: (seen.append(large.exists()), sync(fd)))
    assert await at_once(space, lambda tx: tx.delete("q/large"), lasting=False) == (True,)
    assert seen == [True]
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
    assert await at_once(space, lambda tx: tx.delete("q/large"), lasting=False) == (True,)
    await asyncio.sleep(0.1)
    assert os.listdir(tmp_path / "store" / "q") == ["large"]


async def test_its_own_error_is_raised_and_undoes_it(space: FolderSpace):
    def step(tx):
        tx.put("a", b"x")
        raise QueueNotFound("no such queue")

    with pytest.raises(QueueNotFound):
        await at_once(space, step)
    assert await space.read(keys("a")) == []
    assert await at_once(space, put("a")) is not None


async def test_a_failing_disk_is_told(space: FolderSpace, disk: Disk):
    disk.failing = apsw.FullError
    with pytest.raises(holdfast.Unavailable):
        await at_once(space, put("a"))
    disk.failing = None
    await space.transact(put("b"))
    assert await space.read(keys("")) == ["b", "warm"]


async def test_not_while_another_process_commits(space: FolderSpace, tmp_path: Path):
    fd = os.open(tmp_path / "store" / "lock", os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        assert space.at_once(put("a")) is None
    finally:
        os.close(fd)
    assert await at_once(space, put("a")) is not None


async def test_not_while_a_foreign_tool_writes(space: FolderSpace, tmp_path: Path):
    tool = apsw.Connection(str(tmp_path / "store" / "holdfast.db"))
    tool.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    assert space.at_once(put("a")) is None
    assert time.monotonic() - begun < 1
    tool.execute("ROLLBACK")
    tool.close()
    assert await at_once(space, put("a")) is not None


async def test_not_while_others_wait(space: FolderSpace):
    entered, leave = threading.Event(), threading.Event()

    def held(tx):
        entered.set()
        assert leave.wait(10)

    waiting = space.transact(held)
    assert await asyncio.to_thread(entered.wait, 10)
    assert space.at_once(put("a")) is None
    leave.set()
    await waiting


async def test_not_when_a_file_must_be_read(space: FolderSpace):
    await space.write_file("q/large", b"large")
    await space.transact(lambda tx: tx.adopt("q/large"))

    def step(tx):
        tx.put("a", b"x")
        return tx.get("q/large").data

    assert space.at_once(step) is None
    assert await space.read(keys("a")) == []
    assert await space.transact(step) == b"large"


async def test_files_are_written_before(space: FolderSpace):
    await space.write_file("q/other", b"so that the folder is known")
    done = await at_once(space, lambda tx: tx.adopt("q/one"), files=[("q/one", b"1" * 1000)])
    assert done == (True,)
    assert await space.read(lambda view: view.get("q/one").data) == b"1" * 1000


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


async def test_who_tries_in_vain_again_and_again_leaves_turns_to_others(tmp_path: Path, blocking: None):
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with holdfast.connect(f"file://{tmp_path / 'store'}") as broker:
        queue = await broker.queue("q")
        await queue.enqueue(1)
        await broker.delete_queue("q", force=True)
        task = asyncio.ensure_future(other())
        without = 0
        for call in [queue.dequeue] * 50 + [lambda: queue.enqueue(2)] * 50:
            before = turns
            with pytest.raises(QueueNotFound):
                await call()
            without += turns == before
        task.cancel()
        assert without <= 60, "every second one waits for its turn"


async def test_what_a_refused_call_held_is_let_go(tmp_path: Path):
    """The error, its traceback and the call know each other, and the garbage collector does not look at calls."""
    async with holdfast.connect(f"file://{tmp_path / 'store'}") as broker:
        appender = broker.store._log("missing").appender
        kept = []
        for _ in range(30):
            future = appender.append([Envelope(b"x")])
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


async def test_a_claim_may_be_gone_after_a_power_cut_and_nothing_else(tmp_path: Path, disk: Disk, blocking: None):
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
    assert await at_once(space, put("kept")) is not None
    assert await at_once(space, put("fleeting"), lasting=False) is not None
    assert await space.read(keys("")) == ["fleeting", "kept", "warm"]
    disk.synced = lambda: None
    await space.close()

    again = await FolderSpace.open(image)
    try:
        assert await again.read(keys("")) == ["kept", "warm"]
    finally:
        await again.close()
