"""A log store in memory under a clock that stands still, and a few verbs for tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from holdfast.config import QueueOptions, StoreOptions
from holdfast.errors import HoldfastError
from holdfast.stores.log import archive
from holdfast.stores.log.head import codec
from holdfast.stores.log.head.state import Head
from holdfast.stores.log.memory import MemorySpace
from holdfast.stores.log.space import Transaction
from holdfast.stores.log.store import LogStore
from holdfast.stores.records import Claimed, Envelope, Settlement, Stored, View
from holdfast.testing.clock import ManualClock

T0 = 1_700_000_000.0
PATIENCE = 10.0  # seconds a condition may take; only a failing test waits so long
T = TypeVar("T")
Steps = Callable[[str], Awaitable[None]]


class Crash(HoldfastError):
    """A process that dies at a named step."""


def dies_at(*names: str) -> Steps:
    """Steps of a process that dies whenever it comes by one of these."""

    async def step(name: str) -> None:
        if name in names:
            raise Crash(name)

    return step


class Sleeper:
    """Steps of a process that falls asleep at one of them, once, until it is woken."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.asleep = asyncio.Event()
        self.wake = asyncio.Event()

    async def __call__(self, name: str) -> None:
        if name == self._name and not self.asleep.is_set():
            self.asleep.set()
            await self.wake.wait()


class WatchedSpace(MemorySpace):
    """A space that notes how large its heads have ever been."""

    largest_head = 0

    def transact_from_thread(self, step: Callable[[Transaction], T], *, deadline: float | None = None) -> T:
        def watched(tx: Transaction) -> T:
            result = step(tx)
            for key in tx.list("", limit=1_000_000):
                if key.endswith("/head"):
                    found = tx.get(key)
                    assert found is not None
                    self.largest_head = max(self.largest_head, len(found.data))
            return result

        return super().transact_from_thread(watched, deadline=deadline)


class Bed:
    """One queue `q` in a space that several stores may share, as processes do."""

    def __init__(self, space: MemorySpace, clock: ManualClock) -> None:
        self.space = space
        self.clock = clock
        self.store = self.another()

    @classmethod
    async def made(cls, *, space: type[MemorySpace] = MemorySpace, steps: Steps | None = None, **options: Any) -> Bed:
        clock = ManualClock(T0)
        bed = cls(space(clock), clock)
        if steps is not None:
            bed.store = bed.another(steps)
        await bed.store.create_queue("q", QueueOptions(**options))
        return bed

    def another(self, steps: Steps | None = None) -> LogStore:
        """One more client of the same space."""
        return LogStore(self.space, StoreOptions(), steps=steps)

    async def append(self, count: int = 1, **said: Any) -> list[str]:
        return await self.store.append("q", [Envelope(b"%d" % place, **said) for place in range(count)])

    async def claim(self, limit: int = 100, lease: float = 30.0, *, queue: str = "q") -> list[Claimed]:
        return (await self.store.claim(queue, limit, lease)).messages

    async def settle(self, held: Sequence[Claimed], action: Any, *, queue: str = "q", **said: Any) -> list[str]:
        return await self.store.settle(queue, [Settlement(each.id, each.token, action, **said) for each in held])

    async def end(self, count: int, action: Any = "complete", **said: Any) -> list[str]:
        """Messages that end at once; their ids."""
        ids = await self.append(count)
        held = await self.claim(count)
        assert [each.id for each in held] == ids
        assert set(await self.settle(held, action, **said)) <= {"ok"}
        return ids

    async def end_all(self, action: Any) -> None:
        """Whatever can be claimed ends so."""
        while held := await self.claim():
            await self.settle(held, action)

    async def pass_time(self, seconds: float) -> None:
        """Time goes by in a queue that is used."""
        self.clock.advance(seconds)
        await self.end(1, keep=False)

    async def flush(self) -> None:
        """Everything that has ended is written after this."""
        assert await self.store.discard("q", "archive", []) == 0

    async def is_frozen(self) -> bool:
        """A flush is under way, or was when its process died."""
        return (await self.head()).frozen is not None

    async def spill(self) -> None:
        """The retries that are too many for the head have left it after this; it happens by itself."""

        async def is_done() -> bool:
            head = await self.head()
            return head.frozen is None and sum(group.mask.bit_count() for group in head.waiting) <= 100

        await eventually(is_done)

    async def status(self, id: str) -> str | None:
        stored = await self.get(id)
        return stored.status if stored else None

    async def get(self, id: str) -> Stored | None:
        return (await self.store.get("q", [id]))[0]

    async def all(self, view: View, *, queue: str = "q", page: int = 1000) -> list[Stored]:
        """A whole view, page by page."""
        found: list[Stored] = []
        while part := await self.store.scan(queue, view, after=found[-1].id if found else None, limit=page):
            found += part
        return found

    async def keys(self, part: str = "") -> list[str]:
        """Keys of the queue with this in them, relative to it."""
        keys = await self.space.read(lambda view: view.list("q@", limit=1_000_000))
        return [key.partition("/")[2] for key in keys if part in key]

    async def root(self) -> str:
        (key,) = [
            key
            for key in await self.space.read(lambda view: view.list("q@", limit=10**6))
            if key.endswith("/head") and "/dead/" not in key
        ]
        return key.removesuffix("head")

    async def head(self) -> Head:
        """The head of the live log as it is stored."""
        (key,) = [
            key
            for key in await self.space.read(lambda view: view.list("q@", limit=1_000_000))
            if key.endswith("/head") and not key.endswith("/dead/head")
        ]
        found = await self.space.read(lambda view: view.get(key))
        assert found is not None
        return codec.decode(found.data)

    async def archived(self) -> list[Stored]:
        """What the archive files hold, file by file."""
        keys = await self.space.read(lambda view: view.list("q@", limit=1_000_000))
        files = [await self.space.read(lambda view, key=key: view.get(key)) for key in keys if "/archive/" in key]
        return [record for file in files if file for record in archive.decode(file.data)[0]]


async def eventually(condition: Callable[[], Awaitable[Any]]) -> None:
    """Wait until it holds, with a deadline."""
    until = time.monotonic() + PATIENCE
    while not await condition():
        assert time.monotonic() < until, "it did not come about"
        await asyncio.sleep(0.01)
