"""What the rounds of workers ask a store for, also when it is away."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

import holdfast
from holdfast.broker import Broker
from holdfast.errors import Unavailable
from holdfast.scheduling import Schedules
from holdfast.worker.schedule_rounds import Rounds
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
