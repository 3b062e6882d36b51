"""Many queues and one worker: what they cost, and whether weights are kept.

python -m benchmarks.many_queues table STORE [QUEUES]     create, fill, list, count, drain by a pattern, then idle
python -m benchmarks.many_queues shares STORE [SECONDS]   two busy queues with weights 4:1; exit 1 unless near 80:20

STORE is file, slatedb, postgres, nats or s3, each with a server of its own for the run, or a URL.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

import holdfast

_AT_ONCE = 50  # calls
_IDLE_S = 30.0  # that the idle worker is watched: one interval of maintenance
_QUIET_S, _QUIET_SHARE = 240.0, 0.05  # the longest until it is idle, and of a core what it may take then
_STEP = 1000  # messages that are kept waiting in a busy queue, at least
_SHARE, _WITHIN = 0.8, 0.1  # of the messages for the heavier one, and by how much of its own each share may differ
_SERVERS = ("postgres", "nats", "s3")


@contextmanager
def opened(store: str) -> Iterator[str]:
    """Its URL, and at the end how much of the disk it takes."""
    with tempfile.TemporaryDirectory(prefix="holdfast-queues-") as own:
        if store in _SERVERS:
            with _server(store) as server:
                yield server.url if store == "nats" else server.url("bench" if store == "s3" else "postgres")
                _say(f"disk         {_disk_mb(server.folder):.0f} MB")
        elif store in ("file", "slatedb"):
            yield {"file": "file", "slatedb": "slatedb+file"}[store] + f"://{own}/store"
            _say(f"disk         {_disk_mb(Path(own)):.0f} MB")
        else:
            yield store


def _server(store: str) -> Any:
    from tests.servers import nats, postgres, s3

    return {"postgres": postgres.Server, "nats": nats.Server, "s3": s3.Server}[store]()


class Table:
    """Figures of the phases: of this process, and of the server if it is ours."""

    def __init__(self, broker: holdfast.Broker) -> None:
        self._broker = broker

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began, used, served, asked = time.perf_counter(), _processor(), _processor_of_server(), self._requests()
        yield
        took = time.perf_counter() - began
        line = f"{name:12} {took:8.2f} s  {_processor() - used:8.2f} s of processor  {_memory_mb():6.0f} MB"
        if psutil.Process().children():
            served = _processor_of_server() - served
            line += f"; server {served:8.2f} s of processor  {_memory_of_server_mb():6.0f} MB"
        _say(line + (f"; {self._requests() - asked:,} requests" if self._broker.store.requests() else ""))

    def _requests(self) -> int:
        asked = self._broker.store.requests() or {}
        return sum(count for kind, count in asked.items() if not kind.startswith("bytes"))


async def table(url: str, count: int) -> None:
    """Each phase: seconds, processor seconds and memory, and on a bucket requests."""
    names = [f"tenant-{number:05d}" for number in range(count)]
    async with holdfast.connect(url) as broker:
        phase = Table(broker).phase
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
        with phase("rest"):
            await _quiet()
        with phase("idle"):
            await asyncio.sleep(_IDLE_S)
        with phase("stop"):
            await worker.stop()


async def _quiet() -> None:
    """Until outcomes are written, and queues that gave something were maintained."""
    end, used = time.monotonic() + _QUIET_S, -math.inf
    while time.monotonic() < end and _processor() - used > _IDLE_S * _QUIET_SHARE:
        used = _processor()
        await asyncio.sleep(_IDLE_S)


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
    return abs(share - _SHARE) <= _WITHIN * (1 - _SHARE)  # the smaller share is the stricter one


async def _fill(broker: holdfast.Broker, name: str, count: int) -> None:
    await (await broker.queue(name, create=False)).enqueue_many(range(count))


async def _in_parts(names: list[str], work: Any) -> None:
    for start in range(0, len(names), _AT_ONCE):
        await asyncio.gather(*map(work, names[start : start + _AT_ONCE]))


def _processor() -> float:
    used = os.times()
    return used.user + used.system


def _processor_of_server() -> float:
    return sum(float(sum(each.cpu_times()[:2])) for each in psutil.Process().children(recursive=True))


def _memory_mb() -> float:
    return float(psutil.Process().memory_info().rss) / 1e6


def _memory_of_server_mb() -> float:
    """What processes share counts once."""
    return sum(float(each.memory_full_info().pss) for each in psutil.Process().children(recursive=True)) / 1e6


def _disk_mb(folder: Path) -> float:
    return sum(each.lstat().st_blocks * 512 for each in folder.rglob("*")) / 1e6


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    if len(sys.argv) < 3 or sys.argv[1] not in ("table", "shares"):
        sys.stderr.write(__doc__ or "")
        return 2
    kind, store, size = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None
    with opened(store) as url:
        if kind == "table":
            asyncio.run(table(url, int(size or 10_000)))
            return 0
        return 0 if asyncio.run(shares(url, float(size or 60))) else 1


if __name__ == "__main__":
    sys.exit(main())
