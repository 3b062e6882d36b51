"""Outcomes leave the head once, whoever writes them and whoever dies or sleeps at it."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.config import QueueOptions
from holdfast.errors import Unavailable
from holdfast.stores.log import partition
from holdfast.stores.log.flush import TAKEOVER
from holdfast.stores.log.partition import FLUSH_ROWS
from holdfast.stores.log.tokens import INLINE_RESULT
from holdfast.stores.records import Claimed, Envelope, Settlement
from tests.stores.log.log_bench import Bed, Crash, Sleeper, dies_at, eventually

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
    assert [key.partition("/")[0] for key in await bed.keys()] == ["archive", "dead", "head"]


@pytest.mark.parametrize("step", ["", *STEPS])
async def test_a_process_that_has_not_read_the_messages_writes_the_same(step: str):
    """It takes the blocks as they are; also when it dies, and one that knows the messages finishes."""
    bed = await Bed.made()
    ids = await bed.end(300, result=b"r", worker="w")
    failed = await bed.end(100, "dead", error="why")
    before = [await bed.get(id) for id in ids]
    knows, bed.store = bed.store, bed.another(dies_at(step))
    if step:
        with pytest.raises(Crash):
            await bed.store.maintain("q")
        bed.store = knows
        await bed.pass_time(TAKEOVER + 0.1)
    await bed.flush()
    assert await once_in_the_archive(bed, ids)
    assert [await bed.get(id) for id in ids] == before
    assert {await bed.status(id) for id in failed} == {"dead"}
    head = await bed.head()
    assert (head.settled, head.frozen) == ([], None)


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


async def test_a_frozen_set_is_finished_in_an_idle_queue_too():
    bed = await Bed.made(steps=dies_at("flush.frozen"))
    ids = await bed.end(3)
    with pytest.raises(Crash):
        await bed.store.maintain("q")
    bed.clock.advance(TAKEOVER + 0.1)
    bed.store = bed.another()
    assert (await bed.store.maintain("q"))["flushed"] == 1
    assert await once_in_the_archive(bed, ids)


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


async def test_replay_and_discard_end_while_others_settle_without_pause():
    flushes = 0

    async def settles(step: str) -> None:
        nonlocal flushes
        if step == "flush.written":
            flushes += 1
            await bed.append(1)
            await bed.settle(await bed.claim(1), "complete")

    bed = await Bed.made(steps=settles)
    first = await bed.end(4)
    dead = await bed.end(2, "dead", error="why")
    assert await bed.store.discard("q", "archive", first) == 4
    assert await bed.store.replay("q", "dead", dead) == 2
    assert 0 < flushes < 10


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
    await eventually(bed.is_frozen)
    await bed.store.close()
    bed.store = bed.another()
    await bed.pass_time(TAKEOVER + 0.1)
    await bed.flush()
    assert len({record.id for record in await bed.archived()}) == len(await bed.archived()) == FLUSH_ROWS + 1000


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


async def test_no_result_is_left_by_a_lost_lease():
    bed = await Bed.made()
    await bed.append()
    lost = await bed.claim(lease=5.0)
    bed.clock.advance(6.0)
    assert await finish_with_a_large_result(bed, await bed.claim()) == ["ok"]
    assert await finish_with_a_large_result(bed, lost) == ["lost"]
    assert await bed.keys("results/") == []


@pytest.mark.parametrize(("options", "keep"), [({}, False), ({"archive": False}, None)])
async def test_no_result_is_left_by_a_message_that_is_not_kept(options: dict, keep: bool | None):
    bed = await Bed.made(**options)
    await bed.append()
    assert await finish_with_a_large_result(bed, await bed.claim(), keep=keep) == ["ok"]
    assert await bed.keys("results/") == []


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


async def test_a_flush_that_did_not_succeed_is_tried_again_by_itself(monkeypatch: pytest.MonkeyPatch):
    """The disk was full, then freed, and nobody has used the queue since."""
    monkeypatch.setattr(partition, "FLUSH_AGE", 0.05)
    bed = await Bed.made()
    space, tries = bed.store._space, 0
    write_file = space.write_file

    async def full(key: str, data: bytes) -> None:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise Unavailable("the store's disk is full")
        await write_file(key, data)

    monkeypatch.setattr(space, "write_file", full)
    ids = await bed.end(3)

    async def archived() -> bool:
        return any("archive/" in key for key in await bed.keys())

    await eventually(archived)
    assert tries == 4
    assert await once_in_the_archive(bed, ids)
