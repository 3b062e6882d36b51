"""Dead letters and the archive: pages, replay, deletion."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Broker, ConfigError
from tests.toy_store import ToyStore


class Clock:
    def __init__(self):
        self.now = 1_700_000_000.0

    def __call__(self):
        self.now += 0.001
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def queue(clock):
    return await Broker(ToyStore(clock)).queue("q", max_attempts=1)


async def dead(queue, count):
    await queue.enqueue_many([{"n": n} for n in range(count)], headers={"h": "x"}, priority=4)
    for delivery in await queue.dequeue_many(count):
        await delivery.fail("boom")
    return [record.id for record in await queue.dead.list(limit=count)]


async def completed(queue, count):
    await queue.enqueue_many(range(count))
    deliveries = await queue.dequeue_many(count)
    await queue.complete_many(deliveries)
    return [delivery.id for delivery in deliveries]


async def test_pages_in_id_order(queue):
    ids = await dead(queue, 25)
    assert ids == sorted(ids)
    seen, after = [], None
    while page := await queue.dead.list(limit=10, after=after):
        seen += [record.id for record in page]
        after = seen[-1]
    assert seen == ids
    assert await queue.dead.count() == 25
    record = (await queue.dead.list(1))[0]
    assert (record.status, record.error, record.value, record.headers) == ("dead", "boom", {"n": 0}, {"h": "x"})


async def test_replay_some_then_all(queue):
    ids = await dead(queue, 5)
    assert await queue.dead.replay(ids[:2]) == 2
    assert await queue.dead.replay(ids[:2]) == 0
    assert await queue.dead.replay(ids[2]) == 1
    assert await queue.dead.replay() == 2
    assert await queue.dead.count() == 0
    again = await queue.dequeue_many(10)
    assert sorted(delivery.headers["replayed_from"] for delivery in again) == ids
    assert {(delivery.attempt, delivery.priority, delivery.headers["h"]) for delivery in again} == {(1, 4, "x")}


async def test_replay_all_takes_more_than_one_page(queue):
    await dead(queue, 2500)
    assert await queue.dead.replay() == 2500


async def test_what_dies_while_replaying_is_left_for_the_next_time(queue, clock):
    await dead(queue, 2)
    clock.now -= 60  # as if they died after the replay began
    assert await queue.dead.replay() == 0
    clock.now += 120
    assert await queue.dead.replay() == 2


async def test_delete_and_purge(queue):
    ids = await dead(queue, 5)
    assert await queue.dead.delete(ids[:2]) == 2
    assert await queue.dead.delete(ids[:2]) == 0
    assert await queue.dead.purge() == 3


async def test_archive(queue):
    ids = await completed(queue, 3)
    assert [record.id for record in await queue.archive.list()] == ids
    assert await queue.archive.count() == 3
    assert await queue.archive.replay(ids[:1]) == 1
    assert await queue.archive.replay(ids[:1]) == 0
    assert await queue.archive.count() == 3
    assert await queue.archive.delete(ids[:1]) == 1
    assert await queue.archive.purge() == 2


async def test_archive_replay_by_time(queue, clock):
    await completed(queue, 2)
    clock.now += 3600
    middle = datetime.fromtimestamp(clock.now, UTC)
    await completed(queue, 3)
    hour = timedelta(hours=1)
    assert await queue.archive.replay(since=middle + hour) == 0
    assert await queue.archive.replay(until=middle) == 2
    assert await queue.archive.replay(since=middle, until=middle + hour) == 3
    assert await queue.archive.replay() == 0  # all of them are back already


async def test_bad_input(queue):
    with pytest.raises(ConfigError, match="limit"):
        await queue.dead.list(limit=0)
    with pytest.raises(ConfigError, match="time zone"):
        await queue.archive.replay(since=datetime(2024, 5, 1))
    with pytest.raises(ConfigError, match="not both"):
        await queue.archive.replay(["a"], since=datetime.now(UTC))
    assert await queue.dead.replay([]) == 0
    assert repr(queue.dead) == "DeadLetters('q')"


async def test_dead_letters_have_workers(queue):
    (id,) = await dead(queue, 1)
    seen = []

    async def handler(value, context):
        seen.append((value, context.queue))

    async with queue.dead.worker(handler):
        record = await queue.wait(id, 10) if not seen else None
        while record is not None and record.status == "dead":
            await queue.store.watch("q", 1)
            record = await queue.get(id)
    assert seen == [({"n": 0}, "q/dead")]
    assert await queue.status(id) == "completed"
    assert queue.name == "q"


@pytest.mark.parametrize("view", ["dead", "archive"])
@pytest.mark.parametrize("id", [5, 1.5, True])
async def test_what_is_no_id_is_refused(queue, view, id):
    letters = getattr(queue, view)
    for call in (letters.list(after=id), letters.delete([id]), letters.replay([id])):
        with pytest.raises(ConfigError, match="an id is text"):
            await call
    for call in (letters.delete(id), letters.replay(id)):
        with pytest.raises(ConfigError, match="an id is text"):
            await call
