"""What a handler may know about the message it runs for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from ..errors import LeaseLost
from ..queue import Queue
from .in_flight import Job


class Done:
    """An awaitable that is there already: what a blocking `extend` gives back."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


class Site:
    """What all contexts of one worker share."""

    def __init__(
        self,
        worker_id: str,
        *,
        lease: Callable[[Queue[Any]], float],
        extend: Callable[[Job, float], Coroutine[Any, Any, bool]],
    ) -> None:
        self.lease = lease  # seconds
        self.worker_id = worker_id
        self.extend = extend
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()


class Context:
    """Handed to a handler that takes `(value, context)`."""

    __slots__ = ("_job", "_site")

    def __init__(self, site: Site, job: Job) -> None:
        self._site = site
        self._job = job

    @property
    def worker_id(self) -> str:
        return self._site.worker_id

    @property
    def queue(self) -> str:
        return self._job.queue.name

    @property
    def message_id(self) -> str:
        return self._job.message.id

    @property
    def attempt(self) -> int:
        """Counts from 1."""
        return self._job.message.attempt

    @property
    def max_attempts(self) -> int:
        return self._job.message.max_attempts

    @property
    def headers(self) -> dict[str, str]:
        return self._job.message.headers or {}

    @property
    def lost(self) -> bool:
        """True: the outcome of this run no longer counts; stop when you can."""
        return self._job.lost or self._job.stale

    def extend(self, seconds: float | None = None) -> Awaitable[None]:
        """Hold the lease for so many seconds from now; `LeaseLost` when it is gone.

        Workers do this by themselves. Await it in an async handler; in a sync handler the call itself blocks.
        """
        work = self._extend(self._site.lease(self._job.queue) if seconds is None else seconds)
        if threading.get_ident() == self._site.thread:
            return work
        asyncio.run_coroutine_threadsafe(work, self._site.loop).result()
        return Done()

    async def _extend(self, seconds: float) -> None:
        if self._job.lost or not await self._site.extend(self._job, seconds):
            raise LeaseLost(f"the lease of {self.message_id} is lost")

    def __repr__(self) -> str:
        return f"Context({self.queue!r}, {self.message_id!r}, attempt {self.attempt} of {self.max_attempts})"
