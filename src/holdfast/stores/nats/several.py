"""Several queues waited for at once: a pull stands at every consumer of those that were found empty.

What such a pull brings lies in its consumer's buffer for the claim that follows; a moment later it is given back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

from ..base import EMPTY_S, LONG_POLL_S
from .deadline import apart
from .partition import Partition
from .priority_consumers import HAND_OUT_S


class Several:
    """What is known of the queues that somebody waits for together."""

    def __init__(self, partition: Callable[[str], Partition]) -> None:
        self._partition = partition
        self._known: dict[str, float] = {}  # until when a queue is believed to be empty, by our own clock
        self._waiting: set[asyncio.Future[None]] = set()
        self._returning: dict[str, asyncio.Task[None]] = {}  # a task needs somebody who holds it

    def __contains__(self, queue: str) -> bool:
        return queue in self._known

    def found(self, queue: str) -> None:
        """There may be more."""
        self._known[queue] = 0.0

    def empty(self, queue: str) -> None:
        """A claim found nothing."""
        self._known[queue] = time.monotonic() + EMPTY_S

    def changed(self, queue: str) -> None:
        """Somebody has changed something there."""
        if queue in self._known:
            self._known[queue] = 0.0
            self._wake()

    def close(self, queue: str) -> None:
        self._known.pop(queue, None)
        self._wake()

    async def ready(self, queues: Sequence[str], *, wait: float) -> list[str]:
        """As the seam says."""
        deadline = time.monotonic() + wait
        for queue in queues:
            self._known.setdefault(queue, 0.0)
        while True:
            await self._stand(queues)
            now = time.monotonic()
            found = [queue for queue in queues if self._known.get(queue, 0.0) <= now]
            if found or now >= deadline or not queues:
                return found
            soonest = min(self._known[queue] for queue in queues)
            await self._wait(min(deadline, soonest, now + LONG_POLL_S) - now)

    async def _stand(self, queues: Sequence[str]) -> None:
        now = time.monotonic()
        for queue in queues:
            if self._known.get(queue, 0.0) > now:
                consumers = self._partition(queue).consumers
                consumers.came = partial(self._came, queue)
                await consumers.stand_at_known(LONG_POLL_S)

    def _came(self, queue: str) -> bool:
        """A pull has brought a message; False: nobody waits for it."""
        self._known[queue] = 0.0
        asyncio.get_running_loop().call_later(HAND_OUT_S, self._give_back, queue)
        return self._wake()

    def _give_back(self, queue: str) -> None:
        if queue in self._known:
            self._returning[queue] = apart(self._partition(queue).consumers.put_back())

    def _wake(self) -> bool:
        woken = [future for future in self._waiting if not future.done()]
        for future in woken:
            future.set_result(None)
        return bool(woken)

    async def _wait(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait_for(future, max(0.0, seconds))
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(future)
