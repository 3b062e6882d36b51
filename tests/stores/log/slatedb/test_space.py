"""The space on SlateDB: what every space does, and what only this one does."""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path

import pytest

from holdfast.config import StoreOptions
from holdfast.errors import ConfigError, Fenced, StoreError, Unavailable
from holdfast.stores import formats
from holdfast.stores.log import slatedb as slate
from holdfast.stores.log.slatedb import SlateSpace, database, layout
from holdfast.stores.log.slatedb.binding import Caller, slatedb
from holdfast.stores.log.space import Space
from tests.stores.log.space_suite import SpaceSuite, blocking, keys, value

OPTIONS = StoreOptions(operation_timeout=20.0)
LARGE = os.urandom(300_000)


async def opened(folder: Path, **how: object) -> SlateSpace:
    return await SlateSpace.open(slate.local(folder), OPTIONS, **how)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
async def space(folder: Path):
    space: Space = await opened(folder)
    yield space
    await space.close()


class TestSlateSpace(SpaceSuite):
    """All of the suite."""


def rows(space: SlateSpace, prefix: bytes) -> list[bytes]:
    """What SlateDB holds, without us."""

    async def read() -> list[bytes]:
        database = space._core.committer.state.database
        return [row.key async for row in database._rows(prefix)]

    return Caller()(read())


async def test_everything_is_there_again_after_closing(folder: Path):
    space = await opened(folder)
    objects = {"q/small": b"s", "q/empty": b"", "q/middle": os.urandom(5000), "q/large": LARGE, "q/ü": b"u"}
    for key, data in objects.items():
        await space.transact(lambda tx, key=key, data=data: tx.put(key, data))
    await space.write_file("q/file", LARGE[::-1])
    await space.transact(lambda tx: (tx.adopt("q/file"), tx.put("q/middle", b"m" * 7000)))
    objects |= {"q/file": LARGE[::-1], "q/middle": b"m" * 7000}
    before = await space.read(lambda view: {key: view.get(key) for key in view.list("")})
    now = space.clock()
    await space.close()
    again = await opened(folder)
    found = await again.read(lambda view: {key: view.get(key) for key in view.list("")})
    assert {key: each.data for key, each in found.items()} == objects
    assert found == before
    assert again.clock() >= now
    await again.close()


async def test_what_is_deleted_or_replaced_leaves_no_bytes(folder: Path):
    space = await opened(folder)
    await space.transact(lambda tx: [tx.create(f"a/{n}", LARGE) for n in range(3)])
    await space.transact(lambda tx: tx.put("a/0", b"small now"))
    await space.transact(lambda tx: tx.delete("a/1"))
    await space.transact(lambda tx: (tx.delete("a/2"), tx.create("a/2", LARGE)))
    assert (await space.read(value("a/2"))) == LARGE
    await space.transact(lambda tx: tx.put("b", b""))  # takes away what the ones before left
    assert len(await asyncio.to_thread(rows, space, b"d")) == 1
    assert await asyncio.to_thread(rows, space, layout.GONE) == []
    await space.close()


async def test_files_of_a_dead_process_go_when_it_is_opened_again(folder: Path):
    space = await opened(folder, alone=True)
    await space.write_file("a/1", LARGE)
    await space.transact(lambda tx: tx.put("b", b"makes it durable"))
    assert len(await asyncio.to_thread(rows, space, b"d")) == 1
    second = await opened(folder, alone=True)  # as after a crash: the first never said goodbye
    with pytest.raises(Unavailable, match="write it again"):
        await second.transact(lambda tx: tx.adopt("a/1"))
    await second.transact(lambda tx: tx.put("b", b""))
    assert await asyncio.to_thread(rows, second, b"d") == []
    await space.close()
    await second.close()


async def test_reading_does_not_wait_for_a_commit_and_sees_only_what_is_durable(folder: Path, space: SlateSpace):
    await space.transact(lambda tx: (tx.put("head", b"1" * 1000), tx.create("block", LARGE)))
    database = space._core.committer.state.database
    write, seen = database.write, []

    def stopped(operations, **how):
        # SlateDB has everything, nobody has been told yet.
        write(operations, **how)
        loop = asyncio.new_event_loop()
        seen.append(loop.run_until_complete(space.read(lambda view: (view.get("head").data, view.get("block").data))))
        loop.close()

    database.write = stopped
    try:
        await space.transact(lambda tx: (tx.put("head", b"2"), tx.delete("block")))
    finally:
        database.write = write
    assert seen == [(b"1" * 1000, LARGE)]
    assert await space.read(lambda view: (view.get("head").data, view.get("block"))) == (b"2", None)


