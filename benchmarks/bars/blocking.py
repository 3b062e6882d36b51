"""The blocking face: single calls through `holdfast.sync` against huey's storage, and with many leases held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import holdfast.sync
from holdfast.bench import raw
from holdfast.bench.measure import Sample, Side, alternate
from holdfast.bench.opponents import Opponent, ask

from .context import Bench, Line, line

_HUEY = Opponent("huey's storage", "on_huey", "storage")
_HELD = 250  # leases, in the hands of one process
_LONG = 3600.0  # seconds: no lease ends during a turn


async def blocking(bench: Bench) -> list[Line]:
    """Every call durable when it returns, one caller; huey's pop deletes, ours claims and completes."""
    s = bench.scale

    async def other(phase: str) -> Sample:
        answer = await ask(_HUEY, bench.peers_python(), folder=bench.folder, count=s.single, single=0, size=s.size)
        return Sample(s.single, getattr(answer, phase))

    sides = [
        Side("sync enqueue", lambda: _turn(bench, _puts)),
        Side("huey put, fsync=True", lambda: other("bulk")),
        Side("sync dequeue + complete", lambda: _turn(bench, _takes)),
        Side("huey pop, fsync=True", lambda: other("drain")),
        Side(f"sync dequeue + complete, {_HELD} leases held", lambda: _turn(bench, _takes_holding)),
    ]
    put, huey_put, take, huey_pop, holding = await alternate(sides, s.repeats, bench.note)
    return [
        line("sync enqueue, against huey's SQLite storage", put, huey_put, bar=1.0, goal=1.2),
        line("sync dequeue + complete, against huey's destructive pop", take, huey_pop, bar=0.45, goal=0.8),
        line(f"the same with {_HELD} leases held, against 1", holding, take, bar=round(1 / 1.3, 2)),
    ]


async def _turn(bench: Bench, work: Callable[[holdfast.sync.Queue[str], int, str], float]) -> Sample:
    """On a fresh folder, in a thread: this face blocks."""
    s = bench.scale

    def run() -> float:
        with raw.scratch(bench.folder) as where, holdfast.sync.connect(f"file://{where}") as broker:
            return work(broker.queue("bench", str, archive=False), s.single, "x" * s.size)

    return Sample(s.single, await asyncio.to_thread(run))


def _puts(queue: holdfast.sync.Queue[str], count: int, body: str) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        queue.enqueue(body)
    return time.perf_counter() - begun


def _takes(queue: holdfast.sync.Queue[str], count: int, body: str, held: int = 1) -> float:
    for _ in range(held):  # one by one: what a call takes is one lease, however much it is
        queue.enqueue(body)
        assert queue.dequeue(lease=_LONG) is not None
    queue.enqueue_many([body] * count)
    begun = time.perf_counter()
    for _ in range(count):
        delivery = queue.dequeue()
        assert delivery is not None
        delivery.complete()
    return time.perf_counter() - begun


def _takes_holding(queue: holdfast.sync.Queue[str], count: int, body: str) -> float:
    return _takes(queue, count, body, _HELD)
