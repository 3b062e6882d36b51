"""A head, options or an identity that is gone: said, never taken for something new, so that nothing runs again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import holdfast
from holdfast import admin
from holdfast.errors import Damaged, QueueNotFound, UnsafeStore
from holdfast.stores.base import DEAD
from holdfast.stores.log import sums
from tests.stores.log.damaged_places import Place, place


@pytest.fixture(params=["file", "memory", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Place]:
    with place("s3", tmp_path) as made:
        yield made


async def filled(url: str, **options: int) -> None:
    """Two are done, one is dead, one is held, two wait."""
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs", **options)
        await queue.enqueue_many(range(6))
        for message in await queue.dequeue_many(2):
            await message.complete()
        for message in await queue.dequeue_many(1):
            await message.kill("enough")
        await queue.dequeue(lease=3600)
        await broker.store.discard("jobs", "archive", [])


def changed(where: Place, key: str, **fields: object) -> None:
    """Options as another version, or another store, has written them."""
    data = where.objects()[key]
    sealed = sums.is_sealed(key, data)
    new = msgspec.json.encode(msgspec.json.decode(data[:-8] if sealed else data) | fields)
    where.write(key, sums.seal(key, new) if sealed else new)


async def test_nothing_is_delivered_without_the_head(where: Place) -> None:
    await filled(where.url)
    key = next(key for key in where.objects() if key.endswith("/head") and "/dead/" not in key)
    where.write(key, None)
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        for call in (queue.dequeue, queue.stats, broker.maintain, broker.stats):
            with pytest.raises(
                Damaged, match=r"/head of queue 'jobs' is damaged .it is gone.*: restore it from a backup"
            ):
                await call()
        wrong = [each.problem for each in (await admin.scrub(broker)).wrong if each.key == key]
        assert len(wrong) == 1
        assert "missing" in wrong[0]
    assert key not in where.objects()
    [line] = [check for check in await admin.doctor(where.url) if check.name == "objects"]
    assert (line.state, key in line.detail) == ("fail", True)


async def test_a_queue_without_its_head_can_be_deleted(where: Place) -> None:
    await filled(where.url)
    where.write(next(key for key in where.objects() if key.endswith("/head") and "/dead/" not in key), None)
    async with holdfast.connect(where.url) as broker:
        with pytest.raises(Damaged):
            await broker.delete_queue("jobs")
        await broker.delete_queue("jobs", force=True)
        queue = await broker.queue("jobs")
        await queue.enqueue(1)
        assert (await queue.dequeue()) is not None
    assert [key for key in where.objects() if "jobs@" in key and key.endswith("/head")] != []


async def test_the_queue_goes_on_without_the_head_of_its_dead_letters(where: Place) -> None:
    await filled(where.url)
    where.write(next(key for key in where.objects() if key.endswith("/dead/head")), None)
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        for message in await queue.dequeue_many(10):
            await message.complete()
        with pytest.raises(Damaged, match="/dead/head"):
            await broker.store.claim("jobs" + DEAD, 1, 1.0)
        with pytest.raises(Damaged, match="/dead/head"):
            await queue.dead.replay()


async def test_a_queue_of_an_earlier_version_tells_by_its_archive(where: Place) -> None:
    await filled(where.url)
    changed(where, "queues/jobs", has_heads=False, store="")
    where.write(next(key for key in where.objects() if key.endswith("/head") and "/dead/" not in key), None)
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        with pytest.raises(Damaged, match="it is gone"):
            await queue.dequeue()


@pytest.mark.parametrize("shards", [1, 3])
async def test_upkeep_gives_heads_to_a_queue_of_an_earlier_version(bucket: Place, shards: int) -> None:
    async with holdfast.connect(bucket.url) as broker:
        await (await broker.queue("jobs", shards=shards)).enqueue(1)
    heads = [key for key in bucket.objects() if key.endswith("/head")]
    assert len(heads) == shards + 1
    for key in heads:
        bucket.write(key, None)
    changed(bucket, "queues/jobs", has_heads=False, store="")
    async with holdfast.connect(bucket.url) as broker:
        queue = await broker.queue("jobs")
        await broker.maintain()
        assert (await queue.stats()).pending == 1
    assert sorted(key for key in bucket.objects() if key.endswith("/head")) == sorted(heads)
    bucket.write(heads[0], None)
    async with holdfast.connect(bucket.url) as broker:
        with pytest.raises(Damaged, match="it is gone"):
            await (await broker.queue("jobs")).stats()


async def test_options_that_are_gone_are_not_made_anew(bucket: Place) -> None:
    await filled(bucket.url)
    bucket.write("queues/jobs", None)
    async with holdfast.connect(bucket.url) as broker:
        with pytest.raises(
            Damaged, match=r"queues/jobs of queue 'jobs' is damaged .it is gone, but objects of the queue"
        ):
            await broker.queue("jobs")
        with pytest.raises(QueueNotFound):
            await broker.queue("jobs", create=False)
        await broker.queue("job")  # whose objects would begin with another text
    assert "queues/jobs" not in bucket.objects()


async def test_options_of_another_store_are_refused(where: Place) -> None:
    if where.url.startswith("memory"):
        pytest.skip("nothing of it can lie elsewhere")
    await filled(where.url)
    changed(where, "queues/jobs", store="0123456789abcdef")
    async with holdfast.connect(where.url) as broker:
        queue = await broker.queue("jobs")
        for call in (queue.dequeue, queue.stats):
            with pytest.raises(UnsafeStore, match="queue 'jobs' is of the store 0123456789abcdef, this is"):
                await call()
        assert "queues/jobs" in [each.key for each in (await admin.scrub(broker)).wrong]


async def test_a_bucket_that_lost_its_identity_stays_the_same_store(bucket: Place) -> None:
    await filled(bucket.url)
    before = msgspec.json.decode(bucket.objects()["~identity"])
    bucket.write("~identity", None)
    async with holdfast.connect(bucket.url) as broker:
        queue = await broker.queue("jobs")
        assert len(await queue.dequeue_many(10)) == 2
    after = msgspec.json.decode(bucket.objects()["~identity"])
    assert [after[name] for name in ("store_id", "format")] == [before[name] for name in ("store_id", "format")]


async def test_a_bucket_with_messages_alone_is_no_new_store(bucket: Place) -> None:
    await filled(bucket.url)
    for key in ("~identity", "queues/jobs"):
        bucket.write(key, None)
    with pytest.raises(Damaged, match=r"has objects of queues .* but no options of any"):
        await holdfast.connect(bucket.url)
    assert "~identity" not in bucket.objects()
