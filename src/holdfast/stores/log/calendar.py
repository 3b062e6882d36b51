"""How the store's clock and the calendar lie to each other.

The store's clock only counts: it is right about durations, whatever becomes of the wall clock. Leases, delays, backoff
and dedup windows are on it, and so are the instants in ids, keys and heads. `at`, the days of an archive and every
instant that is shown are of the calendar, which is the wall clock; columns of blocks and archive files hold such.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

STEP = 0.1  # seconds: what the two clocks differ by less is noise, and must not make shown instants flicker
_PROMPT = 0.05  # seconds within which two clocks must be read to be compared


class Calendar(msgspec.Struct, frozen=True):
    """A store's clock against the wall clock, at one moment."""

    ahead: float = 0.0  # seconds by which the store's clock is ahead
    earlier: tuple[tuple[float, float], ...] = ()  # before this instant of the store's clock it was ahead by so much
    keyed: bool = True  # keys tell instants of the calendar from those of the store's clock

    def wall(self, instant: float) -> float:
        """An instant of the store's clock, by the calendar."""
        for until, ahead in self.earlier:
            if instant < until:
                return instant - ahead
        return instant - self.ahead

    def shown(self, instant: float | None) -> float | None:
        return None if instant is None else self.wall(instant)


IN_STEP = Calendar()
SAME = Calendar(keyed=False)  # of a store whose clock is set by the calendar of its server


class Reckoning:
    """The calendar of a store's clock, from a wall clock that may be set at any time."""

    def __init__(
        self, ticks: Callable[[], float], wall: Callable[[], float], earlier: tuple[tuple[float, float], ...] = ()
    ) -> None:
        self._ticks = ticks
        self._wall = wall
        self._earlier = earlier
        self._current = Calendar(earlier=self._other_than(0.0))

    def __call__(self) -> Calendar:
        ticks = self._ticks()
        ahead = ticks - self._wall()
        if abs(ahead - self._current.ahead) > STEP and self._ticks() - ticks < _PROMPT:  # else we were stopped between
            ahead = round(ahead, 1)
            self._current = Calendar(ahead, self._other_than(ahead))
        return self._current

    def _other_than(self, ahead: float) -> tuple[tuple[float, float], ...]:
        """Times in which it was as it is now need no word, when nothing else was before."""
        return self._earlier if any(abs(each - ahead) > STEP for _, each in self._earlier) else ()
