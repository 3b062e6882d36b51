from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import apsw
import pytest

from holdfast.errors import ConfigError, Unavailable
from holdfast.stores.log.folder import FolderSpace
from holdfast.stores.log.space import Space
from tests.stores.log.space_suite import SpaceSuite, keys, value


@pytest.fixture
async def space(tmp_path: Path):
    space: Space = await FolderSpace.open(tmp_path / "store")
    yield space
    await space.close()


class TestFolderSpace(SpaceSuite):
    @pytest.fixture
    async def space(self, tmp_path: Path):
        space: Space = await FolderSpace.open(tmp_path / "store")
        yield space
        await space.close()


class TestPollingFolderSpace(SpaceSuite):
    """With wake-up off everything still holds, in one process even at once."""

    @pytest.fixture
    async def space(self, tmp_path: Path):
        space: Space = await FolderSpace.open(tmp_path / "store", wake=False, poll_interval=60)
        yield space
        await space.close()


async def test_everything_is_there_after_reopening(tmp_path: Path):
    space = await FolderSpace.open(tmp_path)
    await space.write_file("q/archive/date=2026-01-01/1.parquet", b"rows")
    await space.transact(lambda tx: (tx.put("q/head", b"h"), tx.adopt("q/archive/date=2026-01-01/1.parquet")))
    await space.close()
    assert sorted(os.listdir(tmp_path)) == ["holdfast.db", "lock", "log-mark", "q", "wake"]
    again = await FolderSpace.open(tmp_path)
    assert await again.install(dry_run=False) == []
    assert await again.read(value("q/head")) == b"h"
    assert await again.read(value("q/archive/date=2026-01-01/1.parquet")) == b"rows"
    await again.close()


async def test_two_spaces_in_one_process(space: FolderSpace, tmp_path: Path):
    other = await FolderSpace.open(tmp_path / "store")
    ticket = other.ticket("a")
    watching = asyncio.create_task(other.watch("a", 10, since=ticket))
    await space.transact(lambda tx: (tx.put("a", b"x"), tx.signal("a")))
    assert await watching
    assert await other.read(value("a")) == b"x"
    await other.close()
    await space.transact(lambda tx: tx.put("a", b"y"))


async def test_an_expired_step_never_runs(space: FolderSpace):
    entered, leave = threading.Event(), threading.Event()

    def block(_):
        entered.set()
        assert leave.wait(10)

    blocking = asyncio.ensure_future(space.transact(block))
    assert await asyncio.to_thread(entered.wait, 10)
    with pytest.raises(Unavailable, match="nothing was done"):
        await space.transact(lambda tx: tx.put("late", b"x"), deadline=0.02)
    with pytest.raises(Unavailable, match="nothing was done"):
        await asyncio.to_thread(space.transact_from_thread, lambda tx: tx.put("late", b"x"), deadline=0.02)
    cancelled = asyncio.ensure_future(space.transact(lambda tx: tx.put("late", b"x")))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])  # a caller that is gone has taken its step back; one that is going has not yet
    leave.set()
    await blocking
    assert await space.transact(keys()) == []


async def test_a_step_under_way_at_its_deadline_is_unknown(space: FolderSpace):
    leave = threading.Event()

    def slow(tx):
        assert leave.wait(10)
        tx.put("slow", b"x")

    with pytest.raises(Unavailable, match="unknown"):
        await space.transact(slow, deadline=0.05)
    leave.set()
    assert await space.transact(keys()) == ["slow"]


async def test_reads_do_not_wait_for_a_writer(space: FolderSpace):
    await space.transact(lambda tx: tx.put("a", b"1"))
    entered, leave = threading.Event(), threading.Event()

    def write(tx):
        tx.put("a", b"2")
        entered.set()
        assert leave.wait(10)

    writing = asyncio.ensure_future(space.transact(write))
    assert await asyncio.to_thread(entered.wait, 10)
    assert await space.read(value("a")) == b"1"
    leave.set()
    await writing
    assert await space.read(value("a")) == b"2"


async def test_a_read_cannot_write(space: FolderSpace):
    with pytest.raises(apsw.ReadOnlyError):
        await _driver_error(space.read(lambda view: view.execute("DELETE FROM objects")))


async def _driver_error(call):
    try:
        return await call
    except Unavailable as error:
        raise error.__cause__ from None


