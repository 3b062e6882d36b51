"""One process among several at a head: how long a replacement takes, and whether others take part."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..head.state import Head

MEMORY_S = 5.0  # a process that has not replaced the head for so long does not take part
STEADY_TRIPS = 2  # between two replacements of a process that goes on
TRIP_S = 0.06  # of a replacement, before one was seen
TRIP_MAX_S = 0.3  # beyond, something was held up
_WEIGHT = 0.2  # of the newest replacement in the usual time of one


class Pace:
    """One per head and process; `me` is its session."""

    def __init__(self, me: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.me = me
        self.trip_s = TRIP_S
        self.swapped_at = float("-inf")
        self.is_shared = False  # others have replaced the head not long ago
        self._clock = clock
        self._tried_at: float | None = None

    @property
    def is_outdated(self) -> bool:
        """Others take part, and we have not replaced the head for a while: it has changed."""
        return self.is_shared and self._clock() - self.swapped_at > STEADY_TRIPS * self.trip_s

    def tries(self, head: Head) -> None:
        """A replacement of this head is about to be sent."""
        self._tried_at = self._clock()
        self.is_shared = any(
            name != self.me and at > head.now - MEMORY_S for name, (_, at) in head.beyond.sessions.items()
        )

    def swapped(self) -> None:
        """The last one that was sent is done."""
        if self._tried_at is not None:
            self.swapped_at = self._clock()
            took_s = min(self.swapped_at - self._tried_at, TRIP_MAX_S)
            self.trip_s += _WEIGHT * (took_s - self.trip_s)
            self._tried_at = None
