"""The log engine on a bucket against the rules of the protocol: what goes wrong there at the wrong moment.

Each test is one schedule, told step by step. `tests/protocol` has the rules and says why they are needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from far_bucket import Door, FarBucket, process

from holdfast.config import QueueOptions
from holdfast.messages import Envelope, Settlement
from holdfast.stores.log import window
from holdfast.stores.log.store import LogStore
from holdfast.testing.clock import ManualClock

R = 15.0
OVER = R + window.MARGIN + 3.0  # seconds after which nothing that was born now can be created any more


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def bucket(clock: ManualClock) -> FarBucket:
    return FarBucket(clock)


@pytest.fixture
async def open_store(bucket: FarBucket) -> AsyncIterator[object]:
    opened: list[LogStore] = []

    async def open_one(timeout: float = 5.0) -> tuple[LogStore, Door]:
        store, door = await process(bucket, timeout=timeout)
        opened.append(store)
        return store, door

    yield open_one
    for store in opened:
        await store.close()


def message(text: str = "a", **more: object) -> Envelope:
    return Envelope(payload=text.encode(), **more)


async def complete(store: LogStore, queue: str, claims) -> list[str]:
    return await store.settle(queue, [Settlement(each.id, each.token, "complete") for each in claims.messages])


async def test_a_purge_leaves_what_is_held_alone(open_store, clock: ManualClock, bucket: FarBucket) -> None:
    """A4: a block older than the purge is deleted, unless the head holds it."""
    store, _ = await open_store()
    other, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    (id,) = await store.append("q", [message()])
    held = await store.claim("q", 1, 600.0)
    clock.advance(60.0)
    await store.append("q", [message("b")])
    assert await store.purge("q") == 1
    await store.claim("q", 10, 600.0)
    await store._log("q").undertaker.bury()
    assert bucket.named("/inbox/"), "its payload is still needed"
    assert await complete(other, "q", held) == ["ok"]
    await other._log("q").flusher.flush_all()
    (found,) = await other.get("q", [id])
    assert found is not None
    assert found.status == "completed"


async def test_a_purge_of_what_nobody_has_absorbed(open_store, clock: ManualClock) -> None:
    store, _ = await open_store()
    other, _ = await open_store()
    await store.create_queue("q", QueueOptions())
    await store.append("q", [message()])
    clock.advance(60.0)
    assert await store.purge("q") == 1
    assert (await other.stats("q")).pending == 0
    assert (await other.claim("q", 10, 5.0)).messages == []
    await store.append("q", [message("b")])
    assert len((await other.claim("q", 10, 5.0)).messages) == 1
