"""Outcomes leave the head once, whoever writes them and whoever dies or sleeps at it."""

from __future__ import annotations

import asyncio

import pytest
from log_bench import Bed, Crash, Sleeper, WatchedSpace, dies_at, eventually

from holdfast.config import QueueOptions
from holdfast.errors import Unavailable
from holdfast.messages import Claimed, Envelope, Settlement
from holdfast.stores.log.flush import TAKEOVER
from holdfast.stores.log.leases import INLINE_RESULT
from holdfast.stores.log.log import FLUSH_ROWS

STEPS = ("flush.frozen", "flush.written", "flush.dropped")


async def once_in_the_archive(bed: Bed, ids: list[str]) -> bool:
    return sorted(record.id for record in await bed.archived()) == sorted(ids)


async def test_a_flush_moves_outcomes_into_one_file():
    bed = await Bed.made()
    ids = await bed.end(30, result=b"r", worker="w")
    assert (await bed.head()).completed == 30
    before = [await bed.get(id) for id in ids]
    await bed.flush()
    assert await once_in_the_archive(bed, ids)
    assert [await bed.get(id) for id in ids] == before
    head = await bed.head()
    assert (head.blocks, head.settled, head.frozen, head.completed) == ({}, [], None, 30)
    assert [key.partition("/")[0] for key in await bed.keys()] == ["archive", "head"]


@pytest.mark.parametrize("step", STEPS)
async def test_whoever_finds_a_frozen_set_finishes_it(step: str):
    """A process died at each step of a flush; another takes over, but not before the first may be dead."""
    bed = await Bed.made(steps=dies_at(step))
    ids = await bed.end(20)
    dead = await bed.end(20, "dead", error="why")
    with pytest.raises(Crash):
        await bed.store.maintain("q")
    bed.store = bed.another()
    dropped = step == "flush.dropped"
    assert (await bed.store.maintain("q"))["flushed"] == 0
    assert await once_in_the_archive(bed, ids if dropped else [])
    assert {await bed.status(id) for id in ids} == {"completed"}
    assert {await bed.status(id) for id in dead} == {"dead"}
    assert [each.id for each in await bed.all("dead")] == dead
    await bed.pass_time(TAKEOVER + 0.1)
    await bed.flush()
    assert await once_in_the_archive(bed, ids)
    assert {await bed.status(id) for id in ids} == {"completed"}
    assert [each.id for each in await bed.all("dead")] == dead
    assert (await bed.head()).frozen is None
    assert len(await bed.keys("dead/inbox/")) == 1


@pytest.mark.xfail(
    strict=True, reason="flush() takes the time from a head that was not written, so in an idle queue it stands still"
)
async def test_a_frozen_set_is_finished_in_an_idle_queue_too():
    bed = await Bed.made(steps=dies_at("flush.frozen"))
    ids = await bed.end(3)
    with pytest.raises(Crash):
        await bed.store.maintain("q")
    bed.clock.advance(TAKEOVER + 0.1)
    bed.store = bed.another()
    assert (await bed.store.maintain("q"))["flushed"] == 1
    assert await once_in_the_archive(bed, ids)


@pytest.mark.xfail(strict=True, reason="as above: nobody can claim them until something else happens in the queue")
async def test_retries_come_back_although_the_flush_they_were_leaving_in_died():
    bed = await Bed.made(steps=dies_at("flush.frozen"))
    ids = await bed.append(400)
    assert set(await bed.settle(await bed.claim(400), "retry", delay=60.0)) == {"ok"}
    await eventually(lambda: frozen(bed))
    bed.clock.advance(70.0)
    bed.store = bed.another()
    await bed.store.maintain("q")
    assert [each.id for each in await bed.claim(400)] == ids


@pytest.mark.parametrize("step", STEPS[:2])
async def test_a_sleeping_flusher_adds_nothing(step: str):
    """It wakes up after another has finished its set, and after the next flush as well."""
    sleeper = Sleeper(step)
    bed = await Bed.made(steps=sleeper)
    ids = await bed.end(20)
    dead = await bed.end(3, "dead")
    flushing = asyncio.create_task(bed.store.discard("q", "archive", []))
    await sleeper.asleep.wait()
    bed.store = bed.another()
    await bed.pass_time(TAKEOVER + 0.1)
    await bed.flush()
    more = await bed.end(5)
    await bed.flush()
    keys = await bed.keys()
    sleeper.wake.set()
    await flushing
    assert await once_in_the_archive(bed, ids + more)
    assert await bed.keys() == keys
    assert [each.id for each in await bed.all("dead")] == dead
    stats = await bed.store.stats("q")
    assert (stats.archived, stats.dead, stats.completed) == (25, 3, 26)