async def test_brokers_of_one_process_share_the_database(folder: Path):
    first, second = await opened(folder), await opened(folder)
    await first.transact(lambda tx: tx.put("a", b"1"))
    assert await second.read(value("a")) == b"1"
    watching = asyncio.create_task(second.watch("t", 10))
    await asyncio.sleep(0)
    await first.transact(lambda tx: tx.signal("t"))
    assert await watching
    await first.close()
    await second.transact(lambda tx: tx.put("a", b"2"))
    with pytest.raises(Unavailable, match="closed"):
        await first.read(keys())
    await second.close()


async def test_a_second_writer_fences_the_first(folder: Path):
    first = await opened(folder, alone=True)
    await first.transact(lambda tx: tx.put("a", b"1"))
    second = await opened(folder, alone=True)
    for _ in range(3):  # for good: it never takes the database back
        for call in (
            first.transact(lambda tx: tx.put("a", b"old")),
            first.read(value("a")),
            first.write_file("b", LARGE),
            asyncio.to_thread(blocking, first, lambda tx: tx.put("a", b"old")),
        ):
            with pytest.raises(Fenced, match="another process has opened"):
                await call
    await second.transact(lambda tx: tx.put("c", b"2"))
    assert await second.read(keys()) == ["a", "c"]
    assert await second.read(value("a")) == b"1"
    await first.close()
    await second.transact(lambda tx: tx.put("c", b"3"))
    await second.close()


async def test_an_idle_owner_learns_that_it_is_fenced(folder: Path):
    first = await opened(folder, alone=True)
    second = await opened(folder, alone=True)

    async def until_fenced():
        while True:  # a worker with nothing to do only looks
            await first.transact(keys())
            await asyncio.sleep(0.05)

    with pytest.raises(Fenced):
        await asyncio.wait_for(until_fenced(), 15)
    await first.close()
    await second.close()


