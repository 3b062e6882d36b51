"""Upkeep for who only dequeues: the queues that this broker takes from are maintained, as workers would do it."""

from __future__ import annotations

import asyncio
import random
import weakref
from typing import TYPE_CHECKING

from .errors import HoldfastError
from .escaping import logger_named
from .stores.base import DEAD

if TYPE_CHECKING:
    from .lifetime import Lifetime

_LOG = logger_named("holdfast.broker")


class Upkeep:
    """Of one broker. A timer runs while somebody dequeues; it does not keep a broker that was dropped."""

    def __init__(self, life: Lifetime, interval: float) -> None:
        self._life = weakref.ref(life)
        self._interval = interval  # seconds
        self._used: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def used(self, queue: str) -> None:
        """Somebody dequeues from it."""
        self._used.add(queue)
        if self._timer is None and self._task is None:
            self._wait()

    def _wait(self) -> None:
        # not all processes at once
        seconds = self._interval * random.uniform(0.75, 1.25)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> None:
        self._timer, self._task = None, asyncio.ensure_future(self._maintain())

    async def _maintain(self) -> None:
        queues, self._used = self._used, set()
        life = self._life()
        if life is None or life.gone is not None:
            return
        store = life.store
        queues = {queue.removesuffix(DEAD) for queue in queues}
        queues -= {queue for worker in life.workers for queue in worker.queues}  # which do it themselves
        for queue in sorted(queues):
            try:
                if not store.is_resting(queue):
                    await store.maintain(queue)
            except HoldfastError as error:  # deleted, or the store is away: there is a next time
                _LOG.debug("upkeep of %s put off: %s", queue, error)
        self._task = None
        if self._used:
            self._wait()

    async def close(self, seconds: float) -> None:
        """No more of it; what is under way is cancelled."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=seconds)
