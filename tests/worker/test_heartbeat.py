"""Leases are kept while a handler runs; one that is lost all the same costs its outcome, never the worker."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from holdfast.broker import Broker
from tests.toy_store import ToyStore
from tests.worker_stores import KINDS, broker_on, finished, until

LEASE = 0.3


@pytest.fixture(params=KINDS)
async def broker(request, tmp_path):
    async with broker_on(request.param, tmp_path) as broker:
        yield broker


class OnlyAsync(ToyStore):
    """A store whose leases cannot be extended from a thread."""

    def extend_from_thread(self, queue, leases, seconds):
        return None


async def run_longer_than_the_lease(broker, handler):
    queue = await broker.queue("q", lease=LEASE)
    lost = []
    broker.on("lease.lost", lost.append)
    id = await queue.enqueue("x")
    async with queue.worker(handler):
        record = await queue.wait(id, timeout=20)
    assert (record.status, record.attempts, lost) == ("completed", 1, [])


async def test_leases_are_extended_while_an_async_handler_runs(broker):
    async def slow(value):
        await asyncio.sleep(LEASE * 3)

    await run_longer_than_the_lease(broker, slow)


async def test_leases_are_extended_while_a_sync_handler_runs(broker):
    await run_longer_than_the_lease(broker, lambda value: time.sleep(LEASE * 3))


async def test_leases_are_extended_while_the_event_loop_is_blocked(broker):
    async def rude(value):
        time.sleep(LEASE * 3)  # noqa: ASYNC251 - that is the point

    await run_longer_than_the_lease(broker, rude)


async def test_leases_are_extended_by_a_task_where_threads_cannot():
    async def slow(value):
        await asyncio.sleep(LEASE * 3)

    async with Broker(OnlyAsync()) as broker:
        await run_longer_than_the_lease(broker, slow)


async def test_buffered_messages_keep_their_leases_too(broker):
    queue = await broker.queue("q", lease=LEASE)
    seen = []

    async def slow(value, context):
        seen.append((value, context.attempt))
        await asyncio.sleep(LEASE * 2)

    ids = await queue.enqueue_many([1, 2, 3])
    async with queue.worker(slow, concurrency=1, prefetch=2):
        assert await finished(queue, *ids) == ["completed"] * 3
    assert seen == [(1, 1), (2, 1), (3, 1)]


class Thief(ToyStore):
    """Answers every extension with "lost", after having made it so."""

    def extend_from_thread(self, queue, leases, seconds):
        for id, _ in leases:
            row = self.room(queue).rows[id]
            row.lease_end, row.token = self.now() + 60, "somebody else"
        return [None] * len(leases)


async def test_a_lost_lease_cancels_the_async_handler_and_its_lane_goes_on():
    async with Broker(Thief()) as broker:
        queue = await broker.queue("q", lease=LEASE)
        lost, ended, errors = [], [], []
        broker.on("lease.lost", lambda event: lost.append(event.id))

        async def handle(value):
            if value == "quick":
                return
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(value)

        id = await queue.enqueue("slow")
        async with queue.worker(handle, concurrency=1, on_error=lambda *a: errors.append(a)):
            await until(lambda: lost)
            await until(lambda: ended)
            quick = await queue.enqueue("quick")
            assert await finished(queue, quick) == ["completed"]
        assert (lost, ended, errors) == ([id], ["slow"], [])
        assert await queue.status(id) == "processing"  # by somebody else


async def test_a_handler_that_swallows_its_cancellation_still_loses_its_outcome():
    async with Broker(Thief()) as broker:
        queue = await broker.queue("q", lease=LEASE)
        swallowed = []

        async def stubborn(value):
            if value == "quick":
                return "done"
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(value)
            return "too late"

        id = await queue.enqueue("slow")
        async with queue.worker(stubborn, concurrency=1):
            await until(lambda: swallowed)
            quick = await queue.enqueue("quick")
            assert await finished(queue, quick) == ["completed"]
        assert await queue.status(id) == "processing"


async def test_a_sync_handler_with_a_lost_lease_runs_on_and_can_see_it():
    async with Broker(Thief()) as broker:
        queue = await broker.queue("q", lease=LEASE)
        lost, saw = [], []
        broker.on("lease.lost", lambda event: lost.append(event.id))
        go_on = threading.Event()

        def handle(value, context):
            if value == "slow":
                go_on.wait(20)
                saw.append(context.lost)

        id = await queue.enqueue("slow")
        async with queue.worker(handle, concurrency=1):
            await until(lambda: lost)
            go_on.set()
            quick = await queue.enqueue("quick")
            assert await finished(queue, quick) == ["completed"]
        assert (lost, saw) == ([id], [True])
        assert await queue.status(id) == "processing"


async def test_a_lost_lease_takes_a_message_out_of_the_buffer():
    async with Broker(Thief()) as broker:
        queue = await broker.queue("q", lease=LEASE)
        lost, ran, go_on = [], [], asyncio.Event()
        broker.on("lease.lost", lambda event: lost.append(event.id))

        async def handle(value):
            ran.append(value)
            try:
                await go_on.wait()
            finally:
                ran.append("end")

        ids = await queue.enqueue_many([1, 2])
        async with queue.worker(handle, concurrency=1, prefetch=1):
            await until(lambda: len(lost) == 2)
        assert sorted(lost) == sorted(ids)
        assert ran == [1, "end"]


async def test_an_outcome_that_comes_too_late_is_an_event_and_nothing_else(broker):
    queue = await broker.queue("q", lease=60)
    lost, completed, go_on, started = [], [], asyncio.Event(), asyncio.Event()
    broker.on("lease.lost", lambda event: lost.append(event.id))
    broker.on("message.completed", lambda event: completed.append(event.id))

    async def handle(value):
        started.set()
        await go_on.wait()

    id = await queue.enqueue("x")
    async with queue.worker(handle, lease=0.2, concurrency=1) as worker:
        await asyncio.wait_for(started.wait(), 20)
        worker._current._heartbeat._closing.set()  # as if the process had been asleep
        await until(lambda: steal(queue))
        go_on.set()
        await until(lambda: lost)
    assert (lost, completed) == ([id], [])


async def steal(queue):
    """Claim it once its lease is over, as another process would."""
    return bool((await queue.store.claim(queue.name, 1, 60.0)).messages)


async def test_a_lost_lease_cancels_a_batch_only_when_all_of_it_is_lost():
    class HalfThief(Thief):
        def extend_from_thread(self, queue, leases, seconds):
            stolen = [lease for lease in leases if self.room(queue).rows[lease[0]].envelope.payload == b"1"]
            super().extend_from_thread(queue, stolen, seconds)
            rest = super(Thief, self).extend_from_thread
            return [None if lease in stolen else rest(queue, [lease], seconds)[0] for lease in leases]

    async with Broker(HalfThief()) as broker:
        queue = await broker.queue("q", lease=LEASE)
        lost, go_on = [], asyncio.Event()
        broker.on("lease.lost", lambda event: lost.append(event.id))

        async def handle(values):
            await go_on.wait()

        one, two = await queue.enqueue_many([1, 2])
        async with queue.worker(handle, batch=2, concurrency=1):
            await until(lambda: lost)
            go_on.set()
            assert await finished(queue, two) == ["completed"]
        assert lost == [one]
        assert await queue.status(one) == "processing"
