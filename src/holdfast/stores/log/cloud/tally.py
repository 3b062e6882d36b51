"""How many requests of each kind, and how many bytes: what a bucket costs."""

from __future__ import annotations

import threading
from collections import Counter


class Tally:
    """Counts of one space since it was opened; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, kind: str, *, sent: int = 0, received: int = 0) -> None:
        with self._lock:
            self._counts[kind] += 1
            self._counts["bytes_sent"] += sent
            self._counts["bytes_received"] += received

    def total(self) -> int:
        """All requests."""
        return sum(count for kind, count in self.read().items() if not kind.startswith("bytes"))

    def read(self) -> dict[str, int]:
        """`put get list delete head`, and `bytes_sent bytes_received`."""
        with self._lock:
            kinds = ("put", "get", "head", "list", "delete", "bytes_sent", "bytes_received")
            return {kind: self._counts[kind] for kind in kinds}
