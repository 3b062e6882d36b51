"""How a worker asks for messages: one call at a time, as many as it can use, hardly any when idle."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast.broker import Broker
from holdfast.stores.capabilities import Capabilities
from holdfast.worker.prefetch import ENOUGH_BYTES, Prefetch
from tests.toy_store import ToyStore
from tests.worker_stores import KINDS, broker_on, finished, until


class Watched(ToyStore):
    """Notes every claim and settle; both take a moment, as on a disk."""

    def __init__(self):
        super().__init__()
        self.claims, self.settles, self.claiming, self.most_claiming = [], [], 0, 0

    async def claim(self, queue, limit, lease, *, wait=0.0, worker=None):
        self.claiming += 1
        self.most_claiming = max(self.most_claiming, self.claiming)
        self.claims.append((limit, wait))
        try:
            await asyncio.sleep(0.001)
            return await super().claim(queue, limit, lease, wait=wait, worker=worker)
        finally:
            self.claiming -= 1

    async def settle(self, queue, settlements):
        await asyncio.sleep(0.001)
        self.settles.append(len(settlements))
        return await super().settle(queue, settlements)


@pytest.fixture(params=KINDS)
async def broker(request, tmp_path):
    async with broker_on(request.param, tmp_path) as broker:
        yield broker


async def nothing(value):
    return None


class Dear(Watched):
    """Says that claims are dear: they share a trip."""

    capabilities = Capabilities(prefetch=90)


async def test_where_claims_are_dear_several_calls_go_together_none_larger_than_batch_size():
    store = Dear()
    async with Broker(store) as broker:
        queue = await broker.queue("q")
        ids = await queue.enqueue_many(list(range(6000)))
        async with queue.worker(nothing, concurrency=20):
            assert set(await finished(queue, *ids)) == {"completed"}
    assert 1 < store.most_claiming <= 8
    assert max(limit for limit, _ in store.claims) == 100
    assert sum(store.settles) == 6000


async def test_where_claims_are_dear_half_of_what_was_claimed_in_advance_is_used_up_first():
    store = Dear()
    async with Broker(store) as broker:
        queue = await broker.queue("q")
        ids = await queue.enqueue_many(list(range(200)))

        async def handle(value):
            await asyncio.sleep(0.005)

        async with queue.worker(handle, concurrency=2, prefetch=20):
            assert set(await finished(queue, *ids)) == {"completed"}
    assert min(limit for limit, _ in store.claims) > 10, "not one for each that has ended"


async def test_where_claims_are_dear_slow_handlers_after_quick_ones_hold_up_nothing():
    """Much was claimed in advance, then it is given back."""
    store, slow, seen = Dear(), asyncio.Event(), 0
    async with Broker(store) as broker:
        queue = await broker.queue("q")
        ids = await queue.enqueue_many(list(range(6000)))

        async def handle(value):
            nonlocal seen
            seen += 1
            if 4000 < seen <= 4010:
                await slow.wait()

        async def is_thin():
            return seen >= 4010 and (await queue.stats()).processing <= 10 + 90

        async with queue.worker(handle, concurrency=10):
            await until(is_thin)
            slow.set()
            assert set(await finished(queue, *ids)) == {"completed"}


async def test_what_some_of_several_calls_brought_is_kept_when_others_fail():
    class Limping(Dear):
        failures = 0

        async def claim(self, queue, limit, lease, *, wait=0.0, worker=None):
            claims = await super().claim(queue, limit, lease, wait=wait, worker=worker)
            if self.claiming and not claims.messages and self.failures < 20:
                self.failures += 1
                raise OSError("gone")
            return claims

    store = Limping()
    async with Broker(store) as broker:
        queue = await broker.queue("q")
        ids = await queue.enqueue_many(list(range(3000)))
        async with queue.worker(nothing, concurrency=20):
            assert set(await finished(queue, *ids)) == {"completed"}
    assert sum(store.settles) == 3000


async def test_claims_are_one_at_a_time_and_settles_are_gathered():
    store = Watched()
    async with Broker(store) as broker:
        queue = await broker.queue("q")
        ids = await queue.enqueue_many(list(range(300)))
        async with queue.worker(nothing, concurrency=30):
            assert set(await finished(queue, *ids)) == {"completed"}
    assert store.most_claiming == 1
    assert max(limit for limit, _ in store.claims) <= 30 + 100
    assert sum(store.settles) == 300
    assert len(store.settles) < 30


async def test_no_more_is_claimed_than_lanes_can_take():
    store = Watched()
    async with Broker(store) as broker:
        queue = await broker.queue("q")
        await queue.enqueue_many(list(range(50)))
        free = asyncio.Event()

        async def handle(value):
            await free.wait()

        async with queue.worker(handle, concurrency=4, prefetch=3):
            await until(lambda: status_count(queue, 7))
            await asyncio.sleep(0.05)
            assert (await queue.stats()).processing == 7
            free.set()


async def status_count(queue, count):
    return (await queue.stats()).processing == count


async def test_an_idle_worker_waits_in_one_long_poll_and_picks_up_fast(broker):
    queue = await broker.queue("q")
    seen: list[float] = []

    async def note(value):
        seen.append(time.monotonic())

    async with queue.worker(note):
        await asyncio.sleep(0.2)
        before = time.process_time()
        await asyncio.sleep(1.0)
        used = time.process_time() - before
        delays = []
        for _ in range(10):
            sent = time.monotonic()
            count = len(seen)
            await queue.enqueue(1)
            await until(lambda count=count: len(seen) > count)
            delays.append(seen[-1] - sent)
    assert used < 0.1
    assert sorted(delays)[5] < 0.25


async def test_idle_claims_are_few():
    store = Watched()
    async with Broker(store) as broker:
        queue = await broker.queue("q")
        async with queue.worker(nothing):
            await asyncio.sleep(0.3)
    assert len(store.claims) <= 2
    assert store.claims[-1][1] > 0


async def test_a_paused_queue_is_not_hammered_and_resumes(broker):
    queue = await broker.queue("q")
    await queue.pause()
    id = await queue.enqueue(1)
    async with queue.worker(nothing):
        await asyncio.sleep(0.2)
        assert await queue.status(id) == "pending"
        await queue.resume()
        assert await finished(queue, id) == ["completed"]


async def test_claims_that_answer_empty_at_once_are_paced():
    class Hasty(Watched):
        async def claim(self, queue, limit, lease, *, wait=0.0, worker=None):
            return await super().claim(queue, limit, lease, wait=0.0, worker=worker)

    store = Hasty()
    async with Broker(store) as broker:
        queue = await broker.queue("q")
        async with queue.worker(nothing):
            await asyncio.sleep(0.5)
            assert len(store.claims) < 10
            id = await queue.enqueue(1)
            assert await finished(queue, id) == ["completed"]


async def test_work_spreads_over_workers(broker):
    queue = await broker.queue("q")
    taken: dict[str, int] = {}

    async def handle(value, context):
        taken[context.worker_id] = taken.get(context.worker_id, 0) + 1
        await asyncio.sleep(0.01)

    ids = await queue.enqueue_many(list(range(90)))
    workers = [queue.worker(handle, concurrency=3, worker_id=f"w{number}") for number in range(3)]
    for worker in workers:
        await worker.start()
    assert set(await finished(queue, *ids)) == {"completed"}
    for worker in workers:
        await worker.stop()
    assert sum(taken.values()) == 90
    assert len(taken) == 3


async def test_every_message_once_with_many_workers(broker):
    queue = await broker.queue("q")
    seen = []

    async def handle(value):
        seen.append(value)

    ids = await queue.enqueue_many(list(range(30)))
    workers = [queue.worker(handle, concurrency=2) for _ in range(25)]
    await asyncio.gather(*(worker.start() for worker in workers))
    assert set(await finished(queue, *ids)) == {"completed"}
    await asyncio.gather(*(worker.stop() for worker in workers))
    assert sorted(seen) == list(range(30))


async def test_messages_that_wait_in_vain_for_a_lane_are_given_back(broker):
    queue = await broker.queue("q", lease=600)
    free, slow = asyncio.Event(), []

    async def handle(value):
        if value == "slow":
            slow.append(value)
            await free.wait()

    await queue.enqueue_many([0] * 2000)
    await queue.enqueue_many(["slow"] * 2 + [0] * 200)
    async with queue.worker(handle, concurrency=2):
        await until(lambda: len(slow) == 2)
        await until(lambda: only_two_held(queue))
        free.set()
        await until(lambda: is_empty(queue))
    assert {record.attempts for record in await queue.archive.list(limit=5000)} == {1}


async def only_two_held(queue):
    return (await queue.stats()).processing == 2


async def is_empty(queue):
    stats = await queue.stats()
    return stats.pending == stats.processing == stats.retry == 0


def test_prefetch_learns():
    learned = Prefetch(0, step=10, most=100)
    learned.answered(full=True, dry=False, waiting=0)
    learned.answered(full=False, dry=True, waiting=0)
    assert learned.extra == 0
    seen = []
    for _ in range(6):
        learned.answered(full=True, dry=True, waiting=0)
        seen.append(learned.extra)
    assert seen == [10, 20, 40, 80, 100, 100]
    learned.answered(full=True, dry=False, waiting=5)
    assert learned.extra == 50
    learned.answered(full=True, dry=True, waiting=0, size=ENOUGH_BYTES)  # as much as one wants to hold
    assert learned.extra == 50
    learned.forget()
    assert learned.extra == 0


def test_prefetch_that_was_given_stays():
    given = Prefetch(7, step=0, most=0)
    for waiting in (0, 9):
        given.answered(full=True, dry=not waiting, waiting=waiting)
    assert given.extra == 7
    assert not given.is_learned
