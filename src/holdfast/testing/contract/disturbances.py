"""Workers that are disturbed: by signals, and by a store that fails under them.

Only the async core shows these: signals reach the main thread, and the seam has no blocking face.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from ...broker import Broker
from ...errors import Unavailable
from .base import PATIENCE_S, SHORT_S, Gate, StoreContract, eventually, working
from .through import Through


class Disturbances(StoreContract):
    """The clock of these tests is real, as for `Workers`."""

    async def test_sigterm_drains(self) -> None:
        queue = await self.queue()
        started, go_on = Gate(), Gate()

        async def handle(_: int) -> str:
            started.open()
            await go_on.wait()
            return "drained"

        id = await queue.enqueue(1)
        running = asyncio.create_task(queue.worker(handle).run())
        await started.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        after = await queue.enqueue(2)
        go_on.open()
        await asyncio.wait_for(running, PATIENCE_S)
        record = await queue.get(id)
        assert record is not None
        assert (record.status, record.result) == ("completed", "drained")
        assert await queue.status(after) == "pending"

    async def test_lost_lease_cancels_the_handler_and_is_an_event(self) -> None:
        store = Through(self.store)
        queue = await Broker(store.as_store()).queue("jobs", lease=SHORT_S)
        events: list[Any] = []
        queue.events.on("lease.lost", events.append)
        started, cancelled = Gate(), Gate()

        async def handle(_: int) -> None:
            started.open()
            try:
                await Gate().wait()
            except asyncio.CancelledError:
                cancelled.open()
                raise

        id = await queue.enqueue(1)
        async with working(queue.worker(handle)):
            await started.wait()
            store.loses_leases = True
            await cancelled.wait()
            await eventually(lambda: events, "the event")
        assert dict(events[0]) == {"queue": "jobs", "id": id}

    async def test_worker_goes_on_after_the_store_was_away(self) -> None:
        store, healthy = Through(self.store), await self.queue()
        queue = await Broker(store.as_store()).queue("jobs")
        seen: list[int] = []
        async with working(queue.worker(seen.append)):
            await queue.wait(await queue.enqueue(1), PATIENCE_S)
            store.error = Unavailable("away")
            during = await healthy.enqueue(2)
            await eventually(lambda: store.refused, "a call while the store is away")
            store.error = None
            await queue.wait(during, PATIENCE_S)
            await queue.wait(await queue.enqueue(3), PATIENCE_S)
        assert sorted(set(seen)) == [1, 2, 3]
