"""Staged writes: invisible until they are published, all at once, and once."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from holdfast.config import QueueOptions
from holdfast.errors import QueueFull, StoreError
from holdfast.stores.log.pipeline import stage as staging
from holdfast.stores.records import Envelope
from holdfast.testing.contract.base import eventually

QUEUE = "emails"


async def stage(store, *batches):
    stager = await store.batches.stager(QUEUE)
    for each in batches:
        await stager.add(pa.RecordBatch.from_pydict(each))
    return pickle.loads(pickle.dumps(await stager.finish()))


def numbers(start, stop):
    return {"value": [b"%d" % n for n in range(start, stop)]}


async def waiting(store):
    return (await store.stats(QUEUE)).pending


async def test_nothing_is_seen_before_it_is_published(store):
    staged = await stage(store, numbers(0, 2500), numbers(2500, 5000), numbers(5000, 9000))
    assert sum(each.rows for each in staged) == 9000
    assert await waiting(store) == 0
    assert await store.batches.publish(QUEUE, "a", 1, staged) is True
    assert await waiting(store) == 9000
    found = []
    while claims := (await store.claim(QUEUE, 1000, 60)).messages:
        found += [int(each.payload) for each in claims]
    assert found == list(range(9000)), "in order of the rows"


async def test_a_batch_of_a_sink_is_published_once(store):
    first, again, second = [await stage(store, numbers(0, 10)) for _ in range(3)]
    assert await store.batches.published(QUEUE, "a") is None
    assert await store.batches.publish(QUEUE, "a", 1, first)
    assert not await store.batches.publish(QUEUE, "a", 1, again)
    assert not await store.batches.publish(QUEUE, "a", 0, again)
    assert await store.batches.publish(QUEUE, "a", 2, second)
    assert await store.batches.publish(QUEUE, "b", 1, await stage(store, numbers(0, 10)))
    assert await store.batches.publish(QUEUE, None, 0, await stage(store, numbers(0, 10)))
    assert await waiting(store) == 40
    assert await store.batches.published(QUEUE, "a") == 2


async def test_orphans_are_swept(store):
    staged = await stage(store, numbers(0, 10))
    assert await store.batches.sweep(QUEUE, 60.0) == 0
    # A bucket's clock is estimated from dates of whole seconds, and may go back by a part of one.
    await eventually(lambda: store.batches.sweep(QUEUE, 0.0), "the sweep")
    with pytest.raises(StoreError, match="again"):
        await store.batches.publish(QUEUE, "a", 1, staged)
    assert await waiting(store) == 0
    assert await store.batches.published(QUEUE, "a") is None


async def test_columns_become_what_they_mean(store):
    now = await store.clock()
    later = pa.array(
        [None, int((now + 500) * 1e6), int((now + 530) * 1e6), int((now - 5) * 1e6)], pa.timestamp("us", "UTC")
    )
    headers = pa.array([[("a", "b")], None, None, []], pa.map_(pa.string(), pa.string()))
    batch = {"value": [b"0", b"1", b"2", b"3"], "priority": pa.array([1, 1, 1, None], pa.int32())}
    batch |= {"deliver_at": later, "headers": headers, "content_type": ["x/y", "x/y", "x/y", "z"]}
    await store.batches.publish(QUEUE, "a", 1, await stage(store, batch))
    stats = await store.stats(QUEUE)
    assert (stats.pending, stats.delayed) == (2, 2)
    first, second = (await store.claim(QUEUE, 10, 60)).messages
    assert (first.payload, first.priority, first.content_type, first.headers) == (b"0", 1, "x/y", {"a": "b"})
    assert (second.payload, second.priority, second.content_type) == (b"3", 0, "z")
    delayed = await store.scan(QUEUE, "delayed")
    assert [each.payload for each in delayed] == [b"1", b"2"]
    for each, due in zip(delayed, (now + 500, now + 530), strict=True):
        assert 0 <= each.visible_at - due <= 11, "never early, at most two hundredths late"


async def test_dedup_keys_count(store):
    if not store.batches.deduplicates:
        return  # told when a write is planned
    await store.append(QUEUE, [Envelope(b"old", dedup_key="k0")])
    keys = ["k0", "k1", "k1", None, None]
    batch = {"value": [b"0", b"1", b"2", b"3", b"4"], "dedup_key": keys}
    await store.batches.publish(QUEUE, "a", 1, await stage(store, batch))
    assert {each.payload for each in (await store.claim(QUEUE, 10, 60)).messages} == {b"old", b"1", b"3", b"4"}
    (id,) = await store.append(QUEUE, [Envelope(b"again", dedup_key="k1")])
    (known,) = await store.get(QUEUE, [id])
    assert known.payload == b"1"
    await store.batches.publish(QUEUE, "a", 2, await stage(store, {"value": [b"x"], "dedup_key": ["k1"]}))
    assert await waiting(store) == 0


async def test_a_full_queue_takes_none(store):
    await store.configure(QUEUE, QueueOptions(max_messages=15))
    await store.batches.publish(QUEUE, "a", 1, await stage(store, numbers(0, 10)))
    with pytest.raises(QueueFull, match="room for 5 messages, and 10"):
        await store.batches.publish(QUEUE, "a", 2, await stage(store, numbers(0, 10)))
    assert await waiting(store) == 10
    assert await store.batches.published(QUEUE, "a") == 1


async def test_a_queue_made_anew_takes_nothing_old(store):
    staged = await stage(store, numbers(0, 10))
    await store.delete_queue(QUEUE, force=True)
    await store.create_queue(QUEUE, QueueOptions())
    with pytest.raises(StoreError, match="again"):
        await store.batches.publish(QUEUE, "a", 1, staged)


async def test_large_messages_are_blocks_of_their_own(store):
    large = b"x" * (staging.BLOCK_BYTES + 1)
    staged = await stage(store, {"value": [large, b"1", large, b"2"]})
    await store.batches.publish(QUEUE, "a", 1, staged)
    assert [len(each.payload) for each in (await store.claim(QUEUE, 10, 60)).messages] == [len(large), 1, len(large), 1]
