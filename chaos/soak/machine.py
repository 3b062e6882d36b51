"""How busy the machine is: the same little work again and again, beside a process that has nothing else to do."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
import time

_WORK = bytes(1 << 18)
_ASKED = 4  # times: a claim asks its server about so often
_PAUSE_SECONDS = 0.02


class Yardstick:
    """Claims are judged beside it: when both take longer, it is others who keep the machine busy.

    It does what a claim does, without a store: it computes, asks another process and syncs a file.
    """

    def __init__(self) -> None:
        self._times: list[float] = []

    async def measure(self) -> None:
        """Until it is cancelled."""
        pipe = asyncio.subprocess.PIPE
        other = await asyncio.create_subprocess_exec("cat", stdin=pipe, stdout=pipe)
        try:
            with tempfile.TemporaryFile() as file:
                while True:
                    await asyncio.sleep(_PAUSE_SECONDS)
                    began = time.perf_counter()
                    await self._work(other, file.fileno())
                    self._times.append(time.perf_counter() - began)
        finally:
            with contextlib.suppress(ProcessLookupError):
                other.kill()

    async def _work(self, other: asyncio.subprocess.Process, file: int) -> None:
        assert other.stdin is not None  # both were asked for
        assert other.stdout is not None
        hashlib.sha256(_WORK).digest()
        for _ in range(_ASKED):
            other.stdin.write(b"?\n")
            await other.stdout.readline()
        await asyncio.to_thread(_sync, file)

    def p99(self) -> float:
        """Seconds, since this was asked last; 0: nothing was measured."""
        times, self._times = sorted(self._times), []
        return times[int(len(times) * 0.99)] if times else 0.0


def _sync(file: int) -> None:
    os.pwrite(file, b"x", 0)
    os.fsync(file)
