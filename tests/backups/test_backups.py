"""Backup, restore and move as users call them: between kinds of store, interrupted, and with what cannot be."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import ConfigError, Damaged, QueueExists, StoreError
from holdfast.schedules import Mark
from holdfast.stores.scheduling import Fire, Scheduled
from holdfast.testing.contract.backups import must_be_alike, records
from tests.cli_runner import Cli
from tests.servers import nats as nats_servers
from tests.stores.log import damaged_places
from tests.stores.log.bucket.fixtures import Place
from tests.stores.postgres.fixtures import Database


async def fill(url: str) -> None:
    """Some messages in every state, and schedules."""
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs", retry=holdfast.Fixed(900), max_attempts=3, lease=60)
        await queue.enqueue_many([{"n": n, "body": "x" * 50} for n in range(300)], priority=1)
        await queue.enqueue_many(
            [holdfast.Message({"m": n}, priority=n % 4, headers={"n": str(n)}, max_attempts=5) for n in range(40)]
        )
        await queue.enqueue_many([b"later"] * 20, delay=900)
        taken = await queue.dequeue_many(100)
        assert all(await queue.complete_many(taken[:50], [{"done": n} for n in range(50)]))
        for delivery in taken[50:60]:
            await delivery.fail("not now")
        for delivery in taken[60:70]:
            await delivery.kill("never")
        for delivery in taken[70:]:
            await delivery.release()
        await broker.queue("empty", dead_letter="jobs", archive_days=3)
        daily = holdfast.Schedule(
            name="daily", queue="jobs", cron="0 9 * * MON-FRI", tz="Europe/Berlin", value={"n": 1}
        )
        await broker.schedules.put(daily)
        assert broker.store.schedules is not None
        far = Mark(1_790_000_000.0, "an id", 3, 2, ((1_780_000_000.0, 1_780_086_400.0),))
        assert await broker.store.schedules.fire("jobs", [Fire("daily", Mark(), far, [])]) == [True]
        await broker.schedules.put(holdfast.Schedule(name="weekly", queue="empty", every=604800, overlap="skip"))
        await broker.schedules.pause("weekly", until=datetime(2090, 1, 1, tzinfo=UTC))


def killed(seconds: float, *words: str) -> None:
    """A command that is killed after so long, if it has not ended."""
    process = subprocess.Popen([sys.executable, "-m", "holdfast", *words])
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.kill()
    process.wait()


async def must_match(url: str, other: str) -> None:
    async with holdfast.connect(url) as one, holdfast.connect(other) as two:
        assert [(info.name, info.options, info.paused) for info in await one.queues()] == [
            (info.name, info.options, info.paused) for info in await two.queues()
        ]
        for info in await one.queues():
            await must_be_alike(one.store, info.name, two.store, info.name)
            was, now = await one.store.stats(info.name), await two.store.stats(info.name)
            counts = ("total", "pending", "delayed", "retry", "dead", "archived", "completed", "failed")
            assert [getattr(was, name) for name in counts] == [getattr(now, name) for name in counts]
        assert await all_of(one) == await all_of(two) != []


async def all_of(broker: holdfast.Broker) -> list[Scheduled]:
    """Schedules and their marks."""
    assert broker.store.schedules is not None
    return await broker.store.schedules.all()


@pytest.fixture
def nats_url() -> Iterator[str]:
    pytest.importorskip("nats", reason="the extra nats is not installed")
    with nats_servers.Server() as server:
        yield server.url


@pytest.mark.timeout(240)
async def test_round_through_all_kinds_of_store(tmp_path: Path, postgres: Database, s3: Place, nats_url: str) -> None:
    """File, PostgreSQL, a bucket, NATS and back: the same ids, values, states and counts."""
    urls = [f"file://{tmp_path}/first", postgres.url, s3.url, nats_url, f"file://{tmp_path}/last"]
    await fill(urls[0])
    for number, (source, target) in enumerate(itertools.pairwise(urls)):
        await holdfast.backup(source, tmp_path / f"backup{number}")
        await holdfast.restore(tmp_path / f"backup{number}", target)
        await must_match(urls[0], target)


async def test_backup_in_a_bucket(tmp_path: Path, s3: Place) -> None:
    await fill(f"{tmp_path}/store")
    made = await holdfast.backup(f"{tmp_path}/store", s3.url)
    again = await holdfast.backup(f"{tmp_path}/store", s3.url)
    assert made.new_files == made.files
    assert (again.number, again.new_files) == (2, 0)
    with pytest.raises(ConfigError, match="places of their own"):
        await holdfast.restore(s3.url, s3.url)
    [first, *_] = sorted(each["path"] for page in s3.driver().list("data") for each in page)
    s3.driver().delete(first)
    assert (await holdfast.backup(f"{tmp_path}/store", s3.url)).repaired == 1
    await holdfast.restore(s3.url, f"{tmp_path}/restored")
    await must_match(f"{tmp_path}/store", f"{tmp_path}/restored")


async def test_backup_below_its_bucket_is_refused(tmp_path: Path, s3: Place) -> None:
    path, _, query = s3.url.partition("?")
    async with holdfast.connect(s3.url) as broker:
        await broker.queue("jobs")
    with pytest.raises(ConfigError, match="inside the store"):
        await holdfast.backup(s3.url, f"{path}/backup?{query}")


@pytest.mark.parametrize("way", ["flipped", "cut", "gone"])
async def test_a_second_backup_does_not_rely_on_damaged_files(tmp_path: Path, way: str) -> None:
    """Each file that it uses again is there; those that are not are written again, for the earlier backup too."""
    store, target = f"{tmp_path}/store", tmp_path / "target"
    await fill(store)
    first = await holdfast.backup(store, target)
    files = sorted((target / "data").iterdir())
    for path in files:
        data = path.read_bytes()
        if way == "gone":
            path.unlink()
        else:
            path.write_bytes(data[:-9] if way == "cut" else data[:60] + bytes([data[60] ^ 1]) + data[61:])
    with pytest.raises(Damaged, match="nothing was restored"):
        await holdfast.restore(target, f"{tmp_path}/never")
    second = await holdfast.backup(store, target)
    assert (second.repaired, second.bytes) == (len(files), first.bytes)
    for number in (1, 2):
        await holdfast.restore(target, f"{tmp_path}/restored{number}", number=number)
        await must_match(store, f"{tmp_path}/restored{number}")
    assert (await holdfast.backup(store, target)).repaired == 0


@pytest.mark.parametrize("store", ["file", "s3"])
async def test_what_is_gone_is_named(tmp_path: Path, store: str) -> None:
    """Not as something that changes: no plan will find it."""
    with damaged_places.place(store, tmp_path) as where:
        async with holdfast.connect(where.url) as broker:
            queue = await broker.queue("jobs")
            await queue.enqueue_many(["x" * 9000] * 40)
            await queue.enqueue_many([1, 2, 3], priority=3)
            await (await queue.dequeue_many(1))[0].complete()
            await broker.store.discard("jobs", "archive", [])  # flushes
            await queue.dequeue_many(10)
        for part in (".parquet", "/inbox/") if store == "file" else ("/inbox/",):  # no plan names a bucket's archive
            key, data = next((key, data) for key, data in where.objects().items() if part in key and len(data) > 900)
            where.write(key, None)
            with pytest.raises(Damaged, match="gone"):
                await holdfast.backup(where.url, tmp_path / "target")
            if store == "file":
                (tmp_path / "store" / key).write_bytes(data)


async def test_a_damaged_manifest_does_not_prevent_the_next_backup(tmp_path: Path) -> None:
    store, target = f"{tmp_path}/store", tmp_path / "target"
    await fill(store)
    await holdfast.backup(store, target)
    await holdfast.backup(store, target)
    (target / "manifest-000002.json").write_bytes(b"")
    with pytest.raises(Damaged, match=r"--number takes another \(1\)"):
        await holdfast.restore(target, f"{tmp_path}/restored")
    made = await holdfast.backup(store, target)
    assert (made.number, made.lost, made.new_files) == (3, [2], 0)
    await holdfast.restore(target, f"{tmp_path}/restored")
    await must_match(store, f"{tmp_path}/restored")


async def test_second_backup_copies_what_is_new(tmp_path: Path) -> None:
    store, target = f"{tmp_path}/store", tmp_path / "target"
    await fill(store)
    first = await holdfast.backup(store, target)
    async with holdfast.connect(store) as broker:
        await (await broker.queue("jobs")).enqueue("new")
    second = await holdfast.backup(store, target)
    assert second.messages == first.messages + 1
    assert 0 < second.new_bytes < first.new_bytes / 3
    await holdfast.restore(target, f"{tmp_path}/old", number=1)
    async with holdfast.connect(f"{tmp_path}/old") as broker:
        assert (await broker.store.stats("jobs")).total == first.messages


async def test_move_keeps_everything_and_pauses_the_first(tmp_path: Path) -> None:
    first, second = f"{tmp_path}/first", f"slatedb+file://{tmp_path}/second"
    pytest.importorskip("slatedb", reason="the extra slatedb is not installed")
    await fill(first)
    moved = await holdfast.move(first, second)
    assert moved.queues == ["empty", "jobs"]
    async with holdfast.connect(first) as one, holdfast.connect(second) as two:
        assert [info.paused for info in await one.queues()] == [True, True]
        assert [info.paused for info in await two.queues()] == [False, False]
        await must_be_alike(one.store, "jobs", two.store, "jobs")
        assert await all_of(one) == await all_of(two) != []


async def test_move_refuses_messages_in_hand_and_changes_nothing(tmp_path: Path) -> None:
    async with holdfast.connect(tmp_path / "first") as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue(1)
        await queue.dequeue()
        with pytest.raises(StoreError, match="in hand"):
            await holdfast.move(tmp_path / "first", tmp_path / "second")
        assert [info.paused for info in await broker.queues()] == [False]
    async with holdfast.connect(tmp_path / "second") as broker:
        assert await broker.queues() == []


async def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    await fill(f"{tmp_path}/store")
    with pytest.raises(ConfigError, match="there is no store"):
        await holdfast.backup(f"{tmp_path}/stroe", tmp_path / "target")
    assert not (tmp_path / "stroe").exists()
    async with holdfast.connect(tmp_path / "new"):
        pass
    with pytest.raises(ConfigError, match="has no queues: there is nothing to back up"):
        await holdfast.backup(tmp_path / "new", tmp_path / "target")
    (tmp_path / "new" / "holdfast.db").unlink()
    with pytest.raises(Damaged, match="its database is gone"):
        await holdfast.backup(tmp_path / "new", tmp_path / "target")
    assert not (tmp_path / "target").exists()
    with pytest.raises(ConfigError, match="inside the store"):
        await holdfast.backup(f"{tmp_path}/store", tmp_path / "store" / "backup")
    with pytest.raises(ConfigError, match="cannot hold a backup"):
        await holdfast.backup(f"{tmp_path}/store", "postgresql://db/target")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match=r"something else \(letter.txt\)"):
        await holdfast.backup(f"{tmp_path}/store", tmp_path / "full")
    with pytest.raises(StoreError, match="no backup"):
        await holdfast.restore(tmp_path / "full", tmp_path / "other")
    await holdfast.backup(f"{tmp_path}/store", tmp_path / "target")
    with pytest.raises(QueueExists, match="'empty', 'jobs'"):
        await holdfast.restore(tmp_path / "target", f"{tmp_path}/store")
    with pytest.raises(StoreError, match="it has 1"):
        await holdfast.restore(tmp_path / "target", f"{tmp_path}/other", number=2)
    with pytest.raises(ConfigError, match="prefix"):
        await holdfast.restore(tmp_path / "target", f"{tmp_path}/other", prefix="a/b")
    for place in ("target", "target/below", "."):
        with pytest.raises(ConfigError, match="places of their own"):
            await holdfast.restore(tmp_path / "target", tmp_path / place)
    assert sorted(each.name for each in (tmp_path / "target").iterdir()) == ["data", "manifest-000001.json"]
    manifest = tmp_path / "target" / "manifest-000001.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"paused": false', b'"paused":  true', 1))
    with pytest.raises(Damaged, match=r"manifest-000001\.json"):
        await holdfast.restore(tmp_path / "target", f"{tmp_path}/other")


@pytest.mark.parametrize("seconds", [0.4, 0.8, 1.2, 1.6])
async def test_killed_backup_leaves_the_one_before(tmp_path: Path, seconds: float) -> None:
    store, target = f"{tmp_path}/store", tmp_path / "target"
    await fill(store)
    await holdfast.backup(store, target)
    async with holdfast.connect(store) as broker:
        await (await broker.queue("jobs")).enqueue_many(list(range(5000)))
    await asyncio.to_thread(killed, seconds, "backup", store, str(target))
    await holdfast.restore(target, f"{tmp_path}/between")
    async with holdfast.connect(f"{tmp_path}/between") as broker:
        assert (await broker.store.stats("jobs")).total in (360, 5360)
    await holdfast.backup(store, target)
    await holdfast.restore(target, f"{tmp_path}/after")
    await must_match(store, f"{tmp_path}/after")


def test_blocking_face_and_open_broker(tmp_path: Path) -> None:
    with holdfast.sync.connect(tmp_path / "store") as broker:
        broker.queue("jobs").enqueue(1)
        assert holdfast.sync.backup(broker, tmp_path / "target").messages == 1
    assert holdfast.sync.backup(tmp_path / "store", tmp_path / "target").number == 2
    assert holdfast.sync.restore(tmp_path / "target", tmp_path / "other", prefix="a-").queues == ["a-jobs"]
    with holdfast.sync.connect(tmp_path / "other") as broker:
        assert [each.visible_at for each in broker.queue("a-jobs").list("ready")] == [None]
    assert holdfast.sync.move(tmp_path / "store", tmp_path / "third").messages == 1


def test_command_line(tmp_path: Path) -> None:
    store, target = str(tmp_path / "store"), str(tmp_path / "target")
    cli = Cli(tmp_path / "store")
    cli("queue", "create", "jobs")
    cli("message", "send", "jobs", "1")
    assert "backup 1: 1 queues, 1 messages as of " in cli.out("backup", store, target)
    told = cli.json("backup", store, target)
    assert (told["number"], told["messages"], told["new_files"]) == (2, 1, 0)
    assert "jobs" in cli.error("restore", target, store)
    assert cli.json("restore", target, store, "--as", "old-")["queues"] == ["old-jobs"]
    cli("move", store, str(tmp_path / "other"))
    cli("backup", store, code=2)


async def test_interrupted_copy_is_not_seen_and_goes_with_the_next(tmp_path: Path) -> None:
    """What a killed restore left in a folder is removed."""
    store, target = f"{tmp_path}/store", tmp_path / "target"
    await fill(store)
    await holdfast.backup(store, target)
    await asyncio.to_thread(killed, 1.0, "restore", str(target), f"{tmp_path}/new")
    await holdfast.restore(target, f"{tmp_path}/new")
    await must_match(store, f"{tmp_path}/new")
    async with holdfast.connect(f"{tmp_path}/new") as broker:
        assert len(await records(broker.store, "jobs")) == 360
