"""Several processes at one head: whose it is, and for how long.

A process that has just replaced a head can replace it again with one request; everybody else must read it first, and is
refused if somebody was faster. So whoever has a head keeps it for a term of some round trips. The head says its owner
and how much of the term is left (`Beyond.turn`); the others leave it alone for so long. After its term the owner rests,
and the others come one by one, a trip apart: the one first that has waited for the longest time. A duration is told,
not an instant: no clocks are compared.

It is a hint: no rule reads it, the condition of the replacement decides.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from ..head.state import Head

TERM_TRIPS = 8  # fewer: hand-overs cost more of the time; more: the others wait longer
TERM_MIN_S = 0.3  # of a term where trips are short: a hand-over costs some milliseconds whatever a trip takes
TERM_MAX_S = 1.5  # so long the others wait for an owner that was killed
LONE_TERM_S = 6.0  # until a process that believes to be alone rests: so long a newcomer may be refused
REST_TRIPS = 3  # of silence after a term: another's read and replacement fit in
STEADY_TRIPS = 2  # between two replacements of a process that goes on
PATIENCE_S = 3.0  # so long a commit waits for other owners, then it goes ahead
MEMORY_S = 5.0  # a process that has not replaced the head for so long, or was in nobody's way, does not count
TRIP_S = 0.06  # of a replacement, before one was seen
TRIP_MAX_S = 0.3  # beyond, something was held up
_WEIGHT = 0.2  # of the newest replacement in the usual time of one


class Ownership:
    """One per head and process; `me` is its session."""

    def __init__(self, me: str, *, patience_s: float = PATIENCE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.me = me
        self.trip_s = TRIP_S
        self.lost = 0  # replacements that were refused since the last one that was not
        self.swapped_at = float("-inf")
        self.goes_on = True  # what is committed will be followed by more at once, as far as we know
        self.is_shared = False  # others have replaced the head not long ago
        self._patience_s = patience_s
        self._clock = clock
        self._tried_at: float | None = None  # a replacement that was sent and not confirmed
        self._met_at = float("-inf")  # when somebody was last in our way
        self._term_began: float | None = None
        self._rest_until = float("-inf")
        self._signed: object = None  # by whom and with which attempt: the head that was last seen, and since when
        self._seen_at = 0.0
        self._is_steady = False  # whether replacements followed each other in the last term

    @property
    def is_outdated(self) -> bool:
        """Somebody is in our way these days, and we have not replaced the head for a while: it has changed."""
        pause = self._clock() - self.swapped_at
        return self._is_contended and pause > STEADY_TRIPS * self.trip_s

    @property
    def _is_contended(self) -> bool:
        return self.is_shared and self._clock() - self._met_at < MEMORY_S

    def wait_s(self, head: Head, *, seen_at: float, store_now: float, waiting_since: float) -> float:
        """Seconds to leave a head alone that was read at an instant; then it should be read again."""
        now = self._clock()
        if self._tried_at is not None:
            self.lost, self._met_at, self._tried_at, self._term_began = self.lost + 1, now, None, None
        if now - waiting_since > self._patience_s:
            return 0.0
        rest_s = max(0.0, self._rest_until - now)
        owner, left_s = parse(head.beyond.turn)
        members = _members(head, store_now)
        if owner == self.me or owner not in members:
            return rest_s
        signed = next(reversed(head.beyond.sessions.items()))
        if signed != self._signed:
            self._signed, self._seen_at = signed, seen_at
        end = self._seen_at + left_s
        if end - now <= self.trip_s and now - seen_at <= STEADY_TRIPS * self.trip_s:
            return rest_s  # it was read just now, and the term is over when our replacement arrives
        self._met_at = now
        members.remove(owner)
        before = members.index(self.me) if self.me in members else 0
        return max(rest_s, end - now, 0.0) + (min(before, REST_TRIPS - 1) + random.random() / 8) * self.trip_s

    def turn(self, head: Head) -> str:
        """What the replacement that is about to be sent says; empty: the head is anybody's."""
        now = self._tried_at = self._clock()
        pause = now - self.swapped_at
        if self._term_began is not None:
            self._is_steady = pause <= STEADY_TRIPS * self.trip_s
        if self._term_began is None or pause > (1 + REST_TRIPS) * self.trip_s:  # a pause is as good as a rest
            self._term_began = now
        members = _members(head, head.now)
        self.is_shared = any(name != self.me for name in members)
        is_contended = self._is_contended
        left = self._term_began + (self._term_s(len(members)) if is_contended else LONE_TERM_S) - now
        if left <= self.trip_s:  # the next one would be too late
            self._term_began, self._rest_until = None, now + (1 + REST_TRIPS) * self.trip_s
            return ""
        if not self._is_steady:
            left = min(left, STEADY_TRIPS * self.trip_s)
        return f"{self.me} {left * 1000:.0f}" if is_contended and self.goes_on else ""

    def _term_s(self, members: int) -> float:
        """Everybody has a term before anybody loses patience, as far as terms can be so short."""
        return max(TERM_MIN_S, min(TERM_TRIPS * self.trip_s, TERM_MAX_S, PATIENCE_S / max(1, members)))

    def swapped(self) -> None:
        """The replacement is done."""
        if self._tried_at is None:
            return
        now = self._clock()
        if not self.lost:
            took = min(now - self._tried_at, 2 * self.trip_s, TRIP_MAX_S)
            self.trip_s += _WEIGHT * (took - self.trip_s)
        self.lost, self._tried_at, self.swapped_at = 0, None, now


def _members(head: Head, store_now: float) -> list[str]:
    """Who takes part, the one first that has not replaced the head for the longest time."""
    return [name for name, (_, at) in head.beyond.sessions.items() if at > store_now - MEMORY_S]


def parse(turn: str) -> tuple[str, float]:
    """The owner, and the seconds left; what is no such text names nobody, or leaves no time."""
    owner, _, left = turn.partition(" ")
    return owner, min(TERM_MAX_S, int(left) / 1000) if left.isascii() and left.isdecimal() and len(left) < 7 else 0.0
