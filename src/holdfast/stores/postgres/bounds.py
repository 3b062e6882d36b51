"""Where to begin looking for messages when finished ones litter the index.

Deleted rows stay in the index until a vacuum may take them away; a transaction that is open elsewhere forbids that.
Then every claim would walk over all that was finished since. A claim that found messages knows how far it came: the
next one begins there, per priority. What may lie below - late commits, retries, leases that ran out - is looked for
about once a second, from the start. While there is little litter, every claim begins at the start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

Ranges: TypeAlias = tuple[list[int], list[str], list[int]]  # (rank, id) from here on, and below that rank

LITTER = 20_000  # dead rows that make beginning further on worth it
EVERYTHING: Ranges = ([0], ["00000000-0000-0000-0000-000000000000"], [256])
_LOOK_AGAIN = 1.0
_SHARE = 10  # looking from the start may take one part in so many


class Bounds:
    """One queue's, in one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._low: dict[int, str] = {}
        self.littered = False  # whether beginning further on is worth it
        self._next_whole = 0.0
        self.next_look = clock() + _LOOK_AGAIN  # when the litter should be counted again

    def learn(self, litter: int) -> None:
        """So many dead rows there are."""
        self.littered = litter >= LITTER
        self.next_look = self._clock() + _LOOK_AGAIN
        if not self.littered:
            self._low.clear()

    def reset(self) -> None:
        """Something came back that may lie anywhere."""
        self._next_whole = 0.0

    def ranges(self) -> tuple[Ranges, bool]:
        """Where to look now, and whether that is everywhere."""
        if not self.littered or not self._low or self._clock() >= self._next_whole:
            return EVERYTHING, True
        ranks = sorted(self._low)
        lows = [self._low[rank] for rank in ranks]
        return ([0, *ranks], [EVERYTHING[1][0], *lows], [*ranks, 256]), False

    def found(self, places: Sequence[tuple[int, str]], *, whole: bool, took: float) -> None:
        """A claim found these (rank, id), in this order, and took so long."""
        if not self.littered:
            return
        if whole:
            self._next_whole = self._clock() + max(_LOOK_AGAIN, _SHARE * took)
            self._low.clear()
        for rank, id in places:
            if id > self._low.get(rank, ""):
                self._low[rank] = id
