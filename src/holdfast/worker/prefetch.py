"""How many messages to hold beyond the running ones: a fixed number, or by what is seen.

Fast handlers run dry between two claims, so more is claimed at once; as soon as messages wait for a slot, less. What
has waited too long, because the handlers turned slow, is given back for others to take.
"""

from __future__ import annotations

ENOUGH_BYTES = 16 << 20  # of one claim; beyond it the trip is the smaller part of its time
BUFFERED_S = 0.5  # a message may wait so long for a slot when nobody asked for prefetching


class Prefetch:
    """`extra` is the number; `most` bounds what is learned, 0 keeps it as it is."""

    def __init__(self, extra: int, *, step: int, most: int) -> None:
        self.extra = extra
        self._least = extra
        self._step = step
        self._most = max(extra, most)

    @property
    def is_learned(self) -> bool:
        return self._most > self._least

    def answered(self, *, full: bool, dry: bool, waiting: int, size: int = 0) -> None:
        """A claim came back: as many as asked for or fewer, to slots with nothing to do or with messages waiting.

        `size`: bytes of it; large messages are held in memory, so that more of them are not asked for.
        """
        if waiting:
            self.extra = max(self._least, self.extra // 2)
        elif full and dry and size < ENOUGH_BYTES:
            self.extra = min(self._most, max(self.extra * 2, self._step))

    def forget(self) -> None:
        self.extra = self._least
