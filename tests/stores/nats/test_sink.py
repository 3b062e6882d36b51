"""What Spark writes to NATS: invisible until it is published, all of it in one step, and once."""

from __future__ import annotations

import asyncio
import pickle
import time

import pyarrow as pa
import pytest

from holdfast.errors import ConfigError, StoreError
from holdfast.stores.nats import sink as sinks
from holdfast.stores.nats.faults import Lost
from holdfast.stores.nats.sink import NatsSink
from holdfast.testing.contract.base import eventually

QUEUE = "emails"


@pytest.fixture
async def sink(broker):
    await broker.queue(QUEUE)
    return NatsSink(broker.store)


def numbers(start, stop):
    return {"value": [b"%d" % n for n in range(start, stop)]}


async def stage(sink, *batches):
    stager = await sink.stager(QUEUE)
    for each in batches:
        await stager.add(pa.RecordBatch.from_pydict(each))
    return pickle.loads(pickle.dumps(await stager.finish()))


async def drained(broker, count):
    """Everything that a worker gets, by its number: so many messages, and then no more."""
    found = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += [int(each.payload) for each in (await broker.store.claim(QUEUE, 1000, 60, wait=5.0)).messages]
    found += [int(each.payload) for each in (await broker.store.claim(QUEUE, 1000, 60, wait=0.3)).messages]
    return sorted(found)


async def test_tasks_appear_together_and_not_before(broker, sink):
    staged = [each for start in (0, 2500, 5000) for each in await stage(sink, numbers(start, start + 2500))]
    assert [each.rows for each in staged] == [2500] * 3
    assert (await broker.store.claim(QUEUE, 10, 60)).messages == []
    assert await sink.publish(QUEUE, "query/a", 1, staged) is True
    assert await drained(broker, 7500) == list(range(7500))
    assert await sink.published(QUEUE, "query/a") == 1


async def test_a_batch_of_a_sink_is_published_once(broker, sink):
    """Also when its tasks ran again: what they staged the second time never counts."""
    first, again, second = [await stage(sink, numbers(start, start + 10)) for start in (0, 0, 10)]
    assert await sink.published(QUEUE, "a") is None
    assert await sink.publish(QUEUE, "a", 1, first)
    assert not await sink.publish(QUEUE, "a", 1, again)
    assert not await sink.publish(QUEUE, "a", 0, await stage(sink, numbers(0, 10)))
    assert not await sink.publish(QUEUE, "a", 1, first), "the same again"
    assert await sink.publish(QUEUE, "a", 2, second)
    assert await sink.publish(QUEUE, "b", 1, await stage(sink, numbers(20, 30)))
    assert await sink.publish(QUEUE, None, 0, await stage(sink, numbers(30, 40)))
    assert await sink.publish(QUEUE, "a", 3, [])
    assert await drained(broker, 40) == list(range(40))
    assert await sink.published(QUEUE, "a") == 3


async def test_what_a_failed_task_staged_is_not_in_the_way(broker, sink):
    stager = await sink.stager(QUEUE)
    await stager.add(pa.RecordBatch.from_pydict(numbers(0, 10)))
    await stager.abandon()
    await sink.discard(await stage(sink, numbers(10, 20)))
    assert await sink.sweep(QUEUE, 0.0) == 0, "nothing is left open"
    assert await sink.publish(QUEUE, "a", 1, await stage(sink, numbers(20, 30)))
    assert await drained(broker, 10) == list(range(20, 30))


async def test_orphans_are_swept(broker, sink):
    staged = await stage(sink, numbers(0, 10))
    assert await sink.sweep(QUEUE, 60.0) == 0
    await eventually(lambda: sink.sweep(QUEUE, 0.0), "the sweep")
    with pytest.raises(StoreError, match="staged messages are gone"):
        await sink.publish(QUEUE, "a", 1, staged)
    assert await sink.published(QUEUE, "a") is None
    assert await drained(broker, 0) == []


async def test_all_words_count_or_none(broker, sink):
    """One task's call was dropped: the others' messages must not appear without it."""
    kept, gone = await stage(sink, numbers(0, 10)), await stage(sink, numbers(10, 20))
    await sink.discard(gone)
    with pytest.raises(StoreError, match="staged messages are gone"):
        await sink.publish(QUEUE, "a", 1, kept + gone)
    assert await drained(broker, 0) == []
    assert await sink.publish(QUEUE, "a", 1, kept)
    assert await drained(broker, 10) == list(range(10))


@pytest.mark.parametrize("name", ["a", None])
@pytest.mark.parametrize("happened", [True, False])
async def test_an_answer_that_is_lost_is_found_out(broker, sink, monkeypatch, name, happened):
    staged = await stage(sink, numbers(0, 10))
    connection, lost = broker.store.connection, []
    store = connection.store

    async def losing(posts):
        if not lost:
            lost.append(len(posts))
            if happened:
                await store(posts)
            raise Lost("no answer in time")
        return await store(posts)

    monkeypatch.setattr(connection, "store", losing)
    assert await sink.publish(QUEUE, name, 1, staged) is True
    assert lost == [2 if name else 1]
    assert await drained(broker, 10) == list(range(10))


async def test_a_queue_made_anew_takes_nothing_old(broker, sink):
    staged = await stage(sink, numbers(0, 10))
    await broker.delete_queue(QUEUE, force=True)
    await broker.queue(QUEUE)
    with pytest.raises(StoreError, match="made anew"):
        await sink.publish(QUEUE, "a", 1, staged)
    assert await drained(broker, 0) == []


async def test_columns_become_what_they_mean(broker, sink):
    now = time.time()
    batch = {
        "value": [b'"a"', b"b", b"c"],
        "content_type": ["application/json", "text/plain", "application/octet-stream"],
        "headers": pa.array([[("k", "v")], None, []], pa.map_(pa.string(), pa.string())),
        "priority": pa.array([7, None, 0], pa.int32()),
        "deliver_at": pa.array([None, None, int((now + 3600) * 1e6)], pa.timestamp("us", tz="UTC")),
    }
    assert await sink.publish(QUEUE, "a", 1, await stage(sink, batch))
    first, second = (await broker.store.claim(QUEUE, 10, 60, wait=1.0)).messages
    assert (first.payload, first.content_type, first.headers, first.priority) == (
        b'"a"', "application/json", {"k": "v"}, 7,
    )  # fmt: skip
    assert (second.payload, second.content_type, second.priority) == (b"b", "text/plain", 0)
    assert (await broker.store.stats(QUEUE)).delayed == 1


async def test_more_tasks_than_one_batch_has_room_for(broker, sink, monkeypatch):
    monkeypatch.setattr(sinks, "BATCH_MESSAGES", 2)
    staged = [each for start in (0, 10) for each in await stage(sink, numbers(start, start + 10))]
    with pytest.raises(ConfigError, match="coalesce"):
        await sink.publish(QUEUE, "a", 1, staged)
