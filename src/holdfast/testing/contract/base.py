"""What every topic of the suite stands on: opening, time, and a few verbs."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import pytest
import pytest_asyncio

from ...broker import Broker
from ...deliveries import Delivery
from ...queue import Queue
from ...stores.base import Store

PATIENCE_S = 10.0  # a condition may take so long; only a failing test waits for it
SHORT_S = 0.3  # of a lease or delay that the test waits out
LONG_S = 60.0  # of a lease or delay that must outlive the test, and for a process to start


class StoreContract:
    """Subclass it, say how a broker is opened, and every promise becomes a test."""

    pytestmark = pytest.mark.asyncio

    keeps_data = True  # what is written is still there after closing and opening again
    several_brokers = True  # the store may be opened more than once at a time
    shared_url: str | None = None  # what other processes can open; None: one process only
    unreachable_url: str | None = None  # a host where nobody listens, for stores on a network
    wrong_credentials_url: str | None = None

    patience = PATIENCE_S  # seconds until a message that must come counts as lost

    broker: Broker

    async def open_broker(self) -> Broker:
        """A broker on the store under test. Every call of one test opens the same data."""
        raise NotImplementedError

    async def advance(self, seconds: float) -> None:
        """Let at least so much of the store's time pass. A store with a clock of its own moves that instead."""
        await asyncio.sleep(seconds + 0.01)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Around every test: one open broker, and nothing left behind."""
        self._brokers: list[Broker] = []
        self.broker = await self.another_broker(first=True)
        try:
            yield
        finally:
            for broker in reversed(self._brokers):
                await broker.close()

    @pytest.fixture
    def place(self) -> None:
        """Runs before the store is opened; override it to ask for fixtures, such as `tmp_path`."""

    @pytest_asyncio.fixture(autouse=True)
    async def _opened(self, place: None) -> AsyncIterator[None]:
        async with self.opened():
            yield

    async def another_broker(self, *, first: bool = False) -> Broker:
        """One more client of the same store, as another process would be."""
        if not first and not self.several_brokers:
            pytest.skip("this store is opened once at a time")
        broker = await self.open_broker()
        self._brokers.append(broker)
        return broker

    async def reopen(self) -> None:
        """Close everything and open it again."""
        if not self.keeps_data:
            pytest.skip("this store forgets when it is closed")
        for broker in reversed(self._brokers):
            await broker.close()
        self._brokers.clear()
        self.broker = await self.another_broker(first=True)

    @property
    def store(self) -> Store:
        return self.broker.store

    async def clock(self) -> float:
        """The store's time."""
        return await self.store.clock()

    async def queue(self, name: str = "jobs", type: Any = None, **options: Any) -> Queue[Any]:
        return await self.broker.queue(name, type, **options)

    async def take(self, queue: Queue[Any], *, lease: float = LONG_S) -> Delivery[Any]:
        """The next message; it must be there, or come soon."""
        delivery = await queue.dequeue(lease=lease, wait=self.patience)
        assert delivery is not None, "no message came"
        return delivery

    async def bury(self, queue: Queue[Any], *values: Any, reason: str = "buried") -> list[str]:
        """Dead letters of these values, in a queue that is empty otherwise."""
        ids = await queue.enqueue_many(values)
        for delivery in await self.take_all(queue, len(ids)):
            await delivery.kill(reason)
        return ids

    async def finish(self, queue: Queue[Any], *values: Any) -> list[str]:
        """Completed messages of these values, in a queue that is empty otherwise."""
        ids = await queue.enqueue_many(values)
        assert all(await queue.complete_many(await self.take_all(queue, len(ids))))
        return ids

    async def is_now(self, queue: Queue[Any], id: str, status: str) -> bool:
        return await queue.status(id) == status

    async def take_all(self, queue: Queue[Any], count: int) -> list[Delivery[Any]]:
        """So many messages, in the order they come."""
        taken: list[Delivery[Any]] = []
        while len(taken) < count:
            more = await queue.dequeue_many(count - len(taken), lease=LONG_S, wait=self.patience)
            assert more, f"only {len(taken)} of {count} messages came"
            taken += more
        return taken


class Gate:
    """An event that handlers may wait for in any thread or event loop."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def open(self) -> None:
        self._event.set()

    def is_open(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        await eventually(self._event.is_set, "the gate")

    def wait_blocking(self) -> None:
        assert self._event.wait(PATIENCE_S), "the gate did not open"


def working(worker: Any) -> AbstractAsyncContextManager[Any]:
    """The worker runs inside; whatever happens, it is stopped."""

    @asynccontextmanager
    async def run() -> AsyncIterator[Any]:
        await worker.start()
        try:
            yield worker
        finally:
            await worker.stop(grace=0)

    return run()


@contextmanager
def refused(case: object, error: type[Exception], match: str | None = None) -> Iterator[pytest.ExceptionInfo[Any]]:
    """`pytest.raises` for one of several cases on the same store; a failure names the case."""
    try:
        with pytest.raises(error, match=match) as caught:
            yield caught
    except pytest.fail.Exception as missed:
        pytest.fail(f"{case!r}: {missed}")


async def eventually(
    check: Callable[[], Awaitable[Any] | Any], what: str = "the condition", *, within: float = PATIENCE_S
) -> Any:
    """Wait until the check is true; what it said."""
    deadline = asyncio.get_running_loop().time() + within
    while True:
        answer = check()
        answer = await answer if inspect.isawaitable(answer) else answer
        if answer:
            return answer
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true in {within:g} s"
        await asyncio.sleep(0.01)