async def test_many_flushers_at_once():
    bed = await Bed.made()
    stores = [bed.another() for _ in range(3)]
    ids: list[str] = []
    for _ in range(5):
        for store in stores:
            bed.store = store
            ids += await bed.end(3)
        await asyncio.gather(*(store.discard("q", "archive", []) for store in stores))
    assert await once_in_the_archive(bed, ids)
    assert (await bed.head()).blocks == {}


async def test_what_ends_during_a_flush_leaves_in_the_next():
    sleeper = Sleeper("flush.written")
    bed = await Bed.made(steps=sleeper)
    first = await bed.end(4)
    flushing = asyncio.create_task(bed.store.maintain("q"))
    await sleeper.asleep.wait()
    second = await bed.end(4)
    retried = await bed.end(1, "retry", delay=60.0)
    sleeper.wake.set()
    assert (await flushing)["flushed"] == 1
    assert await once_in_the_archive(bed, first)
    await bed.flush()
    assert await once_in_the_archive(bed, first + second)
    assert await bed.status(retried[0]) == "retry"


async def test_a_flush_that_cannot_be_finished_says_so(monkeypatch: pytest.MonkeyPatch):
    """Somebody else's set is frozen and not yet abandoned: waiting for it has an end."""
    bed = await Bed.made(steps=dies_at("flush.frozen"))
    await bed.end(1)
    with pytest.raises(Crash):
        await bed.store.maintain("q")
    monkeypatch.setattr("holdfast.stores.log.flush._TRIES", 3)
    bed.store = bed.another()
    with pytest.raises(Unavailable, match="flush of q is not done"):
        await bed.flush()


