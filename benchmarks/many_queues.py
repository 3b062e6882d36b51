"""Many queues and one worker: what they cost, and whether weights are kept.

python -m benchmarks.many_queues table URL [QUEUES]     create, fill, list, count, drain by a pattern, then idle
python -m benchmarks.many_queues shares URL [SECONDS]   two busy queues with weights 4:1; exit 1 outside of 70 to 90 %
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import holdfast

_AT_ONCE = 50  # calls
_IDLE_S = 30.0  # that the idle worker is watched
_STEP = 1000  # messages that are kept waiting in a busy queue, at least
_SHARE, _WITHIN = 0.8, 0.1  # of the heavier one


@contextmanager
def phase(name: str) -> Iterator[None]:
    began, used = time.perf_counter(), _processor()
    yield
    took, used = time.perf_counter() - began, _processor() - used
    _say(f"{name:12} {took:8.2f} s  {used:8.2f} s of processor  {_memory_mb():6.0f} MB")


async def table(url: str, count: int) -> None:
    """Each phase: seconds, processor seconds and the largest memory so far, of this process alone."""
    names = [f"tenant-{number:05d}" for number in range(count)]
    async with holdfast.connect(url) as broker:
        with phase("create"):
            await _in_parts(names, broker.queue)
        with phase("fill"):
            await _in_parts(names, lambda name: _fill(broker, name, 1))
        with phase("list"):
            await broker.queues()
        with phase("stats"):
            assert sum(each.pending for each in (await broker.stats()).values()) == count
        left, drained = count, asyncio.Event()

        async def handle(value: int) -> None:
            nonlocal left
            left -= 1
            if not left:
                drained.set()

        worker = broker.worker(handle, ["tenant-*"], concurrency=100)
        with phase("drain"):
            await worker.start()
            await drained.wait()
        await asyncio.sleep(_IDLE_S / 3)  # until outcomes are written
        began, used = time.perf_counter(), _processor()
        await asyncio.sleep(_IDLE_S)
        percent = 100 * (_processor() - used) / (time.perf_counter() - began)
        _say(f"idle         {percent:.2f} % of a core, one worker on {count:,} queues")
        await worker.stop()


async def shares(url: str, seconds: float) -> bool:
    counts: Counter[str] = Counter()

    async def handle(value: int, context: holdfast.Context) -> None:
        counts[context.queue] += 1
        await asyncio.sleep(0.001)

    async with holdfast.connect(url) as broker:
        queues = [await broker.queue(name, archive=False) for name in ("high", "low")]
        for queue in queues:
            await _fill(broker, queue.name, 2 * _STEP)
        worker = broker.worker(handle, {"high": 4, "low": 1}, concurrency=20)
        end = time.monotonic() + seconds
        async with worker:
            while time.monotonic() < end:
                for queue in queues:
                    if (await queue.stats()).pending < 2 * _STEP:
                        await _fill(broker, queue.name, _STEP)
                await asyncio.sleep(0.02)
        for queue in queues:
            await broker.delete_queue(queue.name, force=True)
    share = counts["high"] / max(1, counts.total())
    _say(f"high {counts['high']:,}, low {counts['low']:,}: {100 * share:.1f} % in {seconds:g} s")
    return abs(share - _SHARE) <= _WITHIN


async def _fill(broker: holdfast.Broker, name: str, count: int) -> None:
    await (await broker.queue(name, create=False)).enqueue_many(range(count))


async def _in_parts(names: list[str], work: Any) -> None:
    for start in range(0, len(names), _AT_ONCE):
        await asyncio.gather(*map(work, names[start : start + _AT_ONCE]))


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    if len(sys.argv) < 3 or sys.argv[1] not in ("table", "shares"):
        sys.stderr.write(__doc__ or "")
        return 2
    kind, url, size = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None
    if kind == "table":
        asyncio.run(table(url, int(size or 10_000)))
        return 0
    return 0 if asyncio.run(shares(url, float(size or 60))) else 1


if __name__ == "__main__":
    sys.exit(main())
