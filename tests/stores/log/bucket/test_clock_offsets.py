"""Processes whose clocks differ share a bucket: nothing ends before its time, and nobody waits for its own longer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.config import QueueOptions
from holdfast.stores.log.bucket.store import LateStore
from holdfast.stores.log.head import repeat
from holdfast.stores.records import Envelope, Settlement
from holdfast.testing.clock import ManualClock
from tests.stores.log.bucket.far_bucket import FarBucket, process

AHEAD = 0.9  # seconds: dates are whole ones, so the clocks of two processes may differ by one
TIME = 5.0  # seconds of a delay, a lease or a window
NEARLY = TIME - AHEAD + 0.1  # over by the clock that is ahead
OVER = 1.01 * TIME  # a clock that is corrected may run fast by a hundredth


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def stores(clock: ManualClock) -> AsyncIterator[tuple[LateStore, LateStore]]:
    """One whose clock is right, and one whose clock is ahead."""
    bucket = FarBucket(clock)
    right, _ = await process(bucket)
    fast, _ = await process(bucket, ahead=AHEAD)
    await right.create_queue("q", QueueOptions(dedup_window=TIME))
    yield right, fast
    await right.close()
    await fast.close()


async def given(store: LateStore, *, limit: int = 10, lease: float = 600.0) -> list[bytes]:
    """The payloads of a claim. It lists anew: what was written by others just now need not show at once."""
    store._log("q").window.late.unlist()
    return [each.payload for each in (await store.claim("q", limit, lease)).messages]


async def meddle(store: LateStore) -> None:
    """Write the head, which has the time of this process from now on."""
    await store.append("q", [Envelope(b"other")])
    assert await given(store) == [b"other"]


async def test_a_delay_ends_for_nobody_before_its_time(stores, clock: ManualClock) -> None:
    right, fast = stores
    await right.append("q", [Envelope(b"delayed", delay=TIME)])
    clock.advance(NEARLY)
    assert await given(fast) == []
    assert await given(right) == []
    clock.advance(TIME - NEARLY)
    assert await given(right) == [], "its clock may have run fast"
    clock.advance(OVER - TIME)
    assert await given(right) == [b"delayed"], "who has delayed it need not wait for the margin"


async def test_a_delay_of_somebody_else_ends_a_margin_later(stores, clock: ManualClock) -> None:
    right, fast = stores
    await right.append("q", [Envelope(b"delayed", delay=TIME)])
    clock.advance(OVER + repeat.MARGIN - AHEAD)
    assert await given(fast) == [b"delayed"]


async def test_a_delayed_call_over_several_blocks_is_ones_own_too(stores, clock: ManualClock) -> None:
    right, fast = stores
    await right.append("q", [Envelope(b"low", delay=TIME), Envelope(b"high", delay=TIME, priority=9)])
    clock.advance(NEARLY)
    assert await given(fast) == []
    clock.advance(OVER - NEARLY)
    assert await given(right) == [b"high", b"low"]


async def test_a_retry_ends_for_nobody_before_its_time(stores, clock: ManualClock) -> None:
    right, fast = stores
    await right.append("q", [Envelope(b"failing")])
    (message,) = (await right.claim("q", 1, 600.0)).messages
    assert await right.settle("q", [Settlement(message.id, message.token, "retry", TIME, error="why")]) == ["ok"]
    clock.advance(NEARLY)
    await meddle(fast)
    assert await given(fast) == []
    assert await given(right) == [], "the head's time is that of another process"
    clock.advance(OVER - NEARLY)
    assert await given(right) == [b"failing"]


async def test_a_retry_of_somebody_else_ends_a_margin_later(stores, clock: ManualClock) -> None:
    right, fast = stores
    await right.append("q", [Envelope(b"failing")])
    (message,) = (await right.claim("q", 1, 600.0)).messages
    await right.settle("q", [Settlement(message.id, message.token, "retry", TIME, error="why")])
    clock.advance(OVER + repeat.MARGIN - AHEAD)
    assert await given(fast) == [b"failing"]


async def test_a_lease_ends_for_nobody_before_its_time(stores, clock: ManualClock) -> None:
    right, fast = stores
    await right.append("q", [Envelope(b"held")])
    assert await given(right, lease=TIME) == [b"held"]
    clock.advance(NEARLY)
    await meddle(fast)
    assert await given(fast) == []
    assert await given(right) == [], "the head's time is that of another process"
    clock.advance(OVER - NEARLY)
    assert await given(right) == [b"held"]


async def test_a_dedup_window_ends_for_nobody_before_its_time(stores, clock: ManualClock) -> None:
    right, fast = stores
    keyed = [Envelope(b"once", dedup_key="k")]
    (first,) = await right.append("q", keyed)
    clock.advance(NEARLY)
    assert await fast.append("q", keyed) == [first]
    assert await right.append("q", keyed) == [first]
    clock.advance(OVER - NEARLY)
    (second,) = await right.append("q", keyed)
    assert second != first
    clock.advance(OVER + repeat.MARGIN - AHEAD)
    assert await fast.append("q", keyed) != [second]


async def test_a_delayed_message_with_a_dedup_key_is_ones_own_too(stores, clock: ManualClock) -> None:
    right, fast = stores
    await right.append("q", [Envelope(b"once", dedup_key="k", delay=TIME)])
    clock.advance(NEARLY)
    assert await given(fast) == []
    clock.advance(OVER - NEARLY)
    assert await given(right) == [b"once"]


async def test_what_waits_for_the_margin_holds_up_nothing(stores, clock: ManualClock) -> None:
    right, fast = stores
    await right.append("q", [Envelope(b"delayed", delay=TIME, priority=9)])
    clock.advance(TIME)
    await right.append("q", [Envelope(b"ready")])
    assert await given(fast, limit=1) == [b"ready"]
    assert await given(fast, limit=1) == []
    clock.advance(repeat.MARGIN)
    assert await given(fast, limit=1) == [b"delayed"]
