"""A clock that stands still until it is moved."""

from __future__ import annotations

import time
from collections.abc import Callable


class ManualClock:
    """Give it to a store as its clock: `clock()` is seconds since 1970, `advance` moves it and wakes who waits."""

    def __init__(self, now: float | None = None) -> None:
        # Whole seconds: a store may round due times up to its own resolution, and `advance(delay)` must reach them.
        self._now = float(int(time.time())) if now is None else now
        self._callbacks: list[Callable[[], object]] = []

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> float:
        """Move the clock on; never back. The new time."""
        if seconds < 0:
            raise ValueError(f"a clock moves on, not by {seconds}")
        self._now += seconds
        for callback in list(self._callbacks):
            callback()
        return self._now

    def on_advance(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back after every move, until the returned function is called."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None
