"""Dedup keys that hold until their message ends, on a bucket where writes arrive late, or whose writer stops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from holdfast.config import QueueOptions
from holdfast.errors import UnknownOutcome
from holdfast.stores.log.bucket.store import LateStore
from holdfast.stores.log.head import repeat
from holdfast.stores.records import Enqueued, Envelope, Settlement
from holdfast.testing.clock import ManualClock
from tests.stores.log.bucket.far_bucket import Door, FarBucket, process

R = 15.0
DAY = 86400.0
OVER = R + repeat.MARGIN + 3.0  # seconds after which nothing that was born now can be created any more


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(time.time() // DAY * DAY + 6 * 3600)


@pytest.fixture
def bucket(clock: ManualClock) -> FarBucket:
    return FarBucket(clock)


@pytest.fixture
async def open_store(bucket: FarBucket) -> AsyncIterator[object]:
    opened: list[LateStore] = []

    async def open_one(timeout: float = 5.0) -> tuple[LateStore, Door]:
        store, door = await process(bucket, timeout=timeout)
        opened.append(store)
        return store, door

    yield open_one
    for store in opened:
        await store.close()


async def append(store: LateStore, **how: object) -> Enqueued:
    [made] = await store.append_once("q", [Envelope(b"a", dedup_key="k")], "alive", **how)
    return made


async def claimed(store: LateStore) -> list[str]:
    return sorted(each.id for each in (await store.claim("q", 10, 60.0)).messages)


async def test_a_block_that_comes_late_but_in_time_holds_its_key(open_store, clock, bucket) -> None:
    """Who finds a key that is not sure must not judge it while its block may still arrive in time."""
    store, door = await open_store(timeout=1.0)
    other, _ = await open_store(timeout=1.0)
    await store.create_queue("q", QueueOptions())
    door.fate = lambda kind, key: "late" if "/inbox/" in key else "ok"
    with pytest.raises(UnknownOutcome) as lost:
        await append(store)
    door.is_shut = True
    clock.advance(R - 3.0)
    second = asyncio.create_task(append(other))
    await asyncio.wait([second], timeout=0.5)
    assert not second.done()
    assert bucket.deliver() > 0
    made = await asyncio.wait_for(second, 30.0)
    assert made == Enqueued(lost.value.ids[0], False)
    assert await claimed(other) == [made.id]


async def test_a_writer_that_stopped_leaves_its_key_after_the_window(open_store, clock, bucket) -> None:
    store, door = await open_store(timeout=1.0)
    other, _ = await open_store(timeout=1.0)
    await store.create_queue("q", QueueOptions())
    door.fate = lambda kind, key: "fail" if "/inbox/" in key else "ok"
    with pytest.raises(UnknownOutcome) as lost:
        await append(store)
    door.is_shut = True
    clock.advance(OVER)
    made = await asyncio.wait_for(append(other), 30.0)
    assert made.new
    assert made.id != lost.value.ids[0]
    assert await append(other) == Enqueued(made.id, False)
    assert await claimed(other) == [made.id]


async def test_a_lost_answer_can_be_repeated(open_store, clock) -> None:
    store, door = await open_store(timeout=1.0)
    await store.create_queue("q", QueueOptions(shards=2))
    door.fate = lambda kind, key: "fail" if "/inbox/" in key else "ok"
    with pytest.raises(UnknownOutcome) as lost:
        await append(store)
    clock.advance(OVER)
    door.fate = lambda kind, key: "ok"
    [id] = await lost.value.retry()
    assert await append(store) == Enqueued(id, False)


async def test_upkeep_forgets_keys_of_what_has_ended_and_no_others(open_store, clock, bucket) -> None:
    store, _ = await open_store()
    await store.create_queue("q", QueueOptions(archive=False))
    ended, held = [
        (await store.append_once("q", [Envelope(b"a", dedup_key=key)], "alive"))[0].id for key in ("ended", "held")
    ]
    claims = await store.claim("q", 2, 600.0)
    done = [Settlement(each.id, each.token, "complete") for each in claims.messages if each.id == ended]
    assert await store.settle("q", done) == ["ok"]
    assert (await store.maintain("q"))["forgotten_keys"] == 1
    keys = store._living_keys("q", "q")
    parts = [keys._part_of(view, number=number) for view, number in await _parts(store, keys)]
    assert [entry.id for part in parts for entry in part.values()] == [held]


async def _parts(store: LateStore, keys) -> list:
    return await store.space.read(lambda view: [(view, number) for number in keys._numbers(view)])


async def test_a_repeat_keeps_its_kind_of_key(open_store, clock) -> None:
    """What was sent with "waiting" is news: one in hand does not hold its key, in a repeat neither."""
    store, door = await open_store(timeout=1.0)
    await store.create_queue("q", QueueOptions())
    door.fate = lambda kind, key: "fail" if "/inbox/" in key else "ok"
    with pytest.raises(UnknownOutcome) as lost:
        await store.append_once("q", [Envelope(b"a", dedup_key="k")], "waiting")
    clock.advance(OVER)
    door.fate = lambda kind, key: "ok"
    [first] = await lost.value.retry()
    assert first in await claimed(store)
    [again] = await lost.value.retry()
    assert again != first
