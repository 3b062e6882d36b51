"""What the rounds of workers ask a store for, also when it is away."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import holdfast
from holdfast.broker import Broker
from holdfast.errors import Unavailable
from holdfast.scheduling import Schedules
from holdfast.testing.contract.base import working
from holdfast.worker.schedule_rounds import Rounds
from tests.servers.bucket import BucketServer
from tests.servers.proxy import Proxy
from tests.worker_stores import until


class Counting:
    """A store that counts how often its schedules are asked for."""

    def __init__(self, stored: Any) -> None:
        self._stored = stored
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._stored, name)


async def rounds_of(broker: Broker, seconds: float) -> list[str]:
    """What a worker's rounds ask for in so many seconds."""
    counting = Counting(broker.store.schedules)

    class Store:
        schedules = counting
        clock = broker.store.clock

    running = asyncio.create_task(Rounds(broker.schedules, lambda: Store(), "jobs").run())  # type: ignore[arg-type,return-value]
    await asyncio.sleep(seconds)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return [call for call in counting.calls if call != "seen"]


async def test_with_nothing_due_a_worker_looks_once_in_a_while() -> None:
    async with holdfast.connect(f"memory://{uuid4().hex}") as broker:
        await broker.queue("jobs")
        await broker.schedules.put(holdfast.Schedule(name="far", queue="jobs", cron="0 0 1 1 *"))
        assert await rounds_of(broker, 1.0) == ["of"]


async def test_a_store_that_is_away_is_asked_again() -> None:
    async with holdfast.connect(f"memory://{uuid4().hex}") as broker:
        await broker.queue("jobs")
        await broker.schedules.put(holdfast.Schedule(name="a", queue="jobs", every=1))
        fired: list[Any] = []
        broker.on("schedule.fired", fired.append)
        stored = broker.store.schedules
        assert stored is not None
        real, away = stored.of, [2]

        async def of(queue: str) -> Any:
            if away[0]:
                away[0] -= 1
                raise Unavailable("away")
            return await real(queue)

        stored.of = of  # type: ignore[method-assign]  # a fault that the test decides on
        rounds = Rounds(Schedules(broker._life, broker.events), lambda: broker.store, "jobs")
        running = asyncio.create_task(rounds.run())
        began = time.monotonic()
        await until(lambda: len(fired) > 0)
        assert time.monotonic() - began < 9
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_many_schedules_that_are_not_due_cost_nothing_measurable() -> None:
    """Of one worker: less than a hundredth of a core."""
    async with holdfast.connect(f"memory://{uuid4().hex}") as broker:
        await broker.queue("jobs")
        for number in range(200):
            schedule = holdfast.Schedule(name=f"s{number}", queue="jobs", cron=f"{number % 60} 0 1 1 *")
            await broker.schedules.put(schedule)
        rounds = asyncio.create_task(Rounds(broker.schedules, lambda: broker.store, "jobs").run())
        await asyncio.sleep(1.0)  # when their next slots were looked up
        before, began = time.process_time(), time.monotonic()
        await asyncio.sleep(4.0)
        used, seconds = time.process_time() - before, time.monotonic() - began
        rounds.cancel()
        await asyncio.gather(rounds, return_exceptions=True)
        assert used < 0.01 * seconds


async def test_schedules_that_are_not_due_cost_no_request_of_a_bucket() -> None:
    """Two workers beside each other, one of them on a queue with schedules: both only look for messages."""
    with BucketServer() as server, Proxy(server.port) as plain, Proxy(server.port) as scheduled:
        async with (
            holdfast.connect(server.url("plain", endpoint=plain.endpoint)) as one,
            holdfast.connect(server.url("scheduled", endpoint=scheduled.endpoint)) as two,
        ):
            queues = [await broker.queue("jobs", shards=2) for broker in (one, two)]
            for number in range(50):
                await two.schedules.put(holdfast.Schedule(name=f"s{number}", queue="jobs", cron="0 0 1 1 *"))
            await two.schedules.put(holdfast.Schedule(name="held", queue="jobs", every=1))
            await two.schedules.pause("held")
            async with working(queues[0].worker(lambda value: None)), working(queues[1].worker(lambda value: None)):
                await asyncio.sleep(2.0)
                before = plain.counts.copy(), scheduled.counts.copy()
                await asyncio.sleep(6.0)
                without, having = plain.counts.since(before[0]), scheduled.counts.since(before[1])
    assert without.requests.total() >= 5, "both look for messages"
    assert abs(having.requests.total() - without.requests.total()) <= 3, (having.requests, without.requests)
    assert having.requests["create"] + having.requests["swap"] + having.requests["put"] <= 1


async def test_a_queue_without_schedules_is_left_alone(tmp_path: Path) -> None:
    """A process may have workers on a thousand of them."""
    async with holdfast.connect(tmp_path.as_uri()) as broker:
        await broker.queue("jobs")
        rounds = Rounds(broker.schedules, lambda: broker.store, "jobs")
        assert await rounds._round() > 10.0
        await broker.schedules.put(holdfast.Schedule(name="soon", queue="jobs", every=3600))
        rounds._looked = -math.inf  # that long after
        assert await rounds._round() <= 1.0


async def test_many_workers_without_schedules_look_for_some_together(tmp_path: Path) -> None:
    """One look for all workers of a broker: a process may have them on a thousand queues."""
    async with holdfast.connect(tmp_path.as_uri()) as broker, AsyncExitStack() as stack:
        stored = broker.store.schedules
        assert stored is not None
        real, looks = stored.queues, list[float]()

        async def queues() -> set[str]:
            looks.append(time.monotonic())
            return await real()

        stored.queues = queues  # type: ignore[method-assign]  # counts what the real one is asked
        for number in range(20):
            queue = await broker.queue(f"idle{number}")
            await stack.enter_async_context(working(queue.worker(lambda value: None)))
        await until(lambda: len(looks) > 0)
        await asyncio.sleep(0.5)
        assert len(looks) == 1


async def test_a_schedule_made_here_is_noticed_by_the_next_look() -> None:
    async with holdfast.connect(f"memory://{uuid4().hex}") as broker:
        await broker.queue("jobs")
        assert not await broker.schedules._has_any("jobs")
        await broker.schedules.put(holdfast.Schedule(name="a", queue="jobs", every=1))
        assert await Schedules(broker._life, broker.events)._has_any("jobs"), "also to who looks through another handle"
