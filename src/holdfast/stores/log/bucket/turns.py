"""When a process replaces a head: callers that come together share one replacement, processes take turns.

Whoever has just replaced a head knows it, and can replace it again with one request; everybody else must read it
first. So a process that goes on is as fast as it gets, and one that comes in between costs both a refused request.
Where several want the same head, the head says whose turn it is (`Beyond.turn`): the others leave it alone, and the
last replacement of a turn names the next one in line. Who is not in line asks, and is put first by whoever sees it.
These are hints: the replacement decides, and a turn that nobody uses is anybody's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable

from ..head.state import Head

_PART = 0.06  # of a replacement: how long it waits for callers that were answered together
_LONGEST = 0.01  # seconds
_WEIGHT = 0.2  # of the newest observation
_SLOWER = 0.05  # the same when it took longer
_SLOWEST = 0.3  # seconds of a replacement, as far as others wait for it
_ROUND = 1.2  # seconds in which everybody in line has a turn
_LONGEST_TURN = 0.8
_LEAST = 3  # replacements of a turn
_MOST = 40
_AT_ONCE = 0.5  # of a replacement: who goes on within this keeps its turn
_STALLED = 3.5  # replacements in whose time whoever has the turn would have used it
_ASKING = 0.5  # seconds after which who is still not in line asks again
_ANSWERED = 4.5  # replacements in whose time who has asked is put in line by somebody who goes on
_HEARD = 1.0  # seconds in which a turn ends early for those who ask at most once, and for which a plea is remembered
_OUTSIDE = 0.6  # seconds after which who is not in line comes in between
_LOOKS = 0.15  # of a replacement, between two looks whether it is our turn
_SHORTEST_LOOK = 0.008  # seconds
_MEMORY = 5.0  # seconds for which a rival is remembered
_IN_LINE = 4.0  # seconds after its last replacement in which a process is in line
_OLD = 2.0  # seconds by which the clocks of two processes may differ
_PATIENCE = 4.0  # seconds after which a commit no longer waits for its turn
_UNKNOWN = 0.06  # seconds of a replacement before one was seen


class Turns:
    """One per committer; `name` is its session."""

    def __init__(self, name: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._pace = 0.0  # seconds a replacement takes
        self._gap = 0.0  # seconds from one of our replacements to the next
        self._begun = self._last = self._asked = self._contended = float("-inf")
        self._rivals = 0
        self._met = float("-inf")  # when others were last seen while we waited
        self._runs = 0
        self._tried = 0.0
        self._guess = _UNKNOWN  # of the pace, before one was seen
        self.waited = False  # for our turn, in the commit under way
        self._heard = float("-inf")
        self._guests: dict[str, float] = {}  # who is not in line and wants a turn, since when
        self._seating = False  # the replacement under way puts guests in line
        self.asks = False  # we should ask for a turn now
        self._asking = float("-inf")  # when we last did
        self.goes_on = True  # what is committed will be followed by more at once, as far as we know
        self.is_next = False  # our turn comes after the one that we see
        self._ours_since: float | None = None  # when our turn began
        self._whose = ""  # the turn as last seen, and since when
        self._whose_since = 0.0
        self._version: tuple[str, int] = ("", 0)  # of the head: who wrote it, with which attempt; since when
        self._version_since = 0.0
        self._absent: dict[str, int] = {}  # who did not use its turn, and its last attempt then

    # What is known.

    @property
    def begun_at(self) -> float:
        """When the commit under way began."""
        return self._begun

    @property
    def last_at(self) -> float:
        """When the last replacement was done."""
        return self._last

    @property
    def is_shared(self) -> bool:
        """Others have replaced this head not long ago, or would."""
        return bool(self.others) or self._clock() - self._asked < _MEMORY

    @property
    def others(self) -> int:
        """How many others have replaced this head not long ago."""
        return self._rivals if self._clock() - max(self._last, self._met) < _MEMORY else 0

    @property
    def is_contended(self) -> bool:
        """Somebody was in our way not long ago, or is: then the head says whose turn it is."""
        return self._runs > 0 or self._clock() - self._contended < _MEMORY

    @property
    def is_ours(self) -> bool:
        """Most likely the attempt under way succeeds: nobody has beaten it yet, or it is our turn."""
        return self._runs == 1 or self._whose == self._name

    # What happens.

    def begun(self) -> None:
        now = self._clock()
        if now - self._last < _MEMORY:
            self._gap += _WEIGHT * (now - self._last - self._gap)
        self._begun = now
        self._runs = 0
        self.waited = self.is_next = False
        self.asks = False

    def tried(self) -> None:
        """An attempt is made."""
        now = self._clock()
        self._runs += 1
        if self._runs > 1:
            self._contended = now
            self._guess = min(2 * _UNKNOWN, (now - self._tried) / 2)  # it was refused, and the head was read
        self._tried = now

    def ended(self, rivals: int) -> None:
        """A replacement is done; so many others were seen at it."""
        now = self._clock()
        if self._runs <= 1 and not self.waited:
            self._learn(now - self._begun)
        self._last = now
        self._rivals = rivals
        if self._seating:
            self._heard = now

    def _learn(self, took: float) -> None:
        """One that took long says little: a request was lost or held up."""
        pace = self._pace or took
        weight = _WEIGHT if took < pace else _SLOWER
        self._pace = min(_SLOWEST, pace + weight * (min(took, 2 * pace) - pace))

    def asked(self, names: Iterable[str]) -> None:
        """These ask for a turn."""
        for name in names:
            if name != self._name:
                self._asked = self._contended = self._guests[name] = self._clock()
                self._absent.pop(name, None)

    def may_ask(self) -> bool:
        """Whether we ask for a turn now: who has asked is given some time to be heard."""
        now = self._clock()
        if now - self._asking < _ASKING:
            return False
        self._asking = now
        return True

    def pause(self) -> float:
        """Seconds until the next commit should begin: for callers that were answered together."""
        return min(_LONGEST, _PART * self._pace)

    # Whose turn it is.

    def wait(self, head: Head, store_now: float, *, is_read: bool) -> float:
        """How long to leave this head alone: 0 when it is our turn, or nobody's.

        One that was not read just now may be another by now.
        """
        now = self._clock()
        self._look(head, now)
        whose, is_outside = self._whose, self.is_outside(head)
        self.asks = is_outside and self._runs > 0
        is_heard = now - self._asking < _ANSWERED * self._known_pace and now - self._begun < _OUTSIDE
        if not whose and is_outside and self._runs > 1 and is_heard:
            return self._looks  # who is faster again and again has heard us by now, most likely; if there is anybody
        if whose in ("", self._name) or store_now - head.now > _OLD or now - self._begun > _PATIENCE:
            return 0.0
        if is_outside:
            return self._outside(now, self._looks)
        if is_read and now - self._version_since > _STALLED * self._known_pace:
            self._absent[whose] = head.beyond.sessions.get(whose, (0, 0.0))[0]
            return 0.0
        before = [each for each in self._line(head) if each != whose].index(self._name)
        self.waited, self.is_next, self._contended = True, not before, now
        if self.is_next:
            return self._looks
        soon = self._whose_since + before * self._turn(head)
        quiet = self._version_since + (_STALLED + 0.5 * before + 0.3 * random.random()) * self._known_pace
        return max(self._looks, min(soon, quiet) - now)

    def is_outside(self, head: Head) -> bool:
        """We are not in line."""
        return self._name not in self._members(head)

    @property
    def _known_pace(self) -> float:
        return self._pace or self._guess

    @property
    def _looks(self) -> float:
        """Seconds between two looks whether it is our turn."""
        return max(_SHORTEST_LOOK, _LOOKS * self._known_pace)

    def _outside(self, now: float, pause: float) -> float:
        """Who is not in line asks for a turn, and after a while comes in between."""
        self._contended = now
        if now - self._begun > _OUTSIDE:
            return 0.0
        self.asks = self.waited = True
        return pause

    def _look(self, head: Head, now: float) -> None:
        version = _last(head)
        if version != self._version:
            self._version, self._version_since = version, now
        if head.beyond.turn != self._whose:
            self._whose, self._whose_since = head.beyond.turn, now
            if self._whose != self._name or version[0] != self._name:
                self._ours_since = None  # one that we began without being given it is over
        members = self._members(head)
        self._rivals, self._met = len(members) - (self._name in members), now

    def guests(self, head: Head) -> list[str]:
        """Who is put in line by the replacement that is about to be made."""
        now, members = self._clock(), self._members(head)
        for name, since in list(self._guests.items()):  # lists are made in other threads
            if name in members or now - since > _HEARD:
                del self._guests[name]
        guests = list(self._guests)
        self._seating = bool(guests)
        return guests

    def next(self, head: Head) -> str:
        """Whose turn it is after the replacement that is about to be made; nobody's while there is no crowd."""
        now = self._clock()
        self._look(head, now)
        return self._whose if self._is_anothers(head) else self._next(head, now)

    def _is_anothers(self, head: Head) -> bool:
        """Whether we come in between: somebody else has the turn, and uses it."""
        name, (attempt, _) = self._whose, head.beyond.sessions.get(self._whose, (0, 0.0))
        if name in ("", self._name) or self._absent.get(name) == attempt:
            return False
        return head.now - head.beyond.sessions[_last(head)[0]][1] < _OLD

    def _next(self, head: Head, now: float) -> str:
        line = [each for each in self._line(head) if each != self._name]
        if line and self._seating and now - self._heard > _HEARD:
            self._ours_since = None
            return line[0]
        if self._ours_since is None or self._whose != self._name:
            self._ours_since = now
        if not line or now - self._contended > _MEMORY:
            return ""
        pace = self._known_pace
        if not self.goes_on or self._gap > _AT_ONCE * pace:
            return ""  # whoever waits
        if now - self._ours_since < self._turn(head) - 0.5 * pace:
            return self._name
        self._ours_since = None
        return line[0]

    def _turn(self, head: Head) -> float:
        """Seconds of a turn: the more are in line, the shorter."""
        count = max(2, len(self._members(head)))
        pace = self._known_pace
        return min(_LONGEST_TURN, _MOST * pace, max(_LEAST * pace, _ROUND / count))

    def _members(self, head: Head) -> list[str]:
        since = head.now - _IN_LINE
        return [name for name, (_, at) in head.beyond.sessions.items() if at > since]

    def _line(self, head: Head) -> list[str]:
        """Those who use their turns, the one first that has not had the head for the longest time."""
        sessions = head.beyond.sessions
        return [name for name in self._members(head) if self._absent.get(name) != sessions[name][0]]


def _last(head: Head) -> tuple[str, int]:
    """Who has written this head, with which of its attempts: whoever signs is the last."""
    name, (attempt, _) = next(reversed(head.beyond.sessions.items()), ("", (0, 0.0)))
    return name, attempt
