"""Who waits for which topic in this process: a counter per topic, and waiters of any number of event loops."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
WORK, DONE = "work", "done"
Outcome = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Topics:
    """Counts signals per topic, so that one between a look and a wait is not lost; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._signals: Counter[str] = Counter()
        self._for_all = 0  # added to every topic's count, so that "everybody" costs nothing per topic
        self._waiters: dict[str, dict[asyncio.Future[bool], None]] = {}  # who came first is woken first

    def ticket(self, topic: str) -> int:
        """The topic's count of signals."""
        return self._signals[topic] + self._for_all

    async def wait(self, topic: str, timeout: float, *, since: int) -> bool:
        """True once the count has left `since`, False after `timeout` seconds."""
        return await self.wait_any({topic: since}, timeout)

    async def wait_any(self, tickets: Mapping[str, int], timeout: float) -> bool:
        """True once the count of one of these has left its ticket, False after `timeout` seconds."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        with self._lock:
            if any(self.ticket(topic) != since for topic, since in tickets.items()):
                return True
            if timeout <= 0:
                return False
            for topic in tickets:
                self._waiters.setdefault(topic, {})[waiter] = None
        timer = waiter.get_loop().call_later(timeout, _answer, waiter, False)
        try:
            return await waiter
        finally:
            timer.cancel()
            self._forget(tickets, waiter)

    def signal(self, topics: Iterable[str]) -> list[Outcome]:
        """Count a signal for each; the waiters are the caller's to `deliver`, together with what else it has."""
        woken: dict[asyncio.Future[bool], None] = {}
        with self._lock:
            for topic in topics:
                self._signals[topic] += 1
                woken |= self._waiters.pop(topic, {})
        return [(waiter, True, None) for waiter in woken]

    def signal_all(self) -> list[Outcome]:
        """The same for every topic there is or will be."""
        with self._lock:
            self._for_all += 1
            waiting = list(self._waiters)
        return self.signal(waiting)

    def _forget(self, topics: Iterable[str], waiter: asyncio.Future[bool]) -> None:
        with self._lock:
            for topic in topics:
                waiters = self._waiters.get(topic)
                if waiters is not None:
                    waiters.pop(waiter, None)
                    if not waiters:
                        del self._waiters[topic]


def deliver(outcomes: Iterable[Outcome]) -> None:
    """Resolve futures from any thread, with one call per event loop: each call is a system call that wakes its loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome[0].get_loop(), []).append(outcome)
    for loop, mine in by_loop.items():
        call(loop, _resolve, mine)


def call(loop: asyncio.AbstractEventLoop, callback: Callable[[T], None], argument: T) -> None:
    """From any thread."""
    try:
        loop.call_soon_threadsafe(callback, argument)
    except RuntimeError:  # the loop was closed with its tasks: nobody is left to be told
        if not loop.is_closed():
            raise


def _resolve(outcomes: list[Outcome]) -> None:
    for future, result, error in outcomes:
        if future.done():  # cancelled, or past its deadline
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _answer(waiter: asyncio.Future[bool], value: bool) -> None:
    if not waiter.done():
        waiter.set_result(value)


def topic(queue: str, what: str) -> str:
    return f"{queue.partition('#')[0]}/{what}"  # all shards of a queue are one topic


def work_topic(queue: str) -> str:
    """Signalled when there may be something to claim."""
    return topic(queue, WORK)


def done_topic(queue: str) -> str:
    """Signalled when a message may have ended."""
    return topic(queue, DONE)