async def test_enough_outcomes_are_written_by_themselves():
    bed = await Bed.made()
    ids: list[str] = []
    for _ in range(FLUSH_ROWS // 1000):
        ids += await bed.end(1000)
    await eventually(lambda: once_in_the_archive(bed, ids))
    await bed.store.close()


async def test_few_outcomes_are_written_after_a_while():
    bed = await Bed.made()
    ids = await bed.end(3)
    await eventually(lambda: once_in_the_archive(bed, ids))
    await bed.store.close()


async def test_a_put_off_flush_is_no_error_of_the_worker():
    """The flush that runs by itself fails; who settles does not notice, and the next one writes it."""
    bed = await Bed.made(steps=dies_at("flush.frozen"))
    for _ in range(FLUSH_ROWS // 1000 + 1):
        await bed.end(1000)
    await eventually(lambda: frozen(bed))
    await bed.store.close()
    bed.store = bed.another()
    await bed.pass_time(TAKEOVER + 0.1)
    await bed.flush()
    assert len({record.id for record in await bed.archived()}) == len(await bed.archived()) == FLUSH_ROWS + 1000


async def frozen(bed: Bed) -> bool:
    return (await bed.head()).frozen is not None


# What is not archived.


@pytest.mark.parametrize(
    ("options", "settlement", "archived", "dead"),
    [
        ({"archive": False}, {"action": "complete"}, 0, 0),
        ({"archive": False}, {"action": "complete", "keep": True}, 3, 0),
        ({}, {"action": "complete", "keep": False}, 0, 0),
        ({"archive": False}, {"action": "dead"}, 0, 3),
        ({"archive": False, "dead_letter": False}, {"action": "dead"}, 0, 0),
        ({"dead_letter": False}, {"action": "dead"}, 3, 0),
    ],
)
async def test_what_stays(options: dict, settlement: dict, archived: int, dead: int):
    bed = await Bed.made(**options)
    await bed.end(3, **settlement)
    await bed.flush()
    stats = await bed.store.stats("q")
    failed = 3 if options.get("dead_letter") is False else 0
    completed = 3 if settlement["action"] == "complete" else 0
    assert (stats.archived, stats.dead, stats.completed, stats.failed) == (archived, dead, completed, failed)
    assert len(await bed.archived()) == archived
    assert len(await bed.all("dead")) == dead
    assert (await bed.head()).blocks == {}
    assert await bed.keys("/inbox/") == [] if not dead else len(await bed.keys("dead/inbox/")) == 1


async def test_dead_letters_for_another_queue():
    """They arrive once, although the flush is carried out twice; the queue is made when it is not there."""
    sleeper = Sleeper("flush.written")
    bed = await Bed.made(steps=sleeper, dead_letter="graves")
    ids = await bed.end(2, "dead", error="why")
    flushing = asyncio.create_task(bed.store.discard("q", "archive", []))
    await sleeper.asleep.wait()
    bed.store = bed.another()
    await bed.pass_time(TAKEOVER + 0.1)
    await bed.flush()
    sleeper.wake.set()
    await flushing
    moved = await bed.claim(queue="graves")
    assert [(each.payload, each.attempt, each.headers) for each in moved] == [
        (b"%d" % place, 1, {"dead_from": "q", "dead_id": id, "dead_reason": "why"}) for place, id in enumerate(ids)
    ]
    assert [(each.id, each.status) for each in await bed.all("archive")] == [(id, "failed") for id in ids]
    assert [info.options for info in await bed.store.queues() if info.name == "graves"] == [QueueOptions()]


# Large results.


def large(fill: bytes = b"r") -> bytes:
    return fill * (INLINE_RESULT + 1)


async def test_large_results_stay_outside_the_head():
    bed = await Bed.made()
    ids = await bed.append(3)
    held = await bed.claim()
    results = [large(b"a"), large(b"b") * 100, b"c" * INLINE_RESULT]
    settlements = [
        Settlement(each.id, each.token, "complete", result=result) for each, result in zip(held, results, strict=True)
    ]
    assert await bed.store.settle("q", settlements) == ["ok"] * 3
    assert len(await bed.keys("results/")) == 2
    (group,) = (await bed.head()).settled
    assert sum(len(result or b"") for result in group.results or []) < INLINE_RESULT + 200
    assert [stored and stored.result for stored in await bed.store.get("q", ids)] == results
    await bed.flush()
    assert await bed.keys("results/") == []
    assert [stored and stored.result for stored in await bed.store.get("q", ids)] == results


async def finish_with_a_large_result(bed: Bed, held: list[Claimed], **said: object) -> list[str]:
    answers = await bed.settle(held, "complete", result=large(), **said)
    await bed.flush()
    return answers


@pytest.mark.xfail(strict=True, reason="keep_results writes the result of a settlement that is refused")
async def test_no_result_is_left_by_a_lost_lease():
    bed = await Bed.made()
    await bed.append()
    lost = await bed.claim(lease=5.0)
    bed.clock.advance(6.0)
    assert await finish_with_a_large_result(bed, await bed.claim()) == ["ok"]
    assert await finish_with_a_large_result(bed, lost) == ["lost"]
    assert await bed.keys("results/") == []


@pytest.mark.xfail(strict=True, reason="keep_results writes the result of a message that is not kept")
@pytest.mark.parametrize(("options", "keep"), [({}, False), ({"archive": False}, None)])
async def test_no_result_is_left_by_a_message_that_is_not_kept(options: dict, keep: bool | None):
    bed = await Bed.made(**options)
    await bed.append()
    assert await finish_with_a_large_result(bed, await bed.claim(), keep=keep) == ["ok"]
    assert await bed.keys("results/") == []


@pytest.mark.xfail(strict=True, reason="keep_results writes the result again when a settlement is repeated")
async def test_a_repeated_settlement_changes_no_result():
    bed = await Bed.made()
    (id,) = await bed.append()
    held = await bed.claim()
    assert await bed.settle(held, "complete", result=large(b"a")) == ["ok"]
    assert await bed.settle(held, "complete", result=large(b"b")) == ["ok"]
    stored = await bed.get(id)
    assert stored is not None
    assert stored.result == large(b"a")
    await bed.flush()
    assert await bed.settle(held, "complete", result=large(b"b")) == ["ok"]
    assert await bed.keys("results/") == []


# Retries that leave the head.


async def test_the_head_stays_small_when_everything_fails():
    """20,000 messages that all fail once and wait an hour: the cost of a claim does not grow with an outage."""
    bed = await Bed.made(space=WatchedSpace)
    count = 20_000
    ids = [id for start in range(0, count, 1000) for id in await bed.append(1000)]
    first: float | None = None
    while held := await bed.claim(500):
        first = first or bed.clock()
        assert set(await bed.settle(held, "retry", delay=3600.0, error=f"{len(held)} at once")) == {"ok"}
        bed.clock.advance(0.5)
    assert 1000 < bed.space.largest_head < 256 * 1024
    await eventually(lambda: retries(bed, count))
    await bed.flush()
    assert len((await bed.head()).waiting) <= 100
    for id in ids[:: count // 50]:
        stored = await bed.get(id)
        assert stored is not None
        assert (stored.status, stored.attempts, stored.error) == ("retry", 1, "500 at once")

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
    assert set(await bed.settle(held, "retry", delay=60.0, error="why")) == {"ok"}
    await bed.spill()
    stored = await bed.get(ids[7])
    assert stored is not None
    assert (stored.status, stored.attempts, stored.max_attempts, stored.priority) == ("retry", 2, 9, 7)
    assert (stored.error, stored.headers, stored.payload) == ("why", {"k": "v"}, b"7")
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
    assert await once_in_the_archive(bed, [ids[3]])
    assert await bed.keys("later/") == []


@pytest.mark.xfail(
    strict=True, reason="judged() wants a finished message, so the token of a spilled retry is not known"
)
async def test_a_repeated_retry_is_success_after_it_left_the_head():
    bed = await Bed.made()
    _, held = await spilled(bed, delay=60.0)
    assert set(await bed.settle(held, "retry", delay=60.0)) == {"ok"}


@pytest.mark.xfail(
    strict=True, reason="a block of spilled retries is claimed after the rest of the block they came from"
)
async def test_a_spilled_retry_keeps_its_place():
    """Once due it goes before newer messages."""
    bed = await Bed.made()
    ids = await bed.append(1000)
    held = await bed.claim(400)
    await bed.settle(held, "retry", delay=1.0)
    await bed.spill()
    bed.clock.advance(1.1)
    assert [each.id for each in await bed.claim(10)] == ids[:10]


@pytest.mark.xfail(strict=True, reason="a frozen set is out of reach of cancel and purge")
async def test_retries_can_be_cancelled_and_purged_while_they_leave():
    bed = await Bed.made(steps=dies_at("flush.frozen"))
    ids = await bed.append(400)
    await bed.settle(await bed.claim(400), "retry", delay=60.0)
    await eventually(lambda: frozen(bed))
    bed.store = bed.another()
    assert await bed.status(ids[0]) == "retry"
    assert await bed.store.cancel("q", ids[0])
    assert await bed.store.purge("q") == 399


# Claims that nobody waits for.


async def test_a_cancelled_claim_gives_its_messages_back():
    bed = await Bed.made()
    ids = await bed.append(5)
    for pause in range(4):
        claiming = asyncio.create_task(bed.store.claim("q", 5, 30.0))
        for _ in range(pause):
            await asyncio.sleep(0)
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        await eventually(lambda: all_pending(bed, 5))
    held = await bed.claim()
    assert [(each.id, each.attempt) for each in held] == [(id, 1) for id in ids]


async def all_pending(bed: Bed, count: int) -> bool:
    return (await bed.store.stats("q")).pending == count


async def test_a_cancelled_wait_takes_nothing():
    bed = await Bed.made()
    waiting = asyncio.create_task(bed.store.claim("q", 5, 30.0, wait=60.0))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    (id,) = await bed.append()
    assert [each.id for each in await bed.claim()] == [id]


async def test_messages_of_one_call_are_all_or_none():
    """A message that cannot be written leaves nothing of its call behind, nor of those that share its commit."""
    bed = await Bed.made()
    with pytest.raises(UnicodeEncodeError):
        await bed.store.append("q", [Envelope(b"1"), Envelope(b"2", headers={"k": "\ud800"})])
    assert (await bed.store.stats("q")).total == 0
