"""When a process replaces a head: callers that come together share one replacement, processes take turns.

Whoever has just replaced a head knows it, and can replace it again with one request; everybody else must read it first
and is too late. So a process that goes on keeps the others out, which is as fast as it gets, and must end: after
a while it stays away for as long as another one needs to come in. Who is kept out asks for that (`names.HEED`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

_PART = 0.06  # of a replacement: how long it waits for callers that were answered together
_LONGEST = 0.01  # seconds
_WEIGHT = 0.2  # of the newest observation
_TURN = 0.8  # seconds of one replacement after the other, before somebody else's turn
_LONGEST_TURN = 4.0
_SOON = 0.6  # of a turn: when those who were beaten try again
_TWICE = 2  # replacements by which somebody is seen to go on
_REST = 2.2  # replacements in whose time another process reads the head and replaces it
_MEMORY = 5.0  # seconds for which a rival is remembered


class Turns:
    """One per committer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pace = 0.0  # seconds a replacement takes
        self._begun = self._last = self._since = self._asked = float("-inf")
        self._rivals = 0
        self._runs = 0
        self._turn = _TURN
        self._holder = ""  # who beat us, since when we know, and whether it goes on
        self._held_since = 0.0
        self._attempt = self._going_on = 0
        self.is_back = False  # we have stayed away: most likely the head is another one now

    @property
    def begun_at(self) -> float:
        """When the commit under way began."""
        return self._begun

    @property
    def is_shared(self) -> bool:
        """Others have replaced this head not long ago, or would."""
        now = self._clock()
        return (bool(self._rivals) and now - self._last < _MEMORY) or now - self._asked < _MEMORY

    @property
    def is_ours(self) -> bool:
        """Most likely the attempt under way succeeds: nobody has beaten it yet."""
        return self._runs == 1

    @property
    def last_at(self) -> float:
        """When the last replacement was done."""
        return self._last

    def begun(self) -> None:
        self._begun = self._clock()
        self._runs = 0

    def tried(self) -> None:
        """An attempt is made."""
        self._runs += 1

    def behind(self, name: str, attempt: int) -> float:
        """We were beaten, and somebody has replaced the head last: how long to leave it alone before the next attempt.

        Who is seen to go on will do so until the end of its turn.
        """
        now = self._clock()
        if self._runs == 1 or name != self._holder:
            self._holder, self._held_since, self._going_on = name, now, 0
        elif attempt != self._attempt:
            self._going_on += 1
        self._attempt = attempt
        return max(0.0, self._held_since + _SOON * _TURN - now) if self._going_on >= _TWICE else 0.0

    def found(self, *, changed: bool) -> None:
        """We are back, and somebody has used our absence, or not."""
        self.is_back = False
        self._turn = _TURN if changed else min(_LONGEST_TURN, 2 * self._turn)

    def ended(self, rivals: int) -> None:
        """A replacement is done; so many others were seen at it."""
        now = self._clock()
        if self._runs > 1:
            self._since = now  # our turn begins
        else:
            took = now - self._begun
            self._pace = took if not self._pace else self._pace + _WEIGHT * (min(took, 3 * self._pace) - self._pace)
        self._last = now
        self._rivals = rivals

    def asked(self) -> None:
        """Somebody asks for a turn."""
        self._asked = self._clock()
        self._turn = _TURN

    def pause(self) -> float:
        """Seconds until the next commit should begin."""
        now = self._clock()
        gather = min(_LONGEST, _PART * self._pace)
        rested = now - self._last > _REST * self._pace
        if rested:
            self._since = now
        wanted = self._rivals or now - self._asked < _MEMORY
        if rested or not wanted or now - self._since < self._turn:
            return gather
        self.is_back = True
        self._since = self._last + _REST * self._pace
        return max(gather, self._since - now)
