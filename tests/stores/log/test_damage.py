"""Objects that cannot be read any more: named in a clear error, and out of the way of everything else."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast
from holdfast import admin
from holdfast.errors import Damaged
from holdfast.stores.log import damage, rows
from holdfast.stores.log.folder.files import Files
from tests.stores.log.damaged_places import Place, place

CHANGED = ("flipped", "truncated", "rubbish")
STORES = ("file", "memory", "s3")


@pytest.fixture(params=STORES)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Place]:
    with place("file", tmp_path) as made:
        yield made


async def fill(url: str, *calls: list[Any], **options: Any) -> list[list[str]]:
    """The ids of each call; every call is a block of its own."""
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs", **options)
        return [await queue.enqueue_many(values) for values in calls]


async def drained(queue: holdfast.Queue[Any], count: int) -> list[Any]:
    """The values of so many messages, completed."""
    found: list[Any] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            deliveries = await queue.dequeue_many(10, wait=1)
            found += [each.value for each in deliveries]
            await queue.complete_many(deliveries)
    return found


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not await condition():
            await asyncio.sleep(0.02)


def names_it(error: Damaged, key: str) -> bool:
    return error.queue == "jobs" and error.key == key and key in str(error) and "restore it from a backup" in str(error)


@pytest.mark.parametrize("kind", CHANGED)
@pytest.mark.parametrize("size", [1, 40], ids=["msgpack", "arrow"])
async def test_a_damaged_block_does_not_hold_up_the_others(
    where: Place, kind: str, size: int, caplog: pytest.LogCaptureFixture
):
    bad, good = await fill(where.url, [f"bad {n}" for n in range(size)], [f"good {n}" for n in range(25)])
    key = where.spoil("/inbox/", kind)
    with caplog.at_level(logging.ERROR, "holdfast"):
        async with holdfast.connect(where.url) as broker:
            queue = await broker.queue("jobs")
            assert sorted(await drained(queue, 25)) == sorted(f"good {n}" for n in range(25))

            async def all_dead() -> bool:
                return await queue.dead.count() == size

            await until(all_dead)
            assert [await queue.status(id) for id in bad] == ["dead"] * size
            assert [await queue.status(id) for id in good] == ["completed"] * 25
            record = await queue.get(bad[0])
            assert record is not None
            assert key in (record.error or "")
            assert record.headers[damage.HEADER] == key
            assert await queue.dequeue() is None
            await broker.maintain()
            listed = await queue.dead.list()
            assert [each.id for each in listed] == sorted(bad)
    assert key in caplog.text
    root = key.partition("/")[0]
    kept = [each for each in where.objects() if each.startswith(f"{root}/{damage.KEPT}")]
    assert kept == [key.replace(f"{root}/", f"{root}/{damage.KEPT}")]


@pytest.mark.parametrize("limit", [1, 10])
async def test_a_loop_that_ends_when_nothing_comes_gets_all_that_can_be_read(where: Place, limit: int):
    await fill(where.url, [f"bad {n}" for n in range(25)], [f"good {n}" for n in range(25)])
    where.spoil("/inbox/", "rubbish")
    found: list[Any] = []
    async with holdfast.connect(where.url) as broker, asyncio.timeout(20):
        queue = await broker.queue("jobs")
        while deliveries := await queue.dequeue_many(limit):
            found += [each.value for each in deliveries]
            await queue.complete_many(deliveries)
        assert sorted(found) == sorted(f"good {n}" for n in range(25))
        assert await queue.dequeue() is None
        assert await queue.dead.count() == 25


@pytest.mark.parametrize("kind", [*CHANGED, "missing"])
async def test_the_same_for_a_block_that_is_a_file(folder: Place, kind: str):
    bad, _ = await fill(folder.url, [os.urandom(1024).hex()] * 200, ["good"])
    key = folder.spoil("/inbox/", kind)
    async with holdfast.connect(folder.url) as broker:
        queue = await broker.queue("jobs")
        assert await drained(queue, 1) == ["good"]

        async def all_dead() -> bool:
            return await queue.dead.count() == 200

        await until(all_dead)
        await broker.maintain()
        assert key in ((await queue.get(bad[7])).error or "")
        assert (await queue.stats()).dead == 200


@pytest.mark.parametrize("want", [MemoryError, ImportError, holdfast.Unavailable])
async def test_what_this_process_lacks_is_no_damage(folder: Place, want: type, monkeypatch: pytest.MonkeyPatch):
    """A block that is too large for this machine, no pyarrow, or half of it: the messages wait for a better reader."""
    await fill(folder.url, ["whole"])
    decode = rows.decode

    def lacks(data: bytes) -> Any:
        if want is holdfast.Unavailable:
            return ModuleType("half of a library").ipc
        raise want("not here")

    async with holdfast.connect(folder.url) as broker:
        queue = await broker.queue("jobs")
        monkeypatch.setattr(rows, "decode", lacks)
        with pytest.raises(want):
            await queue.dequeue()
        monkeypatch.setattr(rows, "decode", decode)
        assert await drained(queue, 1) == ["whole"]
        assert await queue.dead.count() == 0


async def test_a_message_whose_file_is_gone_is_not_unknown(folder: Place):
    (ids,) = await fill(folder.url, [os.urandom(1024).hex()] * 200)
    key = folder.spoil("/inbox/", "missing")
    async with holdfast.connect(folder.url) as broker:
        queue = await broker.queue("jobs")
        assert await queue.status(ids[3]) == "pending"
        record = await queue.get(ids[3])
        assert record is not None
        assert key in (record.error or "")
        assert await queue.cancel(ids[3])
        assert (await queue.get(ids[3])).error == "cancelled"


async def test_a_block_that_is_gone_from_a_bucket_is_named_by_looks(tmp_path: Path):
    with place("s3", tmp_path) as bucket:
        async with holdfast.connect(bucket.url) as broker:
            queue = await broker.queue("jobs", max_attempts=1)
            ids = await queue.enqueue_many(range(20))
            assert await queue.dequeue(lease=0.2) is not None  # now a head has it
        key = bucket.spoil("/inbox/", "missing")
        async with holdfast.connect(bucket.url) as broker:
            queue = await broker.queue("jobs")
            record = await queue.get(ids[3])
            assert record is not None
            assert key in (record.error or "")

            async def all_dead() -> bool:
                assert await queue.dequeue_many(20) == []
                return (await queue.stats()).dead == 20

            await until(all_dead)
            listed = await queue.dead.list()  # most likely before they are written as dead letters
            assert [each.id for each in listed] == sorted(ids)
            assert all(key in (each.error or "") or each.attempts == 1 for each in listed)
            assert await queue.status(ids[0]) == "dead"


async def test_a_file_that_leaves_in_the_middle_of_a_look_is_no_damage(folder: Place, monkeypatch: pytest.MonkeyPatch):
    """Another process ends its last messages after the snapshot was taken: the next look finds them in the archive."""
    (ids,) = await fill(folder.url, [os.urandom(1024).hex()] * 200)
    async with holdfast.connect(folder.url) as broker, holdfast.connect(folder.url) as other:
        queue, there = await broker.queue("jobs"), await other.queue("jobs")
        read, loop, ended = Files.read, asyncio.get_running_loop(), asyncio.Event()

        async def end() -> None:
            await there.complete_many(await there.dequeue_many(200))
            await other.maintain()

        def late(self: Files, key: str) -> bytes | None:
            if threading.current_thread().name == "holdfast-read" and "/inbox/" in key and not ended.is_set():
                loop.call_soon_threadsafe(ended.set)
                asyncio.run_coroutine_threadsafe(end(), loop).result(20)
                while (found := read(self, key)) is not None:  # files go a moment after their rows
                    time.sleep(0.01)
                return found
            return read(self, key)

        monkeypatch.setattr(Files, "read", late)
        looking = asyncio.create_task(queue.status(ids[3]))
        assert await asyncio.wait_for(looking, 20) == "completed"
        assert ended.is_set()


async def test_a_worker_goes_on_and_does_not_spin(where: Place):
    await fill(where.url, [f"bad {n}" for n in range(30)], ["good", "better"])
    key = where.spoil("/inbox/", "rubbish")
    handled: list[str] = []
    died: list[str] = []
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        calls = 0
        claim = broker.store.claim

        async def counted(*args: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            return await claim(*args, **more)

        broker.store.claim = counted  # type: ignore[method-assign]
        broker.on("message.dead", lambda event: died.append(event["error"]))
        worker = queue.worker(handled.append, concurrency=4)
        await worker.start()

        async def done() -> bool:
            return len(handled) == 2 and await queue.dead.count() == 30

        await until(done)
        before = calls
        await asyncio.sleep(1.0)
        assert calls - before < 5
        await worker.stop()
    assert sorted(handled) == ["better", "good"]
    assert len(died) == 30
    assert all(key in error for error in died)


async def test_a_plain_dequeue_that_waits_gets_the_next_one(folder: Place):
    await fill(folder.url, [f"bad {n}" for n in range(3)], ["good"])
    folder.spoil("/inbox/", "rubbish")
    async with holdfast.connect(folder.url) as broker:
        queue = await broker.queue("jobs")
        delivery = await queue.dequeue(wait=5)
        assert delivery is not None
        assert delivery.value == "good"


async def test_damaged_dead_letters_are_listed_and_can_be_deleted(where: Place):
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        ids = await queue.enqueue_many(["a", "b", "c"])
        for delivery in await queue.dequeue_many(3):
            await delivery.kill("why")
        await broker.maintain()
    key = where.spoil("/dead/inbox/", "rubbish")
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        records = await queue.dead.list()
        assert [records[0].id, records[-1].id] == [ids[0], ids[-1]]
        assert all(key in (record.error or "") for record in records)
        await queue.enqueue("good")
        assert await drained(queue, 1) == ["good"]
        assert await queue.dead.purge() == 3


def no_count(key: str) -> str:
    """The name says everything but how many."""
    folder, _, name = key.rpartition("/")
    block, _, *rest = name.split("-")
    return f"{folder}/{'-'.join([block, 'x', *rest])}"


BAD_NAMES: dict[str, Callable[[str], str]] = {
    "no count": no_count,
    "cut": lambda key: key[: key.index("-")],
    "no id": lambda key: key[: key.rindex("/") + 1] + "0z" + key[key.rindex("/") + 3 :],
    "foreign": lambda key: key[: key.rindex("/") + 1] + ".DS_Store",
}


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("delay", [0, 0.05], ids=["inbox", "later"])
async def test_a_damaged_name_holds_up_nothing(where: Place, name: str, delay: float):
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        (lost,) = await queue.enqueue_many(["lost"], delay=delay)
    key = where.rename("/later/" if delay else "/inbox/", BAD_NAMES[name])
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        good = [*await queue.enqueue_many(range(5)), *[await queue.enqueue(n) for n in range(5, 10)]]
        later = await queue.enqueue(10, delay=0.1)
        assert [await queue.status(id) for id in good] == ["pending"] * 10
        assert sorted(await drained(queue, 11)) == list(range(11))
        assert await queue.dequeue() is None
        assert (await queue.stats()).pending == 0
        await broker.maintain()
        assert [await queue.status(id) for id in (*good, later)] == ["completed"] * 11
        if name in ("no count", "cut") and not delay:  # the name still tells whose messages these were
            with pytest.raises(Damaged) as failure:
                await queue.get(lost)
            assert names_it(failure.value, key)
        objects = next(check for check in await broker.check() if check.name == "objects")
        assert objects.state == "fail"
        assert key in objects.detail
    assert key in where.objects(), "whoever mends its name has everything"


@pytest.mark.parametrize("kind", CHANGED)
async def test_a_damaged_bundle_holds_up_no_claim(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture):
    """A call over two priorities on a bucket: its blocks are there, and what names them is not."""
    with place("s3", tmp_path) as bucket:
        async with holdfast.connect(bucket.url) as broker:
            queue = await broker.queue("jobs")
            await queue.enqueue_many([holdfast.Message("high", priority=9), holdfast.Message("low")])
        whole = bucket.objects()
        key = bucket.spoil(".bundle", kind)
        async with holdfast.connect(bucket.url) as broker:
            queue = await broker.queue("jobs")
            id = await queue.enqueue("good")
            with caplog.at_level(logging.ERROR, "holdfast"):
                assert await drained(queue, 1) == ["good"]
                assert await queue.dequeue() is None
            assert key in caplog.text
            assert await queue.status(id) == "completed"
            with pytest.raises(Damaged) as failure:
                await queue.stats()
            assert names_it(failure.value, key)
            objects = next(check for check in await broker.check() if check.name == "objects")
            assert key in objects.detail
        bucket.write(key, whole[key])
        async with holdfast.connect(bucket.url) as broker:
            assert await drained(await broker.queue("jobs"), 2) == ["high", "low"]


async def test_an_archive_file_with_a_damaged_name_holds_up_nothing(where: Place):
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        for value in range(2):
            id = await queue.enqueue(value)
            await (await queue.dequeue()).complete()
            await broker.store._log("jobs").flusher.flush()
    key = where.rename("/archive/", lambda key: key.replace(".parquet", ".parquet.part"))
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        assert [each.id for each in await queue.archive.list()] == [id]
        assert await queue.status(id) == "completed"
        await broker.maintain()
        objects = next(check for check in await broker.check() if check.name == "objects")
        assert objects.state == "fail"
        assert key in objects.detail


@pytest.mark.parametrize("kind", CHANGED)
async def test_a_damaged_head_is_named_by_every_call(where: Place, kind: str):
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        ids = await queue.enqueue_many([1, 2])
        await (await queue.dequeue()).complete()
    key = where.spoil("/head", kind)
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        for call in (queue.dequeue, lambda: queue.get(ids[1]), queue.stats, queue.purge):
            with pytest.raises(Damaged) as failure:
                await call()
            assert names_it(failure.value, key)
        await queue.enqueue(3)  # producers need no head


async def test_a_worker_on_a_damaged_head_waits_and_tells_once(folder: Place, caplog: pytest.LogCaptureFixture):
    async with holdfast.connect(folder.url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue(1)
        await (await queue.dequeue()).complete()
    key = folder.spoil("/head", "truncated")
    async with holdfast.connect(folder.url) as broker:
        worker = (await broker.queue("jobs")).worker(lambda value: None)
        with caplog.at_level(logging.WARNING, "holdfast.worker"):
            await worker.start()
            await asyncio.sleep(1.0)
            await worker.stop(grace=1)
    told = [record for record in caplog.records if "cannot claim" in record.message]
    assert len(told) == 1
    assert key in told[0].message


@pytest.mark.parametrize("kind", CHANGED)
async def test_damaged_options_are_named(where: Place, kind: str):
    await fill(where.url, [1])
    key = where.spoil("queues/jobs", kind)
    async with holdfast.connect(where.url) as broker:
        for call in (lambda: broker.queue("jobs"), broker.queues):
            with pytest.raises(Damaged) as failure:
                await call()
            assert names_it(failure.value, key)
        await (await broker.queue("others")).enqueue(1)


@pytest.mark.parametrize("kind", CHANGED)
async def test_a_damaged_archive_file_is_named_and_the_rest_goes_on(where: Place, kind: str):
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        for value in ("first", "second"):
            await queue.enqueue(value)
            await (await queue.dequeue()).complete()
            assert await queue.archive.count()
            await broker.maintain()
    key = where.spoil("/archive/", kind)
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        with pytest.raises(Damaged) as failure:
            await queue.archive.list()
        assert names_it(failure.value, key)
        assert await queue.archive.count() == 2
        await broker.maintain()
        await queue.enqueue("third")
        assert await drained(queue, 1) == ["third"]
        assert await queue.cleanup(older_than=3600) == 0
        assert await queue.archive.purge() >= 2
        assert await queue.archive.list() == []


async def test_small_files_are_merged_around_a_damaged_one(folder: Place):
    async with holdfast.connect(folder.url) as broker:
        queue = await broker.queue("jobs")
        for value in range(20):
            await queue.enqueue(value)
            await (await queue.dequeue()).complete()
            await broker.store._log("jobs").flusher.flush()
    folder.spoil("/archive/", "rubbish")
    async with holdfast.connect(folder.url) as broker:
        await broker.maintain()
    assert sum("/archive/" in key for key in folder.objects()) == 2


async def test_what_was_done_is_archived_although_its_block_is_gone(folder: Place):
    """Claimed and completed by one process; another, that never read the block, has to write the outcome."""
    (ids,) = await fill(folder.url, [f"{n}" * 2000 for n in range(200)])
    async with holdfast.connect(folder.url) as broker:
        queue = await broker.queue("jobs")
        await queue.complete_many(await queue.dequeue_many(150))
        await queue.complete_many(await queue.dequeue_many(10))
        key = folder.spoil("/inbox/", "missing")
        broker.store._cache.forget(key)
        await broker.maintain()
        stats = await queue.stats()
        assert (stats.completed, stats.archived) == (160, 160)
        assert await queue.status(ids[0]) == "completed"


async def test_bytes_that_lie_about_lengths_are_not_followed():
    """Offsets of Arrow that point outside of its buffers would be read as memory of the process."""
    data = bytearray(bytes(rows.encode(rows.Rows([b"x" * 50] * 100, "text/plain"))))
    at = bytes(data).index((50).to_bytes(4, "little") + (100).to_bytes(4, "little"))
    data[at : at + 4] = (1 << 30).to_bytes(4, "little")
    key = "jobs@1/inbox/255/" + "0" * 32 + "-100-0-0-0"
    for decode in (rows.decode, rows.columns):
        with pytest.raises(Damaged, match="jobs"):
            damage.read_block(key, decode, bytes(data))


@pytest.mark.parametrize("part", ["/inbox/", "/head", "/archive/", "queues/jobs"])
async def test_doctor_names_what_is_damaged(where: Place, part: str):
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue("done")
        await (await queue.dequeue()).complete()
        await broker.maintain()
        await queue.enqueue("waits")
    (sound,) = (check for check in await admin.doctor(where.url) if check.name == "objects")
    assert sound.state == "ok"
    key = where.spoil(part, "rubbish")
    checks = await admin.doctor(where.url)
    (found,) = (check for check in checks if check.name == "objects")
    assert found.state == "fail"
    assert key in found.detail


async def test_doctor_names_what_was_set_aside(folder: Place):
    await fill(folder.url, ["bad"])
    folder.spoil("/inbox/", "rubbish")
    async with holdfast.connect(folder.url) as broker:
        queue = await broker.queue("jobs")
        assert await queue.dequeue() is None
        await broker.maintain()
    (found,) = (check for check in await admin.doctor(folder.url) if check.name == "objects")
    assert found.state == "warn"
    assert damage.KEPT in found.detail
