"""A store that is away: workers wait, keep what they have, and go on."""

from __future__ import annotations

import asyncio
import logging

import pytest

import holdfast
from holdfast.broker import Broker
from tests.toy_store import ToyStore
from tests.worker_stores import finished, until


class Flaky(ToyStore):
    """Raises `trouble` from the named calls while it is set."""

    def __init__(self):
        super().__init__()
        self.trouble: Exception | None = None
        self.calls = ("claim", "settle", "extend")
        self.refused = 0
        self.lose_reply = False

    def check_trouble(self, call):
        if self.trouble is not None and call in self.calls:
            self.refused += 1
            raise self.trouble

    async def claim(self, queue, limit, lease, *, wait=0.0, worker=None):
        self.check_trouble("claim")
        return await super().claim(queue, limit, lease, wait=min(wait, 0.05), worker=worker)

    async def settle(self, queue, settlements):
        self.check_trouble("settle")
        answers = await super().settle(queue, settlements)
        if self.lose_reply:
            self.lose_reply = False
            raise holdfast.Unavailable("the reply was lost")
        return answers

    def extend_from_thread(self, queue, leases, seconds):
        self.check_trouble("extend")
        return super().extend_from_thread(queue, leases, seconds)


@pytest.fixture
def store():
    return Flaky()


@pytest.fixture
async def broker(store):
    async with Broker(store) as broker:
        yield broker


async def nothing(value):
    return None


@pytest.mark.parametrize("trouble", [holdfast.Unavailable("away"), OSError("reset"), RuntimeError("a driver's own")])
async def test_a_worker_goes_on_after_the_store_was_away(broker, store, trouble, caplog):
    queue = await broker.queue("q")
    caplog.set_level(logging.INFO)
    async with queue.worker(nothing):
        first = await queue.enqueue(1)
        assert await finished(queue, first) == ["completed"]
        store.trouble = trouble
        second = await queue.enqueue(2)
        await until(lambda: store.refused >= 3)
        store.trouble = None
        assert await finished(queue, second) == ["completed"]
        await until(lambda: "the store is back" in caplog.text)
    warnings = [r for r in caplog.records if r.name == "holdfast.worker" and r.levelno == logging.WARNING]
    assert len(warnings) == 1  # once per outage


async def test_outcomes_are_kept_until_the_store_takes_them_and_nothing_is_claimed_meanwhile(broker, store):
    queue = await broker.queue("q", lease=0.5)
    store.calls = ("settle",)
    runs, completed = [], []

    async def handle(value):
        runs.append(value)
        if value == 1:
            store.trouble = holdfast.Unavailable("away")
        return value

    first = await queue.enqueue(1)
    async with queue.worker(handle, concurrency=2, on_complete=lambda d, r: completed.append(r)):
        await until(lambda: store.refused >= 3)
        second = await queue.enqueue(2)
        await asyncio.sleep(0.7)  # longer than the lease: it is kept
        assert completed == []
        assert runs == [1]
        store.trouble = None
        assert await finished(queue, first, second) == ["completed"] * 2
    assert runs == [1, 2]
    assert completed == [1, 2]


async def test_a_lost_reply_is_repeated_with_the_same_token(broker, store):
    queue = await broker.queue("q")
    lost = []
    broker.on("lease.lost", lost.append)
    store.lose_reply = True
    id = await queue.enqueue(1)
    async with queue.worker(nothing):
        assert await finished(queue, id) == ["completed"]
        await until(lambda: not store.lose_reply)
    assert lost == []


async def test_a_queue_that_is_gone_for_a_while(broker, store, caplog):
    queue = await broker.queue("q")
    async with queue.worker(nothing):
        await broker.delete_queue("q", force=True)
        await until(lambda: "QueueNotFound" in caplog.text)
        queue = await broker.queue("q")
        id = await queue.enqueue(1)
        assert await finished(queue, id) == ["completed"]


async def test_extensions_that_fail_are_tried_again(broker, store, caplog):
    queue = await broker.queue("q", lease=0.3)
    store.calls = ("extend",)
    store.trouble = holdfast.Unavailable("away")
    free = asyncio.Event()

    async def handle(value):
        await free.wait()

    id = await queue.enqueue(1)
    async with queue.worker(handle, concurrency=1):
        await until(lambda: store.refused >= 1)
        store.trouble = None
        await asyncio.sleep(0.5)
        free.set()
        record = await queue.wait(id, timeout=20)
    assert (record.status, record.attempts) == ("completed", 1)
    assert "cannot extend" in caplog.text


async def test_a_fenced_store_ends_the_worker(broker, store, caplog):
    queue = await broker.queue("q")
    worker = queue.worker(nothing)
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.is_running)
    store.trouble = holdfast.Fenced("another writer has it")
    with pytest.raises(holdfast.Fenced):
        await asyncio.wait_for(running, 20)
    assert not worker.is_running
    assert "stops: Fenced" in caplog.text


async def test_stop_has_a_deadline_even_when_nothing_can_be_settled(broker, store, monkeypatch, caplog):
    monkeypatch.setattr("holdfast.worker.run.SETTLE_S", 0.2)
    queue = await broker.queue("q")
    store.calls = ("settle",)
    store.trouble = holdfast.Unavailable("away")
    await queue.enqueue(1)
    worker = queue.worker(nothing)
    await worker.start()
    await until(lambda: store.refused)
    await asyncio.wait_for(worker.stop(grace=0), 10)
    assert "could not be settled" in caplog.text


async def test_an_outcome_the_store_will_never_take_fails_its_message_only(broker, store):
    queue = await broker.queue("q", max_attempts=1)
    settle = store.settle

    async def picky(name, settlements):
        if any(settlement.result and len(settlement.result) > 100 for settlement in settlements):
            raise holdfast.MessageTooLarge("a result of 102 bytes", actual=102, limit=100)
        return await settle(name, settlements)

    store.settle = picky

    async def handle(value):
        return "x" * value

    ids = await queue.enqueue_many([1, 100, 2])
    async with queue.worker(handle, concurrency=3):
        assert await finished(queue, *ids) == ["completed", "dead", "completed"]
    assert (await queue.get(ids[1])).error.startswith("MessageTooLarge: a result of 102 bytes")


async def test_outcomes_of_a_deleted_queue_do_not_hold_up_the_stop(broker, store):
    queue = await broker.queue("q")
    started = asyncio.Event()

    async def handle(value):
        started.set()
        await broker.delete_queue("q", force=True)

    await queue.enqueue(1)
    worker = queue.worker(handle)
    await worker.start()
    await asyncio.wait_for(started.wait(), 20)
    await asyncio.wait_for(worker.stop(), 10)