async def test_a_failed_read_is_the_callers_alone(space: FolderSpace):
    results = await asyncio.gather(
        space.read(lambda _: 1 // 0), space.read(keys()), space.read(lambda _: next(iter([]))), return_exceptions=True
    )
    assert isinstance(results[0], ZeroDivisionError)
    assert results[1] == []
    assert isinstance(results[2], RuntimeError)


async def test_full_and_freed_again(space: FolderSpace):
    pages = await space.transact(lambda tx: tx.execute("PRAGMA page_count")[0][0])
    await space.transact(lambda tx: tx.execute(f"PRAGMA max_page_count = {pages + 4}"))

    def put(name: str, size: int):
        return space.transact(lambda tx: tx.put(name, bytes(size)))

    with pytest.raises(Unavailable, match="full") as failure:
        await put("large", 1 << 20)
    assert isinstance(failure.value.__cause__, apsw.FullError)
    results = await asyncio.gather(put("small", 10), put("large", 1 << 20), put("after", 10), return_exceptions=True)
    assert isinstance(results[1], Unavailable)
    written = {name for name, result in zip(("small", "large", "after"), results, strict=True) if result is None}
    assert set(await space.read(keys())) == written
    assert "after" in written
    await space.transact(lambda tx: tx.execute("PRAGMA max_page_count = 1000000"))
    await put("large", 1 << 20)


async def test_closed(tmp_path: Path):
    space = await FolderSpace.open(tmp_path)
    watching = asyncio.create_task(space.watch("a", 30))
    waiting = [asyncio.ensure_future(space.transact(lambda tx, n=n: tx.put(f"{n}", b"x"))) for n in range(5)]
    await asyncio.sleep(0)
    await space.close()
    await asyncio.gather(*waiting)
    assert await watching
    for call in (lambda: space.transact(keys()), lambda: space.read(keys()), lambda: space.write_file("a/b", b"")):
        with pytest.raises(Unavailable, match="closed"):
            await call()
    with pytest.raises(Unavailable, match="closed"):
        space.ticket("a")


async def test_refused_after_a_fork(space: FolderSpace):
    await space.transact(lambda tx: tx.put("a", b"x"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            space.transact_from_thread(lambda tx: tx.put("a", b"child"))
        except ConfigError as error:
            status = 0 if "fork" in str(error) else 2
        finally:
            os._exit(status)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    await space.transact(lambda tx: tx.put("b", b"x"))
    assert await space.read(keys()) == ["a", "b"]


async def test_uninstall_takes_only_what_is_ours(tmp_path: Path):
    for number, foreign in enumerate(([], ["notes.txt"], ["q/mine.txt"])):
        folder = tmp_path / f"store{number}"
        space = await FolderSpace.open(folder)
        await space.write_file("q/inbox/1", b"large")
        await space.transact(lambda tx: (tx.adopt("q/inbox/1"), tx.signal("q/work")))
        for name in foreign:
            (folder / name).write_text("mine")
        told = await space.uninstall()
        left = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
        assert left == foreign
        assert told == [f"file {folder}/{name}" for name in foreign]
        assert folder.exists() == bool(foreign)


async def test_uninstall_takes_what_crashes_left_and_leaves_what_only_looks_like_ours(tmp_path: Path):
    folder, root = tmp_path / "store", "jobs@0123abcd"
    space = await FolderSpace.open(folder)
    await space.write_file(f"{root}/inbox/255/never-adopted", b"large")
    await space.write_file(f"{root}/inbox/255/adopted", b"large")
    await space.transact(lambda tx: (tx.adopt(f"{root}/inbox/255/adopted"), tx.signal("jobs/work")))
    (folder / root / ".0123456789abcdef.tmp").write_text("half a file")
    theirs = [f"{root}/notes.txt", f"{root}/inbox.txt", f"{root}/mine.tmp", "wake/up.wake", "holdfast.db.backup"]
    for name in theirs:
        (folder / name).write_text("mine")
    told = await space.uninstall()
    assert sorted(told) == sorted(f"file {folder}/{name}" for name in theirs)
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == sorted(theirs)


async def test_a_removed_store_takes_no_more_writes(space: FolderSpace, tmp_path: Path):
    other = await FolderSpace.open(tmp_path / "store")
    await other.uninstall()

    async def refused():
        try:
            await space.transact(lambda tx: tx.put("a", b"x"))
        except Unavailable as error:
            return "removed" in str(error)
        return False

    async with asyncio.timeout(10):
        while not await refused():
            await asyncio.sleep(0.05)


async def test_doctor_lines(space: FolderSpace):
    lines = {line.name: line for line in await space.check()}
    assert lines["journal"].detail == "journal mode wal"
    assert lines["integrity"].detail == "quick check: ok"
    assert lines["sync"].state == "ok"
    assert {"sqlite", "file system", "free space", "wake-up", "clock"} <= set(lines)


@pytest.mark.parametrize("beside", [0, 5])
async def test_a_file_that_cannot_be_written_fails_its_step_alone(space: FolderSpace, tmp_path: Path, beside: int):
    await space.write_file("q/inbox/0", b"so that the root is known")
    (tmp_path / "store" / "q" / "full").write_bytes(b"a file where a directory is wanted")
    ran = []
    files = [("q/full/1", b"large")]
    steps = [space.transact(lambda tx: ran.append(1), files=files) for _ in range(1 + bool(beside))]
    steps += [space.transact(lambda tx, n=n: tx.create(f"a/{n}", b"x")) for n in range(beside)]
    outcomes = await asyncio.gather(*steps, return_exceptions=True)
    assert [type(each) for each in outcomes if isinstance(each, Exception)] == [Unavailable] * (1 + bool(beside))
    assert len(await space.read(keys("a/"))) == beside
    assert not ran


async def test_closing_finishes_files_on_their_way(space: FolderSpace, monkeypatch):
    await space.write_file("q/inbox/0", b"so that the root is known")
    write = space._files.write

    def slowly(key: str, data: bytes) -> None:
        time.sleep(0.1)
        write(key, data)

    monkeypatch.setattr(space._files, "write", slowly)
    steps = [
        space.transact(lambda tx, n=n: tx.adopt(f"q/inbox/{n}"), files=[(f"q/inbox/{n}", b"large")])
        for n in range(1, 9)
    ]
    await space.close()
    async with asyncio.timeout(10):
        assert await asyncio.gather(*steps) == [True] * 8
