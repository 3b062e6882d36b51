"""An open store as a server has it: its broker, and everybody who waits for something of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from .. import admin
from ..broker import Broker
from ..errors import Unavailable
from ..metrics import Metrics
from ..queue import Queue
from ..stores.base import LOOK_AGAIN_S
from .audits import Audits
from .deaths import DeathWatch
from .gathering import Gathering
from .history import History
from .jobs import Jobs
from .measuring import Measuring
from .settings import ServerSettings
from .watch import Watch

T = TypeVar("T")

SAMPLE_S = 10.0  # between two looks at the queues, for charts
OPEN_WAITS = 10_000  # requests that wait at once: each holds a connection and some kilobytes


class Served:
    """One per store and server."""

    def __init__(
        self,
        broker: Broker,
        settings: ServerSettings,
        name: str = "",
        *,
        reopen: Callable[[], Awaitable[Broker]] | None = None,
    ) -> None:
        """`name` tells several stores of one server apart; `reopen` is asked after everything was removed."""
        self.broker = broker
        self.name = name
        self._reopen = reopen
        self.metrics = Metrics(broker, {"store": name} if name else None)
        self.settings = settings
        self.watch = Watch(lambda: admin.overview(self.broker))
        self.deaths = DeathWatch()
        self.history: History | None = None
        self.audits = Audits(None, name)
        self.jobs = Jobs()
        self._keeping: list[asyncio.Future[None]] = []
        self.id = uuid4().hex  # of this process, see `wire.Hello`
        self._closing: asyncio.Event | None = None
        self._waits = 0
        self.streams = 0  # of events, that are open
        self._queues: dict[str, tuple[Queue[Any], float]] = {}
        self._gatherings: dict[str, Gathering] = {}

    async def queue(self, name: str) -> Queue[Any]:
        """A queue that must be there, looked for once a second: every request names one."""
        found, until = self._queues.get(name, (None, 0.0))
        if found is None or until < time.monotonic():
            self._queues.pop(name, None)
            found = await self.broker.queue(name, create=False)
            self._queues[name] = found, time.monotonic() + LOOK_AGAIN_S
        return found

    async def single(self, name: str, do: Callable[[], Awaitable[T]]) -> T:
        """A call that adds one message: where requests are paid for, together with others that come about now."""
        if self.broker.store.requests() is None or self.broker.options.linger:
            return await do()
        return await self._gatherings.setdefault(name, Gathering()).call(do)

    def forget(self, name: str) -> None:
        """It may be gone, or other than it was."""
        self._queues.pop(name, None)
        self._gatherings.pop(name, None)
        self.watch.forget()

    async def uninstall(self) -> list[str]:
        """Remove everything; the store is opened again, so that it can be used again."""
        left = await self.broker.uninstall()
        self._queues.clear()
        if self._reopen is not None:
            await self.broker.close()
            self.broker = await self._reopen()
            self.metrics.follow(self.broker)
        return left

    def keep_history(self, path: Path | None) -> None:
        """Sample the queues from now on; a store that pays for requests is looked at once a minute."""
        every = SAMPLE_S if self.broker.store.requests() is None else 6 * SAMPLE_S
        self.history = History(path, self.name, every=every)
        self.audits.close()
        self.audits = Audits(path, self.name)
        measuring = Measuring(lambda: self.broker, self.watch, self.history)
        seldom = SAMPLE_S if every == SAMPLE_S else 60 * SAMPLE_S
        self._keeping = [
            asyncio.ensure_future(self.watch.keep(self.history, every)),
            asyncio.ensure_future(measuring.keep(seldom)),
        ]

    async def end(self) -> None:
        """Give the store back."""
        await self.jobs.end()
        for each in self._keeping:
            each.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        if self.history is not None:
            self.history.close()
        self.audits.close()
        self.metrics.close()
        await self.broker.close()

    @property
    def closing(self) -> asyncio.Event:
        if self._closing is None:
            self._closing = asyncio.Event()
        return self._closing

    def close(self) -> None:
        """No new claims; waiting requests are answered with what there is."""
        self.closing.set()

    async def wait_for(self, work: Awaitable[T], receive: Callable[[], Awaitable[Any]]) -> T | None:
        """The answer, unless the client goes or the server closes first: None, and the work is cancelled."""
        if self.closing.is_set():
            asyncio.ensure_future(work).cancel()
            return None
        if self._waits >= OPEN_WAITS:
            asyncio.ensure_future(work).cancel()
            raise Unavailable(f"{OPEN_WAITS} requests wait already")
        self._waits += 1
        working = asyncio.ensure_future(work)
        ends = [asyncio.ensure_future(receive()), asyncio.ensure_future(self.closing.wait())]
        try:
            await asyncio.wait([working, *ends], return_when=asyncio.FIRST_COMPLETED)
            return await _finished(working)
        finally:
            self._waits -= 1
            for each in (*ends, working):
                each.cancel()


async def _finished(working: asyncio.Future[T]) -> T | None:
    """What is done is kept; the rest is given up."""
    if not working.done():
        working.cancel()
        await asyncio.wait([working])
    return None if working.cancelled() else working.result()


async def is_gone(receive: Callable[[], Awaitable[Any]]) -> bool:
    """Whether the client has closed its connection; asked of one whose request has been read."""
    asked = asyncio.ensure_future(receive())
    await asyncio.sleep(0)
    if not asked.done():
        asked.cancel()
        return False
    return True
