"""The open store of a URL, shared by everything of kombu and Celery in a process; a child of a fork opens its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from .. import sync
from ..broker import Broker
from ..errors import ConfigError, QueueExists
from ..loop_thread import portal
from ..queue import Queue
from ..stores.base import Store
from ..stores.values import Values
from .held import Held
from .names import queue_name
from .routing import Routing

T = TypeVar("T")
ATTEMPTS = 20  # claims of a task whose worker dies each time, then it is a dead letter; a release does not count
_OPTIONS: dict[str, Any] = {"max_attempts": ATTEMPTS, "archive": False}  # of every queue


class Link:
    """Blocking calls for kombu's threads; what goes on by itself runs in the event loop of `holdfast.sync`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._face = sync.connect(url)
        self.broker: Broker = self._face.core
        self.held = Held()
        self.routing = Routing(self)
        self._queues: dict[str, Queue[bytes]] = {}
        self._gone: set[str] = set()  # queues that somebody deleted
        self._tasks: set[asyncio.Task[Any]] = set()  # an event loop alone does not keep them
        self._housekeeping: asyncio.Task[None] | None = None

    @property
    def store(self) -> Store:
        return self.broker.store

    @property
    def values(self) -> Values:
        found = self.store.values
        if found is None:
            raise ConfigError(f"{self.broker.url}: this store keeps no values, which kombu and Celery need")
        return found

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine answers; from any thread but the loop's own."""
        return portal().run(work)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """It runs by itself from now on."""

        async def begin() -> asyncio.Task[T]:
            task = asyncio.get_running_loop().create_task(work)
            task._log_destroy_pending = False  # type: ignore[attr-defined] # an interpreter that ends says nothing of it
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return task

        return self.run(begin())

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return portal().loop()

    async def queue(self, name: str, *, create: bool = True) -> Queue[bytes]:
        """A queue by its name in kombu; made when it is not there."""
        found = self._queues.get(name)
        if found is None:
            if create and name in self._gone:  # the broker believes that it is there
                await self._make(name)
            found = await self.broker.queue(queue_name(name), bytes, create=create, **(_OPTIONS if create else {}))
            self._queues[name] = found
        return found

    async def _make(self, name: str) -> None:
        try:
            await self.broker.create_queue(queue_name(name), bytes, **_OPTIONS)
        except QueueExists:  # somebody else was faster
            pass
        self._gone.discard(name)

    def known(self, name: str) -> bool:
        return name in self._queues

    def forget(self, name: str) -> None:
        """It was deleted."""
        self._queues.pop(name, None)
        self._gone.add(name)

    def keep_house(self) -> None:
        """Who consumes sees to it that what others left is swept."""
        if self._housekeeping is None:
            self._housekeeping = self.start(self.routing.keep_house())
            self.held.begin(self)

    def close(self) -> None:
        self.run(self._end())
        self._face.close()

    async def _end(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Links:
    """Those of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process = os.getpid()
        self.open: dict[str, Link] = {}


_links = _Links()


def link_to(url: str) -> Link:
    """The store of this URL, opened when it is not."""
    global _links
    if _links.process != os.getpid():  # the parent's lock may be held by a thread that is not here
        _links = _Links()
    with _links.lock:
        found = _links.open.get(url)
        if found is None:
            found = _links.open[url] = Link(url)
        return found


def close_all() -> None:
    """Give every store of this process back, for tests; the end of a process does it too."""
    if _links.process == os.getpid():
        while _links.open:
            _links.open.popitem()[1].close()
