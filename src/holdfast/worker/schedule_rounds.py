"""The rounds in which every worker fires the schedules of its queue.

There is no leader. The worker that fired last goes first the next time; the others look a moment later whether it has.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .. import schedules
from ..errors import HoldfastError, QueueNotFound
from ..escaping import logger_named
from ..schedules import Due, Mark
from ..scheduling import Schedules
from ..stores.base import LOOK_AGAIN_S
from ..stores.scheduling import Scheduled

if TYPE_CHECKING:
    from ..stores.base import Store

_LOG = logger_named("holdfast.schedules")
_REREAD_S = 15.0  # seconds between looks for new and changed schedules, where a look is cheap
_GIVE_WAY_S = (0.15, 0.7)  # seconds: the worker that fired last has them to itself
_GIVE_WAY_DEAR_S = (0.6, 1.2)  # the same where a fire takes longer, and two at once longer still
_CLOCK_SET_S = 0.5  # by which a wall clock is set, and not only corrected
_AFTER_ERROR_S = 2.0  # a store that is away is not asked more often


class Rounds:
    """Fires the schedules of one queue, as long as it runs."""

    def __init__(self, book: Schedules, store: Callable[[], Store], queue: str) -> None:
        self._book = book
        self._store = store
        self._queue = queue
        self._known: list[Scheduled] = []
        self._looked = -math.inf  # when, by the monotonic clock
        self._ahead = 0.0  # seconds of the store's clock before it
        self._wall = math.inf  # the same of the wall clock, when that was learnt
        self._is_dear = False  # a look costs a request
        self._is_first = False  # we fired last
        self._wakes: dict[str, tuple[Scheduled, float | None]] = {}

    async def run(self) -> None:
        """Until cancelled. A store that does not answer is asked again."""
        if self._store().schedules is None:
            return
        while True:
            try:
                pause = await self._round()
            except QueueNotFound:
                pause = _REREAD_S
            except HoldfastError as error:
                _LOG.warning("schedules of %s put off: %s", self._queue, error)
                self._looked, pause = -math.inf, _AFTER_ERROR_S * random.uniform(0.5, 1.5)
            await asyncio.sleep(pause)

    async def _round(self) -> float:
        """Fire what is due; how many seconds until the next round."""
        await self._look()
        now = time.monotonic() + self._ahead
        wakes = [instant for each in self._known if (instant := self._wake(each, now)) is not None]
        soonest = min(wakes, default=math.inf)
        if not self._known and not self._is_dear:  # most queues: a process may have workers on a thousand
            return max(LOOK_AGAIN_S, self._looked + _REREAD_S - time.monotonic())
        if soonest > now:
            return max(0.005, min(soonest - now, LOOK_AGAIN_S))
        if not self._is_first:
            await asyncio.sleep(random.uniform(*(_GIVE_WAY_DEAR_S if self._is_dear else _GIVE_WAY_S)))
            await self._ask()
        done = await self._book._fire(self._queue, self._known, await self._clock())
        self._known = [_moved(each, done.get(each.plan.name)) for each in self._known]
        if done:
            self._is_first = None not in done.values()
        if not self._is_first:
            await self._ask()  # somebody was faster
        return 0.0

    def _wake(self, each: Scheduled, now: float) -> float | None:
        known = self._wakes.get(each.plan.name)
        if known is None or known[0] != each or (known[1] is None and each.plan.paused):
            known = self._wakes[each.plan.name] = (each, schedules.wakes_at(each.plan, each.mark, now))
        return known[1]

    async def _clock(self) -> float:
        now = await self._store().clock()
        self._ahead, self._wall = now - time.monotonic(), time.time() - time.monotonic()
        return now

    async def _look(self) -> None:
        """At what is there: without asking where the looks for messages show it, else now and then."""
        stored = self._store().schedules
        assert stored is not None
        seen = stored.seen(self._queue)
        self._is_dear = seen is not None
        if seen is not None:
            self._known = _newer(self._known, seen)
        elif time.monotonic() - self._looked >= _REREAD_S:
            if self._known or await self._book._has_any(self._queue):
                await self._ask()
            self._looked = time.monotonic()
        if self._known and abs(time.time() - time.monotonic() - self._wall) > _CLOCK_SET_S:
            await self._clock()  # the wall clock was set, and perhaps it is the store's

    async def _ask(self) -> None:
        stored = self._store().schedules
        assert stored is not None
        self._known = await stored.of(self._queue)
        self._looked = time.monotonic()
        if self._known:
            await self._clock()


def _moved(each: Scheduled, due: Due | None) -> Scheduled:
    return each if due is None else Scheduled(each.plan, schedules.moved(each.plan, each.mark, due))


def _newer(known: Sequence[Scheduled], seen: Sequence[Scheduled]) -> list[Scheduled]:
    """What was seen, with our own marks where they are further: a look may be older than what we did."""
    ours = {each.plan.name: each.mark for each in known}
    return [
        each if ours.get(each.plan.name, Mark()).slot <= each.mark.slot else Scheduled(each.plan, ours[each.plan.name])
        for each in seen
    ]
