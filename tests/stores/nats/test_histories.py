"""Random histories on NATS, with a clock that the test moves: it must answer like the oracle.

The server's own timers cannot be moved. After every move its consumers are therefore deleted and made anew, which hand
out everything again: what may be taken, and when, is decided by the records alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.config import StoreOptions
from holdfast.stores.base import DEAD, Store
from holdfast.stores.nats import state, tasks
from holdfast.stores.nats.address import parse
from holdfast.stores.nats.clock import Moment
from holdfast.stores.nats.partition import Partition
from holdfast.stores.nats.priority_consumers import nak
from holdfast.stores.nats.store import NatsStore
from holdfast.stores.records import Claims, Stats, Stored, View
from holdfast.testing.clock import ManualClock
from tests.servers.nats import Server
from tests.test_state_machines import Stores, run_histories

EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "6"))
FAR = 3600.0  # seconds, of the server's clock


class Moved(NatsStore):
    """A store whose time is the test's."""

    moved = True

    async def claim(
        self, queue: str, limit: int, lease: float, *, wait: float = 0.0, worker: str | None = None
    ) -> Claims:
        await self.catch_up(queue)
        return await super().claim(queue, limit, lease, wait=wait, worker=worker)

    async def stats(self, queue: str) -> Stats:
        await self.catch_up(queue)
        return await super().stats(queue)

    async def scan(self, queue: str, view: View, *, after: str | None = None, limit: int = 100) -> list[Stored]:
        await self.catch_up(queue)
        return await super().scan(queue, view, after=after, limit=limit)

    async def purge(self, queue: str) -> int:
        await self.catch_up(queue)
        return await super().purge(queue)

    async def catch_up(self, queue: str) -> None:
        """What is due is handed out, and everything else has been."""
        if await self.register.find(queue.removesuffix(DEAD)) is None or not self.moved:
            return
        self.moved = False
        name = queue.removesuffix(DEAD)
        for log in (self.parts(name).partition, self.parts(name + DEAD).partition):
            await self.hand_out(log)

    async def hand_out(self, log: Partition) -> None:
        for info in await log.consumers.look():
            await log.consumers._remake(int(info["name"]))
        found = await log.consumers.fetch(1000)
        records = await log.records([handed.id for _, handed in found])
        moment = self.connection.moment()
        for _, handed in found:
            record = records[handed.id][1] if handed.id in records else None
            waits = state.wait(record, tasks.read_task(handed.data), moment) > 0
            await self.connection.request(handed.ack, nak(FAR if waits else 0))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.mark.timeout(300)
def test_nats_answers_like_the_model(server: Server) -> None:
    class Prefixes(Stores):
        """A prefix of its own for every history."""

        def __init__(self, clock: ManualClock, folder: Path) -> None:
            super().__init__(clock, folder)
            self.options = StoreOptions(prefix=f"h{os.urandom(6).hex()}")

        async def open(self) -> Store:
            store = Moved(parse(server.url), self.options)
            await store.open()
            store.connection.now = self.clock  # type: ignore[method-assign]  # the test's time, known to all without doubt
            store.connection.moment = lambda: Moment(*[self.clock()] * 4)  # type: ignore[method-assign]  # as above
            self.clock.on_advance(lambda: setattr(store, "moved", True))
            return store

    run_histories(Prefixes, EXAMPLES)
