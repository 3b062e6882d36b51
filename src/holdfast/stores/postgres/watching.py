"""Who waits for messages to end, and who tells them: this process at once, others when somebody asked to be told."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from ..base import DEAD
from .wake import Bell, Listener, Notifier

_LOOKS = (0.005, 1.6)  # seconds of the first look again at what another process may have settled, and its growth
_WISH = 30.0  # seconds for which ends are told to those who asked
_ASK_AGAIN = 10.0
_FEW = 8  # waiters that may all look at once
_TURN = 0.001  # seconds that each further one spreads them over


class _Looker(msgspec.Struct):
    """A task that waits: the ticket from before its last look, and how often it looked in vain."""

    queue: str
    ticket: int
    looks: int = 0


class Endings:
    """Ends of messages, by queue. NOTIFY costs every commit of the database a little: without a wish, none is sent."""

    def __init__(self, bell: Bell, listener: Listener | None, notifier: Notifier | None, *, poll: float) -> None:
        self._bell = bell
        self._listener = listener
        self._notifier = notifier
        self._poll = poll
        self._asked: dict[str, float] = {}
        self._lookers: WeakKeyDictionary[asyncio.Task[Any], _Looker] = WeakKeyDictionary()

    def ended(self, queue: str) -> None:
        """Messages of the queue have changed their state."""
        name = _done(queue)
        self._bell.ring(name)
        if self._notifier is not None and time.monotonic() - self._bell.rang(_wish(queue)) < _WISH:
            self._notifier.tell(name)

    def looking(self, queue: str) -> None:
        """This task is about to look: what rings from now on must not be missed by a watch that follows."""
        task = asyncio.current_task()
        if task is None:
            return
        name = _done(queue)
        looker = self._lookers.get(task)
        if looker is None or looker.queue != name:
            looker = self._lookers[task] = _Looker(name, 0)
        looker.ticket = self._bell.ticket(name)

    async def watch(self, queue: str, timeout: float) -> None:
        """Until something may have ended; looks at what was not told grow rarer."""
        name, task = _done(queue), asyncio.current_task()
        looker = None if task is None else self._lookers.get(task)
        if looker is None or looker.queue != name:
            looker = _Looker(name, self._bell.ticket(name))
        self._ask(queue)
        first, growth = _LOOKS
        looker.looks += 1
        pause = min(timeout, self._poll, first * growth ** min(looker.looks, 20))
        many = self._bell.waiting(name) - _FEW
        await self._bell.wait(name, pause, since=looker.ticket)
        if self._bell.ticket(name) != looker.ticket:
            looker.looks = 0
            if many > 0:  # not all of them at once, whenever anything ends
                await asyncio.sleep(min(pause, random.uniform(0, many * _TURN)))

    def _ask(self, queue: str) -> None:
        """The others shall tell us."""
        now = time.monotonic()
        if self._listener is None or self._notifier is None or now < self._asked.get(queue, 0.0):
            return
        self._listener.start()
        if self._listener.works:
            self._asked[queue] = now + _ASK_AGAIN
            self._notifier.tell(_wish(queue))


def _done(queue: str) -> str:
    """What rings when messages of a queue end; no queue is called so."""
    return f"{queue.removesuffix(DEAD)}/done"


def _wish(queue: str) -> str:
    """What rings when somebody wants to be told of ends."""
    return f"{queue.removesuffix(DEAD)}/wish"
