"""How long the machine kept us from running: a test that measures time does not blame its subject for that."""

from __future__ import annotations

import time
from pathlib import Path

_NANOSECONDS = 1e-9
_SCHEDULED = Path("/proc/thread-self/schedstat")  # nanoseconds that this thread ran, and that it waited for a processor


def waited() -> float:
    """Seconds for which this thread could have run and had no processor; 0 where nobody counts them."""
    try:
        return int(_SCHEDULED.read_text().split()[1]) * _NANOSECONDS
    except (OSError, IndexError, ValueError):
        return 0.0


class Stopwatch:
    """Seconds since it was made, without those that the machine spent on others."""

    def __init__(self) -> None:
        self._started, self._waited = time.monotonic(), waited()

    def seconds(self) -> float:
        return time.monotonic() - self._started - (waited() - self._waited)
