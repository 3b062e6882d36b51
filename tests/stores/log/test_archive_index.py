"""On a bucket a scrub misses an archive file that is gone, and none that was removed on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

import holdfast
from holdfast import admin
from holdfast.stores.base import DEAD
from holdfast.stores.log import archive_index, maintenance
from holdfast.stores.log.head import codec
from holdfast.stores.log.head.state import Beyond, Head
from tests.stores.log.damaged_places import Place, place

FILE = "jobs@12345678/archive/date=2026-11-{day}/{id}-{id}-{rows}-{id}.parquet"


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Place]:
    with place("s3", tmp_path) as made:
        yield made


async def ended(broker: holdfast.Broker, count: int) -> list[str]:
    """So many messages go into an archive file of their own."""
    queue = await broker.queue("jobs")
    ids = await queue.enqueue_many(range(count))
    for message in await queue.dequeue_many(count):
        await message.complete()
    await broker.store.discard("jobs", "archive", [])  # flushes
    return ids


def files(bucket: Place) -> list[str]:
    return sorted(key for key in bucket.objects() if key.endswith(".parquet"))


async def wrong(broker: holdfast.Broker) -> list[str]:
    return [f"{each.key} {each.problem}" for each in (await admin.scrub(broker)).wrong]


@pytest.mark.parametrize("shards", [1, 3])
async def test_a_file_that_is_gone_is_missed(bucket: Place, shards: int) -> None:
    async with holdfast.connect(bucket.url) as broker:
        await broker.queue("jobs", shards=shards)
        await ended(broker, 3)
        await ended(broker, 4)
        assert await wrong(broker) == []
        lost = next(key for key in files(bucket) if "-4-" in key)
        bucket.write(lost, None)
        [told] = await wrong(broker)
        assert told.startswith(lost.rpartition("/")[0] + "/ 4 messages of this day are missing")
        await ended(broker, 9)
        assert len(await wrong(broker)) == 1
    [line] = [check for check in await admin.doctor(bucket.url) if check.name == "scrub"]
    assert line.state == "fail"


async def test_a_restored_file_that_is_gone_is_missed(bucket: Place, tmp_path: Path) -> None:
    async with holdfast.connect(tmp_path / "first") as broker:
        await ended(broker, 3)
        await ended(broker, 4)
    await holdfast.backup(tmp_path / "first", tmp_path / "backup")
    await holdfast.restore(tmp_path / "backup", bucket.url)
    async with holdfast.connect(bucket.url) as broker:
        assert await wrong(broker) == []
        await ended(broker, 5)
        assert await wrong(broker) == []
        bucket.write(next(key for key in files(bucket) if "-4-" in key), None)
        assert "/ 4 messages of this day are missing" in (await wrong(broker))[0]


async def test_what_is_removed_on_purpose_is_not_missed(bucket: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with holdfast.connect(bucket.url) as broker:
        queue = await broker.queue("jobs")
        ids = await ended(broker, 3)
        await ended(broker, 4)
        await queue.archive.delete(ids[:2])  # a smaller file comes instead
        assert (len(files(bucket)), await wrong(broker)) == (2, [])
        await queue.archive.delete(ids)
        assert (len(files(bucket)), await wrong(broker)) == (1, [])
        await ended(broker, 5)
        monkeypatch.setattr(maintenance, "_MERGE_FROM", 2)
        log = broker.store._log("jobs")  # type: ignore[attr-defined]  # of the engine
        monkeypatch.setattr(log.window, "merge_after_s", -1.0)
        await broker.maintain()
        assert (len(files(bucket)), await wrong(broker)) == (1, [])
        bucket.write(files(bucket)[0], None)
        assert "9 messages" in (await wrong(broker))[0]
        await ended(broker, 6)
        await queue.archive.purge()
        assert (files(bucket), "9 messages" in (await wrong(broker))[0]) == ([], True)


async def test_retention_is_no_loss(bucket: Place) -> None:
    async with holdfast.connect(bucket.url) as broker:
        queue = await broker.queue("jobs", archive_days=1e-6)
        await ended(broker, 3)
        await asyncio.sleep(0.1)  # that is their retention
        await broker.maintain()
        assert (files(bucket), await wrong(broker)) == ([], [])
        await broker.configure_queue("jobs", archive_days=7)
        assert await wrong(broker) == []
        assert (await queue.stats()).completed == 3


async def test_dead_letters_that_end_well_are_counted_too(bucket: Place) -> None:
    async with holdfast.connect(bucket.url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue_many(range(3))
        for message in await queue.dequeue_many(3):
            await message.kill("enough")
        await broker.store.discard("jobs", "archive", [])
        claims = await broker.store.claim("jobs" + DEAD, 3, 30.0)
        held = [holdfast.stores.records.Settlement(each.id, each.token, "complete") for each in claims.messages]
        assert await broker.store.settle("jobs" + DEAD, held) == ["ok"] * 3
        await broker.store.discard("jobs", "archive", [])
        assert (len(files(bucket)), await wrong(broker)) == (1, [])
        bucket.write(files(bucket)[0], None)
        assert "3 messages" in (await wrong(broker))[0]


async def test_what_is_quarantined_is_not_missed(bucket: Place) -> None:
    async with holdfast.connect(bucket.url) as broker:
        await broker.queue("jobs")
        await ended(broker, 3)
    bucket.spoil("/archive/", "flipped")
    async with holdfast.connect(bucket.url) as broker:
        assert len((await admin.scrub(broker, quarantine=True)).wrong) == 1
        assert (files(bucket), await wrong(broker)) == ([], [])


def test_a_head_counts_the_last_days() -> None:
    counts: dict[int, int] = {}
    for number in range(1, 31):
        key = FILE.format(day=f"{number:02}", id="0" * 32, rows=number)
        counts = archive_index.added(archive_index.added(counts, key), key)
    assert counts[date(2026, 11, 7).toordinal()] == 14
    assert len(counts) == 30
    old = {date(2020, 1, 1).toordinal() + number: 1 for number in range(100)}
    assert len(archive_index.added(old, FILE.format(day="01", id="0" * 32, rows=1))) == archive_index._DAYS


async def test_a_folder_needs_no_index(tmp_path: Path) -> None:
    with place("file", tmp_path) as where:
        async with holdfast.connect(where.url) as broker:
            ids = await ended(broker, 3)
            await (await broker.queue("jobs")).archive.delete(ids[:1])
        assert not [key for key in where.objects() if key.endswith("/removed")]
        where.write(next(key for key in where.objects() if "/archive/" in key), None)
        async with holdfast.connect(where.url) as broker:
            assert "gone" in (await wrong(broker))[0]


def test_a_head_that_counts_is_refused_by_earlier_versions() -> None:
    head = Head(beyond=Beyond(forgets=1, archived={739_000: 5}))
    data = codec.HeadWriter().encode(head)
    assert codec.decode(data).beyond == head.beyond
    assert (data[1], codec.HeadWriter().encode(Head(beyond=Beyond(forgets=1)))[1]) == (codec.FORMAT, codec.LATE)
