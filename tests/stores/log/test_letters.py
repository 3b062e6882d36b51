"""Dead letters and archive of the log engine: replay, delete, and dead letters at work."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import ids as id_bits
from holdfast.stores.records import Stored
from tests.stores.log.log_bench import Bed, Crash, Sleeper, dies_at

DEAD = "q/dead"


async def bury(bed: Bed, count: int, *, flushed: bool = True, **said: object) -> list[str]:
    """Dead letters, in their own log or still on their way."""
    ids = await bed.append(count, **said)
    assert set(await bed.settle(await bed.claim(count), "dead", error="why", worker="w")) == {"ok"}
    if flushed:
        await bed.flush()
    return ids


def copy_of(id: str) -> str:
    return id_bits.text(id_bits.derived(id_bits.number(id) or 0, "replay"))


def ids_of(records: list[Stored]) -> list[str]:
    return [each.id for each in records]


# Replay.


@pytest.mark.parametrize("flushed", [True, False])
async def test_dead_letters_move_back(flushed: bool):
    bed = await Bed.made()
    ids = await bury(bed, 20, flushed=flushed, priority=7, headers={"k": "v"})
    chosen = [ids[17], ids[3], ids[4]]
    assert await bed.store.replay("q", "dead", chosen) == 3
    assert ids_of(await bed.all("dead")) == [id for id in ids if id not in chosen]
    assert [await bed.get(id) for id in chosen] == [None] * 3
    bed.clock.advance(1.0)
    held = await bed.claim()
    assert [(each.id, each.payload) for each in held] == sorted((copy_of(id), b"%d" % ids.index(id)) for id in chosen)
    assert {(each.priority, each.attempt, each.max_attempts) for each in held} == {(7, 1, 3)}
    assert [each.headers for each in held] == [{"k": "v", "replayed_from": id} for id in sorted(chosen)]
    assert await bed.store.replay("q", "dead", chosen) == 0


async def test_a_replayed_letter_may_die_again():
    bed = await Bed.made(max_attempts=1)
    (id,) = await bury(bed, 1)
    for _ in range(3):
        assert await bed.store.replay("q", "dead", [id]) == 1
        (held,) = await bed.claim()
        assert held.id == copy_of(id)
        assert await bed.settle([held], "retry", error="again") == ["ok"]
        id = held.id
        assert ids_of(await bed.all("dead")) == [id]
    assert (await bed.store.stats("q")).total == 1


async def test_unknown_letters_are_not_replayed():
    bed = await Bed.made()
    (done,) = await bed.end(1)
    (id,) = await bury(bed, 1)
    unknown = id_bits.text((id_bits.number(id) or 0) + 1)
    assert await bed.store.replay("q", "dead", [done, unknown, "x", id]) == 1
    assert (await bed.store.stats("q")).pending == 1


async def test_a_letter_named_twice_moves_once():
    bed = await Bed.made()
    (id,) = await bury(bed, 1)
    assert await bed.store.replay("q", "dead", [id, id]) == 1
    assert [each.id for each in await bed.claim()] == [copy_of(id)]


async def test_a_held_letter_is_not_replayed_or_deleted():
    bed = await Bed.made()
    ids = await bury(bed, 2)
    (held,) = await bed.claim(1, queue=DEAD)
    assert held.id == ids[0]
    assert await bed.store.replay("q", "dead", ids) == 1
    assert await bed.store.discard("q", "dead", ids) == 0
    assert await bed.store.discard("q", "dead") == 0
    assert await bed.settle([held], "complete", queue=DEAD) == ["ok"]
    assert await bed.status(ids[0]) == "completed"


@pytest.mark.parametrize("verb", ["replay", "discard"])
async def test_a_letter_whose_lease_is_over_is_replayed_and_deleted(verb: str):
    bed = await Bed.made()
    (id,) = await bury(bed, 1)
    assert len(await bed.claim(1, 5.0, queue=DEAD)) == 1
    bed.clock.advance(6.0)
    assert await getattr(bed.store, verb)("q", "dead", [id]) == 1


async def test_a_letter_that_another_is_writing_is_replayed():
    """It is listed as dead, so it can be replayed; the other is alive and finishes."""
    sleeper = Sleeper("flush.frozen")
    bed = await Bed.made(steps=sleeper)
    (id,) = await bury(bed, 1, flushed=False)
    flushing = asyncio.create_task(bed.store.maintain("q"))
    await sleeper.asleep.wait()
    bed.store = bed.another()
    assert ids_of(await bed.all("dead")) == [id]
    replaying = asyncio.create_task(bed.store.replay("q", "dead", [id]))
    await asyncio.sleep(0.1)
    sleeper.wake.set()
    await flushing
    assert await replaying == 1


async def test_archived_messages_are_copied():
    bed = await Bed.made()
    ids = await bed.append(20, headers={"k": "v"}, priority=3)
    assert set(await bed.settle(await bed.claim(), "complete", result=b"r")) == {"ok"}
    assert await bed.store.replay("q", "archive", ids[5:8]) == 3
    assert await bed.store.replay("q", "archive", ids[7:10]) == 2
    bed.clock.advance(1.0)
    held = await bed.claim()
    assert [each.id for each in held] == [copy_of(id) for id in ids[5:10]]
    assert [each.headers for each in held] == [{"k": "v", "replayed_from": id} for id in ids[5:10]]
    assert {(each.attempt, each.priority) for each in held} == {(1, 3)}
    assert ids_of(await bed.all("archive")) == ids
    assert set(await bed.settle(held, "complete")) == {"ok"}
    assert await bed.store.replay("q", "archive", ids[5:10]) == 0, "a repeat adds nothing, also later"
    assert ids_of(await bed.all("archive")) == sorted(ids + [each.id for each in held])


async def test_copies_of_copies_are_new():
    bed = await Bed.made()
    (id,) = await bed.end(1)
    for _ in range(3):
        assert await bed.store.replay("q", "archive", [id]) == 1
        held = await bed.claim()
        assert [each.id for each in held] == [copy_of(id)]
        assert await bed.settle(held, "complete") == ["ok"]
        id = held[0].id
    assert (await bed.store.stats("q")).archived == 4


# Deleting.


async def test_archived_messages_are_deleted():
    bed = await Bed.made()
    first = await bed.end(20)
    await bed.flush()
    bed.clock.advance(10.0)
    second = await bed.end(5)
    assert await bed.store.discard("q", "archive", [first[2], first[3], second[4], "x"]) == 3
    assert await bed.store.discard("q", "archive", [first[2]]) == 0
    left = [*first[:2], *first[4:], *second[:4]]
    assert ids_of(await bed.all("archive")) == left
    assert ids_of(await bed.archived()) == left
    assert await bed.get(first[2]) is None
    assert await bed.store.discard("q", "archive", before=bed.clock() - 5.0) == 18
    assert ids_of(await bed.all("archive")) == second[:4]
    assert await bed.store.discard("q", "archive") == 4
    assert await bed.keys("archive/") == []
    stats = await bed.store.stats("q")
    assert (stats.archived, stats.total, stats.completed) == (0, 0, 25)


async def test_dead_letters_are_deleted():
    bed = await Bed.made()
    first = await bury(bed, 20)
    bed.clock.advance(10.0)
    second = await bury(bed, 5, flushed=False)
    assert await bed.store.discard("q", "dead", [first[2], second[4], "x", first[2]]) == 2
    assert ids_of(await bed.all("dead")) == [*first[:2], *first[3:], *second[:4]]
    assert await bed.store.discard("q", "dead", before=bed.clock() - 5.0) == 19
    assert ids_of(await bed.all("dead")) == second[:4]
    assert await bed.store.discard("q", "dead") == 4
    assert await bed.all("dead") == []
    assert await bed.keys("dead/inbox/") == []


async def test_deleting_archived_messages_spares_dead_letters():
    bed = await Bed.made()
    dead = await bury(bed, 2)
    await bed.end(2)
    assert await bed.store.discard("q", "archive") == 2
    assert ids_of(await bed.all("dead")) == dead


async def test_a_purge_spares_letters_and_archive():
    bed = await Bed.made()
    dead, done = await bury(bed, 2), await bed.end(2)
    await bed.append(3)
    await bed.append(2, delay=60.0)
    await bed.append(1, priority=9)
    (held,) = await bed.claim(1)
    assert await bed.store.purge("q") == 5
    assert ids_of(await bed.all("dead")) == dead
    assert ids_of(await bed.all("archive")) == done
    assert await bed.status(held.id) == "processing"
    assert await bed.store.purge("q") == 0


async def test_a_purge_spares_what_is_dead_but_for_its_name():
    """Its last lease is over: to everybody who looks it is dead."""
    bed = await Bed.made(max_attempts=1)
    (id,) = await bed.append()
    await bed.claim(1, 5.0)
    bed.clock.advance(6.0)
    assert await bed.store.purge("q") == 0
    assert await bed.status(id) == "dead"


# Dead letters at work.


async def test_success_ends_a_letter_as_completed():
    bed = await Bed.made()
    ids = await bury(bed, 3)
    held = await bed.claim(queue=DEAD)
    assert [(each.id, each.attempt) for each in held] == [(id, 1) for id in ids]
    assert await bed.settle(held[:2], "complete", result=b"saved", queue=DEAD) == ["ok", "ok"]
    for _ in range(2):
        record = await bed.get(ids[0])
        assert record is not None
        assert (record.status, record.result, record.error) == ("completed", b"saved", "why")
        assert ids_of(await bed.all("archive")) == ids[:2]
        assert ids_of(await bed.all("dead")) == ids[2:]
        stats = await bed.store.stats("q")
        assert (stats.completed, stats.dead, stats.archived, stats.total) == (2, 1, 2, 3)
        await bed.flush()
    assert await bed.settle(held[:1], "complete", queue=DEAD) == ["ok"], "a repeat, from the archive"
    assert await bed.settle(held[:1], "retry", queue=DEAD) == ["lost"]


async def test_failure_leaves_a_letter_dead():
    """However often: it never runs out of attempts, and keeps the count of those that killed it."""
    bed = await Bed.made(max_attempts=1)
    (id,) = await bury(bed, 1)
    for attempt in range(1, 6):
        (held,) = await bed.claim(queue=DEAD)
        assert (held.id, held.attempt, held.alone) == (id, attempt, False)
        assert await bed.settle([held], "retry", delay=5.0, error="still", queue=DEAD) == ["ok"]
        assert await bed.claim(queue=DEAD) == []
        record = await bed.get(id)
        assert record is not None
        assert (record.status, record.attempts) == ("dead", 1)
        bed.clock.advance(5.0)
    assert len(await bed.claim(1, 5.0, queue=DEAD)) == 1
    bed.clock.advance(6.0)
    assert [each.recovered for each in await bed.claim(queue=DEAD)] == [True]


async def test_killing_a_letter_leaves_it_dead():
    bed = await Bed.made()
    (id,) = await bury(bed, 1)
    held = await bed.claim(queue=DEAD)
    assert await bed.settle(held, "dead", error="hopeless", queue=DEAD) == ["ok"]
    await bed.flush()
    assert await bed.status(id) == "dead"
    assert ids_of(await bed.all("dead")) == [id]


async def test_letters_that_wait_outside_the_head_are_as_before():
    bed = await Bed.made()
    ids = await bury(bed, 400)
    before = await bed.get(ids[0])
    held = await bed.claim(400, queue=DEAD)
    assert set(await bed.settle(held, "retry", delay=60.0, queue=DEAD)) == {"ok"}
    await bed.flush()
    record = await bed.get(ids[0])
    assert before is not None
    assert record is not None
    assert (record.status, record.attempts, record.max_attempts) == (
        before.status,
        before.attempts,
        before.max_attempts,
    )


async def test_many_letters_that_fail_all_stay():
    bed = await Bed.made()
    ids = await bury(bed, 400)
    held = await bed.claim(400, queue=DEAD)
    assert set(await bed.settle(held, "retry", delay=60.0, queue=DEAD)) == {"ok"}
    assert ids_of(await bed.all("dead")) == ids
    assert (await bed.store.stats("q")).dead == 400
    await bed.flush()
    assert ids_of(await bed.all("dead")) == ids
    bed.clock.advance(61.3)
    assert [each.id for each in await bed.claim(400, queue=DEAD)] == ids


async def test_the_queue_of_letters_can_be_looked_at():
    bed = await Bed.made()
    ids = await bury(bed, 3)
    assert ids_of(await bed.all("ready", queue=DEAD)) == ids
    await bed.claim(1, queue=DEAD)
    assert ids_of(await bed.all("processing", queue=DEAD)) == ids[:1]
    stats = await bed.store.stats(DEAD)
    assert (stats.pending, stats.processing, stats.dead) == (2, 1, 0)


async def test_letters_survive_a_crash_between_death_and_flush():
    bed = await Bed.made(steps=dies_at("flush.frozen"))
    ids = await bury(bed, 3, flushed=False)
    with pytest.raises(Crash):
        await bed.store.maintain("q")
    bed.store = bed.another()
    assert ids_of(await bed.all("dead")) == ids
    assert {await bed.status(id) for id in ids} == {"dead"}
    await bed.pass_time(6.0)
    await bed.flush()
    assert ids_of(await bed.all("dead")) == ids
    assert [each.id for each in await bed.claim(queue=DEAD)] == ids
