"""Each event once, with its fields, after what it tells is durable."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
import holdfast.events
from holdfast.broker import Broker
from holdfast.config import StoreOptions
from holdfast.stores.log import open_memory
from holdfast.testing.clock import ManualClock
from tests.worker_stores import KINDS, broker_on, finished, until


@pytest.fixture(params=KINDS)
async def broker(request, tmp_path):
    async with broker_on(request.param, tmp_path) as broker:
        yield broker


@pytest.fixture
def heard(broker):
    """Every event, in order."""
    events = []
    for name in holdfast.events.LEVELS:
        broker.on(name, events.append)
    return events


def told(heard, name):
    return [dict(event) for event in heard if event.name == name]


async def test_completed(broker, heard):
    queue = await broker.queue("q")

    async def handle(value):
        await asyncio.sleep(0.02)
        return "result"

    id = await queue.enqueue(1)
    async with queue.worker(handle, concurrency=3, worker_id="me"):
        await finished(queue, id)
        await until(lambda: told(heard, "message.completed"))
    assert [event.name for event in heard] == [
        "message.enqueued",
        "workers.started",
        "message.completed",
        "workers.stopped",
    ]
    (completed,) = told(heard, "message.completed")
    assert 0.015 < completed.pop("duration") < 10
    assert completed == {"queue": "q", "id": id, "attempts": 1, "result": "result"}
    assert told(heard, "workers.started") == [{"queue": "q", "concurrency": 3, "worker_id": "me"}]
    assert told(heard, "workers.stopped") == [{"queue": "q", "worker_id": "me"}]


async def test_retry_then_dead(broker, heard):
    queue = await broker.queue("q", retry=holdfast.Fixed(0.05), max_attempts=2)

    async def fail(value):
        raise ValueError("no")

    id = await queue.enqueue(1)
    async with queue.worker(fail):
        await finished(queue, id)
        await until(lambda: told(heard, "message.dead"))
    (retry,), (dead,) = told(heard, "message.retry"), told(heard, "message.dead")
    due = retry.pop("next_visible_at")
    assert due.tzinfo is UTC
    assert abs(due - datetime.now(UTC)) < timedelta(seconds=30)
    for event, attempts in ((retry, 1), (dead, 2)):
        assert event.pop("error").startswith("ValueError: no")
        assert event == {"queue": "q", "id": id, "attempts": attempts}


async def test_failed_when_there_are_no_dead_letters(broker, heard):
    queue = await broker.queue("q", dead_letter=False, max_attempts=1)

    async def fail(value):
        raise holdfast.Dead("no use")

    id = await queue.enqueue(1)
    async with queue.worker(fail):
        assert await finished(queue, id) == ["failed"]
        await until(lambda: told(heard, "message.failed"))
    assert told(heard, "message.failed") == [{"queue": "q", "id": id, "attempts": 1, "error": "no use"}]


async def test_recovered_and_expired(broker, heard):
    queue = await broker.queue("q")
    again = await queue.enqueue("again")
    spent = await queue.enqueue("spent", max_attempts=1)
    assert len(await queue.dequeue_many(2, lease=0.05)) == 2
    await asyncio.sleep(0.06)

    async def handle(value):
        return value

    async with queue.worker(handle):
        assert await finished(queue, again, spent) == ["completed", "dead"]
    assert told(heard, "message.recovered") == [{"queue": "q", "id": again, "attempts": 2}]
    dead = told(heard, "message.dead")
    assert dead in ([], [{"queue": "q", "id": spent, "attempts": 1, "error": "lease expired"}])


async def test_changed_options_are_taken_up_while_running(tmp_path):
    async with broker_on("toy", tmp_path) as broker:
        queue = await broker.queue("q", max_attempts=9, retry=holdfast.NoRetry())
        attempts = []

        async def fail(value, context):
            attempts.append(context.attempt)
            raise ValueError("no")

        async with queue.worker(fail):
            await finished(queue, await queue.enqueue(1))
            await broker.configure_queue("q", retry={"policy": "fixed", "delay": 0})
            await finished(queue, await queue.enqueue(2))
        assert attempts == [1, *range(1, 10)]


async def test_maintenance_runs_each_interval(tmp_path):
    async with broker_on("toy", tmp_path) as broker:
        queue = await broker.queue("q")
        rounds = []

        async def maintain(name):
            rounds.append(name)
            return {}

        broker.store.maintain = maintain
        async with queue.worker(lambda value: None, maintenance_interval=0.02):
            await until(lambda: len(rounds) >= 3)
        assert set(rounds) == {"q"}


async def test_due_times_are_by_the_stores_clock_whoever_tells():
    clock = ManualClock(1_000_000_000.0)
    async with Broker(await open_memory("", StoreOptions(), clock=clock)) as broker:
        queue = await broker.queue("q", retry=holdfast.Fixed(60))
        due = []
        broker.on("message.retry", lambda event: due.append(event.next_visible_at))
        await queue.enqueue_many([1, 2])
        await (await queue.dequeue()).fail("caller")

        async def fail(value):
            raise RuntimeError("worker")

        async with queue.worker(fail):
            await until(lambda: len(due) == 2)
    assert due == [datetime.fromtimestamp(1_000_000_060.0, UTC)] * 2
