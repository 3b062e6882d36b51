"""Single calls on a bucket share objects as those of one process do, although they come spread over time.

Callers of one process are answered together and are back together. Over HTTP they come back one by one, and an object
for each handful would be written. So one group is under way at a time, and the next one waits for who was answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")


class _Group(msgspec.Struct, eq=False):
    """Calls that were begun together."""

    began: float
    size: int
    left: int  # how many have no answer yet


class Gathering:
    """One queue's."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[_Group]] = []
        self._current: _Group | None = None  # that others wait for
        self._expected = 0  # callers: who was answered together, and who waited meanwhile
        self._latest = 0.0  # when the next group begins, also while callers come
        self._seconds = self._took = 0.0  # of the last call that was carried out; what the next group goes by
        self._timer: asyncio.TimerHandle | None = None

    async def call(self, do: Callable[[], Awaitable[T]]) -> T:
        """Begun together with others; alone where nobody else calls."""
        turn: asyncio.Future[_Group] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._consider()
        try:
            group = await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting = [each for each in self._waiting if each is not turn]
            else:
                self._landed(turn.result())
            raise
        try:
            answer = await do()
            self._seconds = time.monotonic() - group.began
            self._took = self._took or self._seconds
            return answer
        finally:
            self._landed(group)

    def _consider(self) -> None:
        """Begin, or wait for more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        now = time.monotonic()
        if self._current is not None:
            # One that takes four times as long as the last is held up, and holds up nobody else.
            rest = self._current.began + 4 * self._took - now
        elif len(self._waiting) >= self._expected:
            rest = 0.0
        else:
            rest = min(self._latest - now, self._took / 4)  # who has not come for so long is not on the way
        if rest <= 0:
            self._begin()
        else:
            self._timer = asyncio.get_running_loop().call_later(rest, self._begin)

    def _begin(self) -> None:
        self._timer = None
        turns = [turn for turn in self._waiting if not turn.done()]
        self._waiting = []
        if turns:
            self._current = _Group(time.monotonic(), len(turns), len(turns))
            for turn in turns:
                turn.set_result(self._current)

    def _landed(self, group: _Group) -> None:
        group.left -= 1
        if group.left:
            return
        self._took = min(self._seconds, 2 * self._took)  # one that was held up tells little of the next
        if group is self._current:
            self._current = None
            self._expected = group.size + len(self._waiting)
            self._latest = time.monotonic() + 2 * self._took
            self._consider()
