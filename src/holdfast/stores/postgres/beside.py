"""A connection for threads that cannot wait for the event loop: extending leases while a handler blocks it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from .pool import Pool

T = TypeVar("T")


class Beside:
    """An event loop that runs only while somebody calls, with a pool of one connection."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], timeout: float) -> None:
        self._connect = connect
        self._timeout = timeout
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: Pool | None = None

    def run(self, work: Callable[[Pool], Awaitable[T]]) -> T:
        """What the work answers, in the calling thread."""
        with self._lock:
            if self._loop is None or self._pool is None:
                self._loop = asyncio.new_event_loop()
                self._pool = Pool(self._connect, size=1, timeout=self._timeout)
            return self._loop.run_until_complete(_await(work(self._pool)))

    def close(self) -> None:
        with self._lock:
            if self._loop is not None and self._pool is not None:
                self._loop.run_until_complete(self._pool.close())
                self._loop.close()
            self._loop = self._pool = None


async def _await(work: Awaitable[T]) -> T:
    return await work
