"""What a worker does for its queues besides running handlers: upkeep in intervals, and the rounds of schedules."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..errors import QueueNotFound
from ..lifetime import Lifetime
from ..scheduling import Schedules
from ..stores.base import DEAD
from .outage import Outage, Retrying
from .schedule_rounds import Rounds

if TYPE_CHECKING:
    from ..events import Emitter
    from ..queue import Queue
    from .choice import Choice

_RARELY_S = 3600.0  # between two upkeeps of a queue that gave nothing: retention goes by days


def one(queue: Queue[Any], outage: Outage, interval: float) -> list[asyncio.Task[None]]:
    """Of a worker on one queue."""
    tasks = [asyncio.create_task(_maintain_one(queue, outage, interval), name=f"holdfast-maintain-{queue.name}")]
    if not queue.name.endswith(DEAD):
        tasks.append(_fire(queue._opened.life, queue.events, queue.name))
    return tasks


async def _maintain_one(queue: Queue[Any], outage: Outage, interval: float) -> None:
    retrying = Retrying(outage, f"maintain {queue.name}")
    while True:
        await _pause(interval)
        if queue.store.is_resting(queue.name):
            continue
        await retrying.until_done(queue.refresh)
        if not queue.name.endswith(DEAD):  # the queue's own workers maintain its dead letters too
            await retrying.until_done(lambda: queue.store.maintain(queue.name))


async def _pause(interval: float) -> None:
    await asyncio.sleep(interval * random.uniform(0.75, 1.25))  # so that processes do not all come at once


def _fire(life: Lifetime, events: Emitter, queue: str) -> asyncio.Task[None]:
    rounds = Rounds(Schedules(life, events), lambda: life.store, queue)
    return asyncio.create_task(rounds.run(), name=f"holdfast-schedules-{queue}")


class Several:
    """Of a worker on several queues: every interval it looks for new ones, and keeps up those that gave something."""

    def __init__(
        self,
        choice: Choice,
        life: Lifetime,
        events: Emitter,
        outage: Outage,
        *,
        interval: float,
        busy: set[str],
        grown: Callable[[], None],
    ) -> None:
        self._choice = choice
        self._life = life
        self._events = events
        self._interval = interval
        self._busy = busy  # emptied here
        self._grown = grown  # told when there are more queues
        self._noticing = Retrying(outage, f"look for queues of {choice.name}")
        self._maintaining = Retrying(outage, f"maintain {choice.name}")
        self._kept: dict[str, float] = {}  # when, by queue
        self._firing: dict[str, asyncio.Task[None]] = {}

    def start(self) -> list[asyncio.Task[None]]:
        return [
            asyncio.create_task(self._notice(), name=f"holdfast-notice-{self._choice.name}"),
            asyncio.create_task(self._maintain(), name=f"holdfast-maintain-{self._choice.name}"),
        ]

    async def _notice(self) -> None:
        """New queues, and queues with schedules."""
        try:
            while True:
                known = len(self._choice.queues)
                if self._choice.has_patterns:
                    await self._noticing.until_done(self._choice.look)
                if len(self._choice.queues) != known:
                    self._grown()
                for queue in await self._noticing.until_done(self._scheduled):
                    if queue in self._choice.queues and queue not in self._firing:
                        self._firing[queue] = _fire(self._life, self._events, queue)
                await _pause(self._interval)
        finally:
            for task in self._firing.values():
                task.cancel()

    async def _scheduled(self) -> Sequence[str]:
        """Queues with schedules: seen by the looks for messages where a look costs, else asked for."""
        stored, queues = self._life.store.schedules, self._choice.queues
        if stored is None or not queues:
            return ()
        if stored.seen(next(iter(queues))) is not None:
            return [queue for queue in queues if stored.seen(queue)]
        return [each.plan.queue for each in await stored.all()]

    async def _maintain(self) -> None:
        began = monotonic()
        while True:
            await _pause(self._interval)
            busy = set(self._busy)
            self._busy.clear()
            for queue in list(self._choice.queues.values()):
                old = monotonic() - _RARELY_S
                if queue.name in busy or self._kept.get(queue.name, began) < old:
                    self._kept[queue.name] = monotonic()
                    await self._keep_up(queue)

    async def _keep_up(self, queue: Queue[Any]) -> None:
        if queue.store.is_resting(queue.name):
            return

        async def both() -> None:
            try:
                await queue.refresh()
                await queue.store.maintain(queue.name)
            except QueueNotFound:
                self._choice.forget(queue.name)

        await self._maintaining.until_done(both)
