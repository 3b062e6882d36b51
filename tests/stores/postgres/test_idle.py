"""Many empty queues are waited for with one look, and what that look finds is found in time."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import holdfast
from holdfast.stores.base import DEAD
from holdfast.testing.contract.base import eventually

from .fixtures import Database

POLL_SECONDS = 0.1


class Statements:
    """Counts what a store asks its server."""

    def __init__(self, broker: holdfast.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        run = broker.store._pool.run

        async def counted(*args: Any, **options: Any) -> Any:
            self.count += 1
            return await run(*args, **options)

        monkeypatch.setattr(broker.store._pool, "run", counted)


async def looked(broker: holdfast.Broker, queue: str, times: int = 1) -> None:
    """After so many more looks that found the queue empty."""
    idle = broker.store._idle
    for _ in range(times):
        before = max(idle.seen(queue), 0.0)
        await eventually(lambda before=before: idle.seen(queue) > before, "a look")


async def test_twenty_empty_queues_are_one_question_in_a_poll_interval(
    postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(postgres.url, poll_interval=POLL_SECONDS) as broker:
        queues = [await broker.queue(f"q{number}") for number in range(20)]
        waiting = [asyncio.create_task(queue.dequeue(wait=30)) for queue in queues]
        await looked(broker, "q19", 3)
        asked = Statements(broker, monkeypatch)
        await looked(broker, "q19", 10)
        assert asked.count <= 20, "200 claims, and as many looks at what is due, were made before"
        for queue in queues:
            await queue.enqueue(1)
        assert all(await asyncio.gather(*waiting))


async def test_a_wait_goes_on_with_the_one_before(postgres: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async with holdfast.connect(postgres.url, poll_interval=POLL_SECONDS) as broker:
        queue = await broker.queue("jobs")
        assert await queue.dequeue(wait=5 * POLL_SECONDS) is None
        asked = Statements(broker, monkeypatch)
        for _ in range(4):
            assert await queue.dequeue(wait=5 * POLL_SECONDS) is None
        assert asked.count <= 30, "one look an interval and no claim"


async def test_what_nobody_announces_is_found_by_the_look(postgres: Database) -> None:
    async with (
        holdfast.connect(postgres.url) as here,
        holdfast.connect(f"{postgres.url}?notify=false&poll_interval={POLL_SECONDS}") as there,
    ):
        producer, consumer = await here.queue("jobs"), await there.queue("jobs")
        for _ in range(3):
            waiting = asyncio.create_task(consumer.dequeue(wait=20))
            await looked(there, "jobs", 2)
            began = time.monotonic()
            await producer.enqueue(1)
            delivery = await waiting
            assert delivery is not None
            assert time.monotonic() - began < POLL_SECONDS + 2
            await delivery.complete()


async def test_a_short_wait_after_a_long_one_sees_what_was_enqueued_before_it(postgres: Database) -> None:
    async with (
        holdfast.connect(postgres.url) as here,
        holdfast.connect(f"{postgres.url}?notify=false&poll_interval=0.5") as there,
    ):
        producer, consumer = await here.queue("jobs"), await there.queue("jobs")
        assert await consumer.dequeue(wait=1.5) is None
        await producer.enqueue(1)
        assert await consumer.dequeue(wait=0.05) is not None


async def test_messages_that_become_due_have_timers_after_looks_in_vain(postgres: Database) -> None:
    async with (
        holdfast.connect(postgres.url) as here,
        holdfast.connect(postgres.url, poll_interval=POLL_SECONDS) as there,
    ):
        producer, consumer = await here.queue("jobs"), await there.queue("jobs")
        waiting = asyncio.create_task(consumer.dequeue(wait=20))
        await looked(there, "jobs", 2)
        await producer.enqueue("later", delay=1.0)
        delivery = await waiting
        assert delivery is not None
        assert delivery.value == "later"


async def test_a_queue_that_another_deletes_ends_the_wait(postgres: Database) -> None:
    async with (
        holdfast.connect(postgres.url) as here,
        holdfast.connect(f"{postgres.url}?notify=false&poll_interval={POLL_SECONDS}") as there,
    ):
        await here.queue("jobs")
        consumer = await there.queue("jobs")
        waiting = asyncio.create_task(consumer.dequeue(wait=20))
        await looked(there, "jobs", 2)
        await here.delete_queue("jobs")
        with pytest.raises(holdfast.QueueNotFound):
            await asyncio.wait_for(waiting, 5)


async def test_dead_letters_are_looked_at_by_the_clock(postgres: Database) -> None:
    """They are not among the counts of what can be claimed."""
    async with (
        holdfast.connect(postgres.url) as here,
        holdfast.connect(f"{postgres.url}?notify=false&poll_interval={POLL_SECONDS}") as there,
    ):
        queue = await here.queue("jobs", max_attempts=1)
        await there.queue("jobs")
        waiting = asyncio.create_task(there.store.claim("jobs" + DEAD, 1, 30.0, wait=20.0))
        await queue.enqueue(1)
        delivery = await queue.dequeue()
        assert delivery is not None
        await delivery.fail("no")
        assert (await asyncio.wait_for(waiting, 10)).messages


async def test_upkeep_rests_while_nothing_happens(postgres: Database) -> None:
    async with (
        holdfast.connect(postgres.url) as here,
        holdfast.connect(postgres.url, poll_interval=POLL_SECONDS) as there,
    ):
        producer, consumer = await here.queue("jobs"), await there.queue("jobs")
        waiting = asyncio.create_task(consumer.dequeue(wait=30))
        await looked(there, "jobs")
        assert not there.store.is_resting("jobs"), "there was no upkeep yet"
        await there.store.maintain("jobs")  # makes the days to come
        await there.store.maintain("jobs")
        await eventually(lambda: there.store._listener.works, "notifications")
        await eventually(lambda: there.store.is_resting("jobs"), "a look after it")
        await here.queue("jobs", max_attempts=7)
        await eventually(lambda: not there.store.is_resting("jobs"), "options that must be read")
        await there.store.maintain("jobs")
        await eventually(lambda: there.store.is_resting("jobs"), "a look after it")
        await producer.enqueue(1)
        assert await waiting is not None
        assert not there.store.is_resting("jobs")
