"""`python -m chaos.soak.child URL SECONDS`: a process that sends, claims and works, and prints how it is, every second.

First it finds out for some seconds what it can do; then it does half of that.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections import Counter
from contextlib import suppress

import msgspec
import psutil

import holdfast

from .judging import CONNECTION, Sample

_FIND_OUT_SECONDS = 3.0
_BATCH = 20
_CLOSING_LOOKS = 50  # tenths of a second
_KEPT = 2000  # claim times in a sample at the most


class Load:
    """One queue for a caller whose claims are timed, one for a worker."""

    def __init__(self, claimed: holdfast.Queue[str], worked: holdfast.Queue[str]) -> None:
        self._claimed = claimed
        self._worked = worked
        self._times: list[float] = []
        self.sent = 0
        self.done = 0

    async def turn(self) -> None:
        await self._claimed.enqueue_many(["x" * 300] * _BATCH)
        await self._worked.enqueue_many(["x" * 300] * _BATCH)
        self.sent += 2 * _BATCH
        left = _BATCH
        while left > 0:
            began = time.perf_counter()
            taken = await self._claimed.dequeue_many(_BATCH, wait=5)
            self._times.append(time.perf_counter() - began)
            completed = sum(await self._claimed.complete_many(taken))
            self.done += completed  # after the await: the handler counts too
            left -= len(taken)

    async def handle(self, value: str) -> None:
        self.done += 1

    def sample(self, process: psutil.Process, began: float) -> Sample:
        gc.collect()
        times, self._times = sorted(self._times[-_KEPT:]), []
        p99 = times[int(len(times) * 0.99)] if times else 0.0
        return Sample(
            time.monotonic() - began, process.memory_info().rss / 2**20, _handles(process), p99, self.sent, self.done
        )


def _handles(process: psutil.Process) -> list[str]:
    peers = {each.fd: CONNECTION + "{}:{}".format(*each.raddr) for each in process.net_connections() if each.raddr}
    found = []
    for handle in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing itself
            found.append(peers.get(int(handle)) or os.readlink(f"/proc/self/fd/{handle}").split(":[")[0])
    return sorted(found)


async def main(url: str, seconds: float) -> None:
    process = psutil.Process()
    async with holdfast.connect(url) as broker:  # libraries keep what they make for the first one, whatever comes after
        await broker.install()
    before = _handles(process)
    last = await _soaked(url, seconds)
    _tell(msgspec.structs.replace(last, left=await _left(process, before)))


async def _left(process: psutil.Process, before: list[str]) -> list[str]:
    """Handles that were not there before; a library may close some of its own a moment later, in a thread."""
    for _ in range(_CLOSING_LOOKS):
        gc.collect()
        if not (left := Counter(_handles(process)) - Counter(before)):
            break
        await asyncio.sleep(0.1)
    return sorted(left.elements())


async def _soaked(url: str, seconds: float) -> Sample:
    async with holdfast.connect(url) as broker:
        await broker.install()
        load = Load(await broker.queue("claimed"), await broker.queue("worked"))
        async with load._worked.worker(load.handle):
            turns, began = 0, time.monotonic()
            while time.monotonic() - began < _FIND_OUT_SECONDS:
                await load.turn()
                turns += 1
            await _go_on(load, pause=2 * (time.monotonic() - began) / turns, seconds=seconds)
            while load.done < load.sent and time.monotonic() - began < seconds + 60:
                await asyncio.sleep(0.05)
            return load.sample(psutil.Process(), began)


async def _go_on(load: Load, *, pause: float, seconds: float) -> None:
    """A turn every so many seconds."""
    process, began = psutil.Process(os.getpid()), time.monotonic()
    said = turns = 0
    while (now := time.monotonic() - began) < seconds:
        if now >= said + 1:
            said = int(now)  # what is late is not made up for, here too: a sample is of a second at least
            _tell(load.sample(process, began))
        if now < turns * pause:
            await asyncio.sleep(min(0.05, turns * pause - now))
            continue
        turns = max(turns + 1, int(now / pause))  # what is late is not made up for
        await load.turn()


def _tell(sample: Sample) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(sample) + b"\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
