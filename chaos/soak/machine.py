"""How busy the machine is: the same little work again and again, in a process that has nothing else to do."""

from __future__ import annotations

import asyncio
import hashlib
import time

_WORK = bytes(1 << 20)
_PAUSE_SECONDS = 0.02


class Yardstick:
    """Claims are judged beside it: when both take longer, it is others who keep the machine busy."""

    def __init__(self) -> None:
        self._times: list[float] = []

    async def measure(self) -> None:
        """Until it is cancelled."""
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_PAUSE_SECONDS)
            hashlib.sha256(_WORK).digest()
            self._times.append(time.perf_counter() - began - _PAUSE_SECONDS)

    def p99(self) -> float:
        """Seconds, since this was asked last; 0: nothing was measured."""
        times, self._times = sorted(self._times), []
        return times[int(len(times) * 0.99)] if times else 0.0
