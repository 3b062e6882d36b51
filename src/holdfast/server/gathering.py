"""Single calls on a bucket share objects as those of one process do, although they come spread over time.

Callers of one process are answered together and are back together. Over HTTP they come back one by one, and an object
for each handful would be written. So one group is under way at a time, and the next one waits for who was answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class Gathering:
    """One queue's."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        self._size = self._under_way = 0  # of the last group; and how many of it have no answer yet
        self._expected = 0  # callers: who was answered together, and who waited meanwhile
        self._began = self._latest = 0.0
        self._seconds = self._took = 0.0  # of the last call that was carried out; what the next group goes by
        self._timer: asyncio.TimerHandle | None = None

    async def call(self, do: Callable[[], Awaitable[T]]) -> T:
        """Begun together with others; alone where nobody else calls."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._consider()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting = [each for each in self._waiting if each is not turn]
            else:
                self._landed()
            raise
        try:
            answer = await do()
            self._seconds = time.monotonic() - self._began
            return answer
        finally:
            self._landed()

    def _consider(self) -> None:
        """Begin, or wait for more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._under_way or not self._waiting:
            return
        now = time.monotonic()
        rest = min(self._latest - now, self._took / 4)  # who has not come for so long is not on the way
        if len(self._waiting) >= self._expected or rest <= 0:
            self._begin()
        else:
            self._timer = asyncio.get_running_loop().call_later(rest, self._begin)

    def _begin(self) -> None:
        self._timer = None
        group = [turn for turn in self._waiting if not turn.done()]
        self._waiting = []
        self._size = self._under_way = len(group)
        self._began = time.monotonic()
        for turn in group:
            turn.set_result(None)

    def _landed(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._took = min(
                self._seconds, 2 * self._took or self._seconds
            )  # one that was held up tells little of the next
            self._expected = self._size + len(self._waiting)
            self._latest = time.monotonic() + 2 * self._took
            self._consider()
