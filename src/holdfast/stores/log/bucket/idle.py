"""When to look for messages of other machines, where nobody can wake us and every look costs: less often when idle."""

from __future__ import annotations

import time
from collections.abc import Callable

_QUIET = 60.0  # seconds without a message before looks become rarer
_IDLE = 300.0  # seconds without a message after which they are rarest
_RAREST = 50.0  # seconds: 72 looks an hour
_HOUSEKEEPING = 3600.0  # seconds between the rounds of an idle worker


class Polling:
    """One per queue and process; `interval` is how often an active one looks."""

    def __init__(self, interval: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._clock = clock
        self._active = self._kept = clock()
        self._looked = float("-inf")
        self._ticket: int | None = None
        self._due = float("inf")

    def found(self) -> None:
        """A message came, and there may be more: look as often as asked for."""
        self._active, self._ticket = self._clock(), None

    def looked(self, ticket: int, due_in: float | None) -> None:
        """A look found nothing; `ticket` was taken before, and something may be due after so many seconds."""
        self._looked = self._clock()
        self._ticket = ticket
        self._due = self._looked + due_in if due_in is not None else float("inf")

    def pause(self, ticket: int) -> float:
        """Seconds until the next look; a signal since the last one ends it."""
        if ticket != self._ticket:
            return 0.0
        return max(0.0, min(self._looked + self.interval, self._due) - self._clock())

    @property
    def is_active(self) -> bool:
        """Messages came not long ago: a new call looks at once."""
        return self._clock() - self._active < _QUIET

    @property
    def interval(self) -> float:
        idle = self._clock() - self._active
        if idle < _QUIET:
            return self._interval
        return max(self._interval, _RAREST * min(1.0, (idle - _QUIET) / (_IDLE - _QUIET)))

    def is_resting(self) -> bool:
        """Nothing has happened here, and upkeep was due not long ago."""
        now = self._clock()
        if now - self._active < _IDLE or now - self._kept > _HOUSEKEEPING:
            self._kept = now
            return False
        return True
