"""An opened queue: what is in hand, room for more, options that others change."""

import asyncio

import pytest

from holdfast import Broker, QueueFull
from holdfast.config import QueueOptions, StoreOptions
from holdfast.stores.records import Stats
from tests.toy_store import ToyStore


class Clock:
    def __init__(self):
        self.now = 1_700_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(clock):
    return ToyStore(clock)


@pytest.fixture
def broker(store):
    return Broker(store)


async def test_handles_of_one_queue_share_what_is_in_hand(broker):
    one, other = await broker.queue("q"), await broker.queue("q", dict)
    await one.enqueue({"a": 1})
    delivery = await one.dequeue()
    await other.complete(delivery.id)
    assert await one.status(delivery.id) == "completed"


async def test_what_is_settled_or_expired_is_forgotten(broker, clock):
    queue = await broker.queue("q", lease=10)
    held = queue._opened.held
    await queue.enqueue_many(range(5))
    first, *rest = await queue.dequeue_many(5)
    await queue.complete(first)
    assert held.find(first.id) is None
    await queue.extend(rest[0], 100)
    clock.now += 30
    await queue.dequeue()  # another look: one lease later
    assert held.find(rest[0].id) is rest[0]
    assert all(held.find(one.id) is not one for one in rest[1:])


async def test_an_older_lease_does_not_take_the_newer_out_of_our_hands(broker, clock):
    queue = await broker.queue("q", lease=10)
    await queue.enqueue(1)
    old = await queue.dequeue()
    clock.now += 11
    new = await queue.dequeue()
    assert await queue.complete_many([old]) == [False]
    await queue.complete(new.id)


async def test_queue_full_is_exact_for_one_producer(broker):
    queue = await broker.queue("q", max_messages=10)
    await queue.enqueue_many(range(8))
    with pytest.raises(QueueFull, match="q holds 8 messages, its limit is 10"):
        await queue.enqueue_many(range(3))
    await queue.enqueue(1)
    await queue.enqueue(1)
    with pytest.raises(QueueFull):
        await queue.enqueue(1)
    delivery = await queue.dequeue()
    await delivery.complete()
    await queue.enqueue(1)
    assert (await queue.stats()).pending == 10


async def test_queue_full_counts_concurrent_calls(broker):
    queue = await broker.queue("q", max_messages=50)
    answers = await asyncio.gather(*(queue.enqueue(i) for i in range(200)), return_exceptions=True)
    assert sum(isinstance(answer, str) for answer in answers) == 50
    assert all(isinstance(answer, str | QueueFull) for answer in answers)
    assert (await queue.stats()).pending == 50


async def test_a_count_is_not_taken_for_every_message(clock):
    class Counting(ToyStore):
        counts = 0

        async def stats(self, queue) -> Stats:
            self.counts += 1
            return await super().stats(queue)

    store = Counting(clock)
    queue = await Broker(store).queue("q", max_messages=1000)
    for i in range(100):
        await queue.enqueue(i)
    assert store.counts <= 2  # one, and another should this second have been a long one


async def test_an_append_that_fails_leaves_the_room_usable(clock):
    class Breaking(ToyStore):
        broken = False

        async def append(self, queue, messages):
            if self.broken:
                raise RuntimeError("away")
            return await super().append(queue, messages)

    store = Breaking(clock)
    queue = await Broker(store).queue("q", max_messages=3)
    store.broken = True
    for _ in range(5):
        with pytest.raises(RuntimeError):
            await queue.enqueue(1)
    store.broken = False
    assert len(await queue.enqueue_many([1, 2, 3])) == 3


async def test_options_changed_by_others_are_seen(store):
    queue = await Broker(store, options=StoreOptions(maintenance_interval=1e-9)).queue("q", lease=10)
    await store.configure("q", QueueOptions(lease=77, max_message_size=5))
    await queue.enqueue(1)
    assert queue.options.lease == 77


async def test_refresh_reads_them_at_once(broker, store):
    queue = await broker.queue("q", lease=10)
    await store.configure("q", QueueOptions(lease=77))
    assert queue.options.lease == 10
    await queue.refresh()
    assert queue.options.lease == 77
