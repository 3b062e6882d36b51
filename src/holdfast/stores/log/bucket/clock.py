"""The bucket's time, from the dates of objects we have just written.

A date says the second in which the server wrote: the offset to our own clock lies between two bounds. Every further
date narrows them; drift widens them slowly. In between our clock counts, through the sleep of a laptop too, so that
steps of the wall clock move nothing. A date that is far off is believed at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..machine_clock import since_boot

_DRIFT = 1e-4
_SLEW = 0.01
FAR = 5.0  # seconds: the window for late writes has to do with less, so that nobody may be wrong by more for long
ROUGH_S = 1.5  # a clock that may be wrong by more says little: less than what others' leases are given beyond their end


def ticks() -> float:
    """What counts between two dates."""
    return since_boot()


class StoreClock:
    """Shared by all spaces of a process on one bucket, so that they agree exactly."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._low = self._high = 0.0
        self._sampled: float | None = None
        self._offset = 0.0
        self._read = 0.0

    def sample(self, began: float, ended: float, date: float) -> None:
        """An object was written between two readings of our clock, and the server dates it so."""
        low, high = date - ended, date + 1.0 - began
        with self._lock:
            if self._sampled is not None:
                slack = _DRIFT * max(0.0, ended - self._sampled)
                narrow = max(low, self._low - slack), min(high, self._high + slack)
                if narrow[0] <= narrow[1]:
                    low, high = narrow
                elif ended < self._sampled:
                    return  # written before the clock was set, and seen only now
                elif low > self._high and date <= ticks() + self._offset:
                    return  # not in the future: somebody has written the object again since, as it was
                # else one of the clocks was set: only the newest date counts
                ended = max(ended, self._sampled)
            middle = (low + high) / 2
            if self._sampled is None or self.doubt > ROUGH_S or abs(middle - self._offset) > FAR:
                self._offset, self._read = middle, max(self._read, ended)
            self._low, self._high, self._sampled = low, high, ended

    @property
    def doubt(self) -> float:
        """Seconds by which it may be wrong, either way."""
        return (self._high - self._low) / 2

    def __call__(self) -> float:
        """Seconds since 1970. What a new date corrects comes little by little, unless it is far off."""
        with self._lock:
            now = ticks()
            most = _SLEW * (now - self._read)
            wrong = (self._low + self._high) / 2 - self._offset
            self._offset += max(-most, min(most, wrong))
            self._read = now
            return now + self._offset


_clocks: dict[str, StoreClock] = {}  # by bucket: what one space learns of the server's time is true for all


def shared(place: str) -> StoreClock:
    return _clocks.setdefault(place, StoreClock())


Clock = Callable[[], float]