async def test_a_disk_that_refuses_is_unavailable_and_the_store_recovers(folder: Path, space: SlateSpace):
    await space.transact(lambda tx: tx.put("before", b"1"))
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(Unavailable, match=r"could not do it|SlateDB has stopped"):
            await space.transact(lambda tx: tx.create("large", os.urandom(4 << 20)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    async def written() -> None:
        while True:
            try:
                return await space.transact(lambda tx: tx.put("after", b"2"))
            except Unavailable:
                await asyncio.sleep(0.1)

    await asyncio.wait_for(written(), 15)
    assert await space.read(value("before")) == b"1"
    assert await space.read(value("after")) == b"2"


async def test_a_full_disk_is_called_so(space: SlateSpace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(database, "_FULL", 1 << 62)  # as if nothing were free
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(Unavailable, match=r"the disk of .* is full, \d+ MiB are free: make room"):
            await space.transact(lambda tx: tx.create("large", os.urandom(4 << 20)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def test_who_waits_behind_a_full_disk_is_told_so(space: SlateSpace, monkeypatch: pytest.MonkeyPatch):
    """SlateDB tries for some seconds before it gives up; others may have no more time than that."""
    monkeypatch.setattr(database, "_FULL", 1 << 62)
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        first = asyncio.ensure_future(space.transact(lambda tx: tx.create("large", os.urandom(4 << 20))))
        await asyncio.sleep(0.5)
        with pytest.raises(Unavailable, match=r"no turn .* within 1 s; nothing was done \(the disk of .* is full"):
            await space.transact(lambda tx: tx.put("small", b""), deadline=1.0)
        with pytest.raises(Unavailable, match="is full"):
            await first
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def test_after_a_failure_the_database_is_not_taken_from_a_new_owner(folder: Path):
    first = await opened(folder, alone=True)
    first._core.committer.state.database.failed = Unavailable("told to fail")
    second = await opened(folder, alone=True)
    with pytest.raises(Fenced):
        await first.transact(lambda tx: tx.put("a", b"old"))
    await second.transact(lambda tx: tx.put("a", b"new"))
    await first.close()
    await second.close()


async def test_a_step_that_waits_too_long_is_unavailable(space: SlateSpace):
    def slow(_):
        import time

        time.sleep(0.3)

    with pytest.raises(Unavailable, match="did not finish"):
        await space.transact(slow, deadline=0.05)


async def test_flushes_are_an_interval_apart(folder: Path):
    options = StoreOptions(flush_interval=0.2)
    space = await SlateSpace.open(slate.local(folder), options)
    loop = asyncio.get_running_loop()
    await space.transact(lambda tx: tx.put("a", b""))
    began = loop.time()
    for _ in range(2):
        await asyncio.gather(*[space.transact(lambda tx, n=n: tx.put(f"a/{n}", b"")) for n in range(50)])
    assert 0.35 < loop.time() - began < 5.0
    await space.close()


async def test_used_after_a_fork(space: SlateSpace):
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(space.read(keys()))
            os._exit(1)
        except ConfigError:
            os._exit(0)
        finally:
            os._exit(2)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert await space.read(keys()) == []


async def raw(folder: Path, **put: bytes) -> None:
    """A SlateDB database made by something else."""
    os.makedirs(folder)
    place = slate.local(folder)
    database = await slatedb().DbBuilder(place.path, place.object_store()).build()
    for key, data in put.items():
        await (await database.put(key.encode(), data)).await_durable()
    await database.shutdown()


async def test_a_database_of_something_else_is_refused(folder: Path):
    await raw(folder, theirs=b"1")
    with pytest.raises(ConfigError, match="of something else"):
        await opened(folder)


async def test_a_newer_format_is_refused(folder: Path):
    await raw(folder, mformat=b"99")
    with pytest.raises(StoreError, match=f"format 99, this Holdfast knows up to {formats.LOG}: upgrade"):
        await opened(folder)


async def test_a_damaged_row_is_an_error_and_not_a_guess(folder: Path):
    await raw(folder, mformat=b"1", kqueue=b"?")
    with pytest.raises(StoreError, match="damaged"):
        await opened(folder)


async def test_a_file_in_the_way(folder: Path):
    os.mknod(folder)
    with pytest.raises(ConfigError, match="is not a folder"):
        await opened(folder)


async def test_uninstall_removes_everything_of_ours(folder: Path):
    space = await opened(folder)
    assert any("create the SlateDB database" in step for step in await space.install(dry_run=False))
    await space.transact(lambda tx: tx.create("a", LARGE))
    await space.uninstall()
    assert os.listdir(folder.parent) == []
    os.makedirs(folder / "theirs")
    space = await opened(folder)
    await space.uninstall()
    assert os.listdir(folder) == ["theirs"]


async def test_uninstall_leaves_what_is_not_ours_and_says_so(folder: Path):
    space = await opened(folder)
    await space.transact(lambda tx: tx.create("a", LARGE))
    theirs = ["notes.txt", "slatedb/notes.txt", "slatedb/wal/notes.sst", "slatedb/theirs/00000000000000000001.sst"]
    theirs += ["slatedb/holdfast-synced.bak", "slatedb/torn/notes.txt"]
    for name in theirs:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")
    aside = folder / "slatedb" / "torn" / "boot-wal"
    aside.mkdir()
    (aside / "00000000000000000007.sst").write_text("ours")
    told = await space.uninstall()
    assert sorted(told) == sorted(f"file {folder / name}" for name in theirs)
    left = [os.path.join(below, name) for below, _, names in os.walk(folder) for name in names]
    assert sorted(left) == sorted(str(folder / name) for name in theirs)


async def test_doctor_says_what_is_promised(space: SlateSpace):
    lines = {line.name: line for line in await space.check()}
    assert "one process at a time" in lines["slatedb"].detail
    assert "synced by Holdfast" in lines["sync"].detail
    assert lines["binding"].state == "ok"


async def test_what_was_written_leaves_the_memory_before_64_mib(
    folder: Path, space: SlateSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SlateDB alone keeps it until then, or for 4,096 log files: under a small load for half an hour."""
    monkeypatch.setattr(database, "_TABLE_SECONDS", 0.0)
    for number in range(16):
        await space.transact(lambda tx, key=f"a/{number}": tx.put(key, LARGE))
    async with asyncio.timeout(20):
        while not any((folder / "slatedb" / "compacted").glob("*")):
            await asyncio.sleep(0.02)
    assert await space.read(value("a/0")) == LARGE
