"""Claim batches: numbered, durable, fenced, and shared with ordinary workers."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import Fenced, StoreError
from holdfast.stores.batches import Sizing
from holdfast.stores.records import Change, Envelope, Settlement

from .conftest import STORES

QUEUE = "emails"
pytestmark = pytest.mark.parametrize("store", [*STORES, "s3 3"], indirect=True)


async def fill(store, count, size=100):
    for start in range(0, count, size):
        await store.append(QUEUE, [Envelope(b"%d" % n) for n in range(start, min(count, start + size))])


async def own(store, holder="me", consumer="etl", **terms):
    return await store.batches.own(QUEUE, consumer, holder=holder, lease=terms.pop("lease", 60.0), **terms)


async def rows(store, owner, after, upto, **terms):
    batches, slices = await store.batches.manifest(owner, after, upto, **terms)
    found = []
    for each in slices:
        async for batch in store.batches.read_slice(each):
            found += batch.to_pylist()
    assert len(found) == sum(batch.count for batch in batches)
    return found


def values(found):
    return sorted(int(row["value"]) for row in found)


async def stats(store):
    found = await store.stats(QUEUE)
    return found.pending, found.processing, found.completed


async def test_batches_follow_each_other(store):
    await fill(store, 250)
    owner = await own(store)
    assert (owner.generation, owner.done, owner.total) == (1, 0, 0)
    first = await store.batches.claim_batch(owner, after=0, limit=150)
    assert (first.seq, first.count, first.total, first.tries) == (1, 150, 150, 0)
    assert await stats(store) == (100, 150, 0)
    assert values(await rows(store, owner, 0, 1)) == list(range(150))
    second = await store.batches.claim_batch(owner, after=1, limit=150)
    assert (second.seq, second.count, second.total) == (2, 100, 250)
    assert await stats(store) == (0, 100, 150)
    assert values(await rows(store, owner, 1, 2)) == list(range(150, 250))
    assert await store.batches.claim_batch(owner, after=2, limit=150) is None
    assert await stats(store) == (0, 0, 250)
    assert await store.batches.settle_batch(owner, 2) == 0


async def test_a_batch_is_the_same_until_it_is_settled(store):
    await fill(store, 120)
    owner = await own(store)
    await store.batches.claim_batch(owner, after=0, limit=100)
    before = await rows(store, owner, 0, 1, sizing=Sizing(target=1000, least=3, smallest=10))
    await store.batches.beat(owner, 0.0)
    again = await own(store, "another")
    found = await store.batches.claim_batch(again, after=0, limit=5)
    assert (found.seq, found.count, found.tries) == (1, 100, 1)
    assert await rows(store, again, 0, 1) == before
    assert (await store.batches.manifest(again, 0, 1))[0][0].tries == 2


async def test_a_batch_that_nobody_planned_to_read_is_not_settled(store):
    """A sink that skips a batch never asks for its rows; the checkpoint says that the batch is done."""
    await fill(store, 20)
    owner = await own(store)
    await store.batches.claim_batch(owner, after=0, limit=10)
    for settle in (store.batches.claim_batch(owner, after=1, limit=10), store.batches.settle_batch(owner, 1)):
        with pytest.raises(StoreError, match=r"batch 1 of consumer 'etl' \(10 messages\).*never read.*file sink"):
            await settle
    assert await stats(store) == (10, 10, 0)
    assert (await store.batches.claim_batch(owner, after=0, limit=10)).tries == 0, "still there for a new checkpoint"
    assert values(await rows(store, owner, 0, 1)) == list(range(10))
    assert (await store.batches.claim_batch(owner, after=1, limit=10)).seq == 2
    assert await stats(store) == (0, 10, 10)


async def test_flush_leaves_nothing_to_archive(store):
    await fill(store, 10)
    owner = await own(store)
    await store.batches.claim_batch(owner, after=0, limit=10)
    await rows(store, owner, 0, 1)
    await store.batches.settle_batch(owner, 1)
    await store.batches.flush(QUEUE)
    await store.batches.flush(QUEUE)
    assert len(await store.scan(QUEUE, "archive")) == 10


async def test_workers_and_consumers_share_a_queue(store):
    await fill(store, 100)
    taken = (await store.claim(QUEUE, 30, 60)).messages
    owner = await own(store)
    batch = await store.batches.claim_batch(owner, after=0, limit=50)
    assert batch.count == 50
    rest = (await store.claim(QUEUE, 100, 60)).messages
    assert len(rest) == 20
    held = {int(row["value"]) for row in await rows(store, owner, 0, 1)}
    assert held | {int(each.payload) for each in taken + rest} == set(range(100))


async def test_the_claims_of_a_consumer_do_not_expire(store):
    await fill(store, 10)
    owner = await own(store)
    await store.batches.claim_batch(owner, after=0, limit=10)
    held = await store.scan(QUEUE, "processing")
    assert min(each.visible_at for each in held) - await store.clock() > 3600 * 24 * 365 * 1000
    assert (await store.claim(QUEUE, 10, 60)).messages == []


async def test_a_message_with_no_attempt_left_is_dead_and_in_no_batch(store):
    await store.append(QUEUE, [Envelope(b"1", max_attempts=1)])
    (held,) = (await store.claim(QUEUE, 1, 0.05)).messages
    owner = await own(store)
    async with asyncio.timeout(20):
        while await store.clock() < held.expires_at + 0.1:
            await asyncio.sleep(0.02)
    assert await store.batches.claim_batch(owner, after=0, limit=10) is None
    assert [each.attempts for each in await store.scan(QUEUE, "dead")] == [1]


async def test_messages_can_be_settled_one_by_one(store):
    """What the rows of a batch say is enough to complete, retry or bury each message; the rest goes with the batch."""
    await fill(store, 10)
    owner = await own(store)
    await store.batches.claim_batch(owner, after=0, limit=10)
    found = await rows(store, owner, 0, 1)
    done = [Settlement(row["id"], row["token"], "dead", error="bad") for row in found[:2]]
    done += [Settlement(row["id"], row["token"], "retry", delay=60.0) for row in found[2:5]]
    assert await store.settle(QUEUE, done) == ["ok"] * 5
    assert await store.settle(QUEUE, done) == ["ok"] * 5
    _, slices = await store.batches.manifest(owner, 0, 1)
    left = [batch.num_rows for each in slices async for batch in store.batches.read_slice(each)]
    assert sum(left) == 5
    assert await store.batches.settle_batch(owner, 1) == 5
    after = await store.stats(QUEUE)
    assert (after.completed, after.dead, after.retry, after.processing) == (5, 2, 3, 0)


async def test_messages_whose_priority_was_changed_are_settled_one_by_one(store):
    await fill(store, 3)
    for record in await store.scan(QUEUE, "ready", after=None, limit=10):
        assert await store.change(QUEUE, record.id, Change(priority=7))
    owner = await own(store)
    await store.batches.claim_batch(owner, after=0, limit=10)
    found = await rows(store, owner, 0, 1)
    assert [row["priority"] for row in found] == [7, 7, 7]
    actions = ("retry", "dead", "release")
    given = [Settlement(row["id"], row["token"], action) for row, action in zip(found, actions, strict=True)]
    assert await store.settle(QUEUE, given) == ["ok"] * 3
    seen = await store.stats(QUEUE)
    assert (seen.pending, seen.processing, seen.dead) == (2, 0, 1)


async def test_a_slice_reads_the_same_when_its_messages_have_ended(store):
    """A task that is tried again, or comes late: what a store still shows says by which token it was held."""
    await fill(store, 10)
    owner = await own(store)
    await store.batches.claim_batch(owner, after=0, limit=10)
    _, slices = await store.batches.manifest(owner, 0, 1)

    async def read():
        return [row for each in slices async for batch in store.batches.read_slice(each) for row in batch.to_pylist()]

    before = await read()
    assert await store.settle(QUEUE, [Settlement(row["id"], row["token"], "complete") for row in before]) == ["ok"] * 10
    async with asyncio.timeout(30):
        while (await store.stats(QUEUE)).archived < 10 or not await store.scan(QUEUE, "archive"):
            await asyncio.sleep(0.05)
        await store.maintain(QUEUE)
    after = await read()
    assert [(row["id"], row["token"], row["value"]) for row in after] == [
        (row["id"], row["token"], row["value"]) for row in before[: len(after)]
    ]


async def test_a_consumer_has_one_owner(store):
    await fill(store, 10)
    owner = await own(store, "driver 1")
    with pytest.raises(Fenced, match="'etl' is in use by another query"):
        await own(store, "driver 2")
    await store.batches.beat(owner, 0.0)
    second = await own(store, "driver 2")
    for call in (
        store.batches.beat(owner, 1.0),
        store.batches.claim_batch(owner, after=0, limit=1),
        store.batches.settle_batch(owner, 1),
        store.batches.manifest(owner, 0, 1),
    ):
        with pytest.raises(Fenced, match="driver 2"):
            await call
    assert (await store.batches.claim_batch(second, after=0, limit=1)).count == 1
    assert (await own(store, "driver 2", consumer="other")).epoch == 1


async def test_an_owner_known_to_be_dead_is_replaced_at_once(store):
    await own(store, "driver 1")
    assert (await own(store, "driver 2", instead_of="driver 1")).epoch == 2
    with pytest.raises(Fenced):
        await own(store, "driver 3", instead_of="driver 1")


async def test_a_lost_owner_is_replaced_after_its_lease(store):
    await own(store, "driver 1", lease=0.05)
    await _later(store, 0.1)
    await own(store, "driver 2", lease=60.0)
    (info,) = await store.batches.consumers(QUEUE)
    assert info.holder == "driver 2"


async def _later(store, seconds):
    until = await store.clock() + seconds
    while await store.clock() < until:
        await store.watch(QUEUE, 0.02)


async def test_release_gives_everything_back(store):
    await fill(store, 100)
    owner = await own(store)
    await store.batches.claim_batch(owner, after=0, limit=60)
    with pytest.raises(Fenced, match="in use"):
        await store.batches.release(QUEUE, "etl")
    await store.batches.beat(owner, 0.0)
    assert await store.batches.release(QUEUE, "etl") == 60
    assert await stats(store) == (100, 0, 0)
    assert {each.attempt for each in (await store.claim(QUEUE, 100, 60)).messages} == {1}
    with pytest.raises(Fenced):
        await store.batches.claim_batch(owner, after=0, limit=1)
    fresh = await own(store)
    assert (fresh.generation, fresh.done) == (2, 1)
    with pytest.raises(StoreError, match="no consumer 'nobody'"):
        await store.batches.release(QUEUE, "nobody")


async def test_an_old_checkpoint_is_told(store):
    """A checkpoint that knows of other batches than the store must not read other rows."""
    await fill(store, 100)
    owner = await own(store)
    await store.batches.claim_batch(owner, after=0, limit=10)
    await store.batches.manifest(owner, 0, 1)
    await store.batches.claim_batch(owner, after=1, limit=10)
    with pytest.raises(StoreError, match="stands at batch 0, the store has settled 1"):
        await store.batches.claim_batch(owner, after=0, limit=10)
    with pytest.raises(StoreError, match="stands at batch 7"):
        await store.batches.claim_batch(owner, after=7, limit=10)
    with pytest.raises(StoreError, match="batch 1 of consumer 'etl' is not open"):
        await store.batches.manifest(owner, 0, 1)
    await store.batches.release(QUEUE, "etl", force=True)
    fresh = await own(store)
    old = fresh.__class__(QUEUE, "etl", 1, fresh.epoch, 0, 0)
    with pytest.raises(StoreError, match="were released"):
        await store.batches.claim_batch(old, after=2, limit=10)


async def test_claims_go_back_by_themselves_when_asked(store):
    await fill(store, 10)
    owner = await own(store, lease=0.01, release_after=0.05)
    await store.batches.claim_batch(owner, after=0, limit=10)
    await _later(store, 0.2)
    assert (await store.maintain(QUEUE))["released"] == 10
    assert (await stats(store))[0] == 10


async def test_a_claim_waits_for_messages(store):
    owner = await own(store)
    claim = asyncio.create_task(store.batches.claim_batch(owner, after=0, limit=10, wait=20.0))
    await asyncio.sleep(0)
    await fill(store, 3)
    assert (await asyncio.wait_for(claim, 10)).count == 3


async def test_a_paused_queue_gives_none_and_still_settles(store):
    await fill(store, 20)
    owner = await own(store)
    await store.batches.claim_batch(owner, after=0, limit=10)
    await store.batches.manifest(owner, 0, 1)
    await store.pause(QUEUE, True)
    assert await store.batches.claim_batch(owner, after=1, limit=10) is None
    assert await stats(store) == (10, 0, 10)
