"""The database's clock: that of the process that owns it, anchored when it opens, and never behind what was noted."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..folder.clock import MARK_INTERVAL, since_boot


class SlateClock:
    """Seconds since 1970; steps of the wall clock move nothing."""

    def __init__(
        self,
        latest: float,
        *,
        given: Callable[[], float] | None = None,
        wall: Callable[[], float] = time.time,
        ticks: Callable[[], float] = since_boot,
    ) -> None:
        # Never behind what an earlier life has noted, or leases and delays of that time would start over.
        self._ahead = 0.0 if given else max(wall(), latest) - ticks()
        self._ticks = given or ticks
        self._next_mark = self.now()

    def now(self) -> float:
        return self._ticks() + self._ahead

    def is_to_be_noted(self, now: float) -> bool:
        """Now and then, in a write that happens anyway."""
        if now < self._next_mark:
            return False
        self._next_mark = now + MARK_INTERVAL
        return True
