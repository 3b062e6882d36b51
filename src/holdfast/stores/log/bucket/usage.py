"""How many requests of each kind, and how many bytes: what a bucket costs."""

from __future__ import annotations

import threading
from collections import Counter

from ..names import queue_of

KINDS = ("put", "get", "head", "list", "delete")


class Tally:
    """Counts of one space since it was opened, in all and by queue; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {}

    def add(self, kind: str, *, key: str = "", sent: int = 0, received: int = 0) -> None:
        """A request for a key, or for several of one queue."""
        queue = queue_of(key)
        with self._lock:
            counts = self._counts.setdefault(queue, Counter())
            counts[kind] += 1
            counts["bytes_sent"] += sent
            counts["bytes_received"] += received

    def total(self) -> int:
        """All requests."""
        return sum(count for kind, count in self.read().items() if not kind.startswith("bytes"))

    def read(self, queue: str | None = None) -> dict[str, int]:
        """`put get list delete head`, and `bytes_sent bytes_received`; of one queue, or of all and whatever else."""
        with self._lock:
            some = list(self._counts.values()) if queue is None else [self._counts.get(queue, Counter())]
            return {kind: sum(counts[kind] for counts in some) for kind in (*KINDS, "bytes_sent", "bytes_received")}
