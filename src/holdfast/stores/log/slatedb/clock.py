"""The database's clock: that of the process that owns it, anchored when it opens, and never behind what was noted."""

from __future__ import annotations

from collections.abc import Callable

from ..calendar import Reckoning
from ..folder.clock import MARK_INTERVAL, started
from ..machine_clock import since_boot, wall_clock


class SlateClock:
    """Seconds that only count up; steps of the wall clock move nothing."""

    def __init__(
        self,
        latest: float,
        apart: float = 0.0,
        *,
        given: Callable[[], float] | None = None,
        wall: Callable[[], float] | None = None,
        ticks: Callable[[], float] | None = None,
    ) -> None:
        """`latest`: where an earlier life noted it last, 0 if none did; and how far it was ahead of the wall clock."""
        wall, ticks = given or wall or wall_clock, given or ticks or since_boot
        before = (latest, apart) if latest else None
        begun = started(before, wall())
        self._ahead = 0.0 if given else begun - ticks()
        self._ticks = ticks
        self.calendar = Reckoning(self.now, wall, ((begun, apart),) if before and not given else ())
        self._noted = self.calendar()
        self._next_mark = self.now()

    def now(self) -> float:
        return self._ticks() + self._ahead

    def is_to_be_noted(self, now: float) -> bool:
        """Now and then, in a write that happens anyway."""
        calendar = self.calendar()
        if now < self._next_mark and calendar is self._noted:
            return False
        self._next_mark, self._noted = now + MARK_INTERVAL, calendar
        return True
