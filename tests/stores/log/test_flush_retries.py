"""Retries that are too many for the head wait outside it: they keep what they are, their time and their place."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.stores.log.flush import TAKEOVER
from holdfast.stores.records import Claimed, Settlement
from tests.stores.log.log_bench import Bed, Sleeper, WatchedSpace, dies_at, eventually


@pytest.mark.timeout(300)
async def test_the_head_stays_small_when_everything_fails():
    """200,000 messages that all fail once and wait an hour: the cost of a claim does not grow with an outage."""
    bed = await Bed.made(space=WatchedSpace)
    count = 200_000
    ids = [id for start in range(0, count, 1000) for id in await bed.append(1000)]
    first: float | None = None
    while held := await bed.claim(500):
        first = first or bed.clock()
        assert set(await bed.settle(held, "retry", delay=3600.0, error=f"{len(held)} at once")) == {"ok"}
        bed.clock.advance(0.05)
    assert 1000 < bed.space.largest_head < 256 * 1024
    await eventually(lambda: retries(bed, count))
    await bed.flush()
    assert len((await bed.head()).waiting) <= 100
    for id in ids[:: count // 50]:
        stored = await bed.get(id)
        assert stored is not None
        assert (stored.status, stored.attempts, stored.error) == ("retry", 1, "500 at once")
        assert [each.error for each in stored.history] == ["500 at once"]

    assert first is not None
    bed.clock.advance(first + 3599.99 - bed.clock())
    assert await bed.claim(1000) == []
    bed.clock.advance(3600 * 0.03)
    again: list[str] = []
    while held := await bed.claim(1000):
        assert {each.attempt for each in held} == {2}
        again += [each.id for each in held]
        assert set(await bed.settle(held, "complete", keep=False)) == {"ok"}
    assert len(again) == count
    assert sorted(again) == sorted(ids)
    assert bed.space.largest_head < 256 * 1024
    await eventually(lambda: nothing_left(bed))
    await bed.store.close()


@pytest.mark.parametrize(("at_once", "size"), [(1000, 40), (1000, 200), (100, 2000), (100, 8000), (1000, 8000)])
async def test_the_head_stays_small_when_every_message_has_an_error_of_its_own(at_once: int, size: int):
    bed = await Bed.made(space=WatchedSpace)
    ids = await bed.append(1000) + await bed.append(1000)
    errors = {id: id.ljust(size, "x") for id in ids}
    while held := await bed.claim(at_once):
        failed = [Settlement(each.id, each.token, "retry", 3600.0, None, errors[each.id]) for each in held]
        assert set(await bed.store.settle("q", failed)) == {"ok"}
    assert 1000 < bed.space.largest_head < 256 * 1024
    await bed.flush()
    for id in ids[::40]:
        stored = await bed.get(id)
        assert stored is not None
        assert (stored.status, stored.attempts, stored.error) == ("retry", 1, errors[id])
        assert [each.error for each in stored.history] == [errors[id][:200]]
    await bed.store.close()


async def retries(bed: Bed, count: int) -> bool:
    return (await bed.store.stats("q")).retry == count


async def nothing_left(bed: Bed) -> bool:
    return [key for key in await bed.keys() if "head" not in key] == []


async def spilled(bed: Bed, **said: object) -> tuple[list[str], list[Claimed]]:
    """400 messages that failed and left the head."""
    ids = await bed.append(400)
    held = await bed.claim(400)
    assert set(await bed.settle(held, "retry", **said)) == {"ok"}
    await bed.spill()
    return ids, held


async def test_spilled_retries_keep_what_they_are():
    bed = await Bed.made(max_attempts=4)
    ids = await bed.append(400, priority=7, headers={"k": "v"}, max_attempts=9)
    crashed = await bed.claim(400, 5.0)
    bed.clock.advance(6.0)
    held = await bed.claim(400)
    assert {each.attempt for each in held} == {2}
    assert set(await bed.settle(crashed, "complete")) == {"lost"}
    assert set(await bed.settle(held, "retry", delay=60.0, error="why", worker="w7")) == {"ok"}
    await bed.spill()
    stored = await bed.get(ids[7])
    assert stored is not None
    assert (stored.status, stored.attempts, stored.max_attempts, stored.priority) == ("retry", 2, 9, 7)
    assert (stored.error, stored.headers, stored.payload, stored.worker) == ("why", {"k": "v"}, b"7", "w7")
    assert stored.enqueued_at == pytest.approx(crashed[0].enqueued_at)
    bed.clock.advance(61.3)
    for attempt in range(3, 9):
        held = await bed.claim(1, 5.0)
        assert [(each.id, each.attempt, each.alone) for each in held] == [(ids[0], attempt, False)]
        assert await bed.settle(held, "retry") == ["ok"]
    assert [(each.id, each.attempt, each.alone) for each in await bed.claim(9)] == [(ids[0], 9, True)]


async def test_spilled_retries_can_be_cancelled_and_purged():
    bed = await Bed.made()
    ids, _ = await spilled(bed, delay=60.0)
    assert await bed.store.cancel("q", ids[3])
    assert not await bed.store.cancel("q", ids[3])
    stored = await bed.get(ids[3])
    assert stored is not None
    assert (stored.status, stored.error, stored.attempts) == ("failed", "cancelled", 1)
    assert await bed.store.purge("q") == 399
    assert await bed.get(ids[4]) is None
    await bed.flush()
    assert [record.id for record in await bed.archived()] == [ids[3]]
    assert await bed.keys("later/") == []


async def test_a_repeated_retry_is_success_after_it_left_the_head():
    bed = await Bed.made()
    _, held = await spilled(bed, delay=60.0)
    assert set(await bed.settle(held, "retry", delay=60.0)) == {"ok"}


async def test_a_spilled_retry_keeps_its_place():
    """Once due it goes before newer messages."""
    bed = await Bed.made()
    ids = await bed.append(1000)
    held = await bed.claim(400)
    await bed.settle(held, "retry", delay=1.0)
    await bed.spill()
    bed.clock.advance(1.1)
    assert [each.id for each in await bed.claim(10)] == ids[:10]


async def test_retries_that_left_apart_come_back_in_order():
    """Due at different times, so in blocks of their own; once all are due, the oldest is first."""
    bed = await Bed.made(max_attempts=9)
    ids = await bed.append(1000)
    held = await bed.claim(900)
    for part, delay in ((held[600:], 1.0), (held[300:600], 5.0), (held[:300], 9.0)):
        assert set(await bed.settle(part, "retry", delay=delay)) == {"ok"}
    await bed.spill()
    assert len(await bed.keys("later/")) == 3
    bed.clock.advance(10.0)
    assert [each.id for each in await bed.claim(1000)] == ids


async def test_a_cancel_waits_for_the_flush_that_writes_its_message():
    sleeper = Sleeper("flush.written")
    bed = await Bed.made(steps=sleeper)
    ids = await bed.append(400)
    await bed.settle(await bed.claim(400), "retry", delay=60.0)
    await sleeper.asleep.wait()
    cancelling = asyncio.create_task(bed.another().cancel("q", ids[7]))
    await asyncio.sleep(0.05)
    assert not cancelling.done()
    sleeper.wake.set()
    assert await cancelling
    assert await bed.store.purge("q") == 399


async def test_retries_can_be_cancelled_and_purged_while_they_leave():
    bed = await Bed.made(steps=dies_at("flush.frozen"))
    ids = await bed.append(400)
    await bed.settle(await bed.claim(400), "retry", delay=60.0)
    await eventually(bed.is_frozen)
    bed.store = bed.another()
    bed.clock.advance(TAKEOVER + 0.1)
    assert await bed.status(ids[0]) == "retry"
    assert await bed.store.cancel("q", ids[0])
    assert await bed.store.purge("q") == 399


async def test_retries_come_back_although_the_flush_they_were_leaving_in_died():
    bed = await Bed.made(steps=dies_at("flush.frozen"))
    ids = await bed.append(400)
    assert set(await bed.settle(await bed.claim(400), "retry", delay=60.0)) == {"ok"}
    await eventually(bed.is_frozen)
    bed.clock.advance(70.0)
    bed.store = bed.another()
    await bed.store.maintain("q")
    assert [each.id for each in await bed.claim(400)] == ids
