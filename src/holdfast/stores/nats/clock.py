"""The server's clock, as far as a client can know it: bounds, never a guess. No I/O, no clock of its own."""

from __future__ import annotations

from typing import NamedTuple

DRIFT = 1e-3  # seconds a second that two clocks may run apart; NTP turns each by 5e-4 at most
MARGIN_S = 0.01  # the clocks of a cluster's servers may differ: any of them may be the one we heard


class Moment(NamedTuple):
    """What the server's clock shows now.

    A lease that is given ends by `latest`, a lease of another is over by `earliest`: so nobody's lease is cut short,
    however wrong either side is within its bounds.
    """

    earliest: float
    now: float  # the middle: for delays and for people
    latest: float
    at: float  # by our own clock

    @property
    def doubt(self) -> float:
        """How far the bounds are apart."""
        return self.latest - self.earliest

    @property
    def ahead(self) -> float:
        """By how much a lease that is given now ends late, against our own clock."""
        return self.latest - self.at

    def of_own(self, ahead: float) -> Moment:
        """For a lease that this client gave itself, `ahead` by then: our own clock alone says when it is over."""
        return self._replace(earliest=self.at + ahead)


class Clock:
    """Bounds of what the server's clock is ahead of ours, from the stamps in its answers.

    An answer with the stamp S to a request that was sent at `sent` and answered at `got` was stamped in between: the
    server is ahead by S - got at least and S - sent at most. Every answer can narrow the bounds, and time widens them.
    """

    def __init__(self, ahead: float) -> None:
        self._low = self._high = ahead
        self._heard = float("-inf")
        self._sure = False

    def hear(self, stamp: float, sent: float, got: float) -> None:
        wider = DRIFT * (got - sent)
        low, high = stamp - got - wider, stamp - sent + wider
        old_low, old_high = self._bounds(got)
        if self._sure and max(low, old_low) <= min(high, old_high):
            low, high = max(low, old_low), min(high, old_high)
        # else: the first word, another server, or its clock was set: what we thought to know is void
        self._low, self._high, self._heard, self._sure = low, high, got, True

    def doubt_all(self) -> None:
        """It may be another server from now on: the next answer counts alone."""
        self._sure = False

    def _bounds(self, at: float) -> tuple[float, float]:
        wider = DRIFT * max(at - self._heard, 0.0) if self._heard > float("-inf") else 0.0
        return self._low - wider, self._high + wider

    def moment(self, at: float) -> Moment:
        """At this instant of our own clock."""
        low, high = self._bounds(at)
        return Moment(at + low - MARGIN_S, at + (low + high) / 2, at + high, at)

    def age(self, at: float) -> float:
        """Seconds since the server was last heard; infinite while nothing sure is known."""
        return at - self._heard if self._sure else float("inf")
