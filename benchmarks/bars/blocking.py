"""The blocking face: one caller that waits for each call, against huey, which deletes a message as it hands it out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast import sync
from holdfast.bench import raw
from holdfast.bench.measure import Sample, Side, Stopwatch, alternate
from holdfast.bench.opponents import OPPONENTS, ask
from holdfast.bench.payloads import bodies

from .context import Bench, Line, line

_WARM = 50  # messages: what is imported on first use is a cost of starting


async def blocking(bench: Bench) -> list[Line]:
    """`holdfast.sync`, single `enqueue` and single `dequeue` with `complete`, against huey with `fsync=True`."""
    s, python = bench.scale, bench.peers_python()
    huey = next(each for each in OPPONENTS if each.name == "huey")

    def timed(load: Callable[[sync.Queue[Any], int, int], Sample]) -> Callable[[], Any]:
        return lambda: asyncio.to_thread(_on_fresh_folder, bench, load)

    async def popped() -> Sample:
        answer = await ask(huey, python, folder=bench.folder, count=s.single, single=0, size=s.size)
        return Sample(s.single, answer.drain)

    async def sent() -> Sample:
        answer = await ask(huey, python, folder=bench.folder, count=s.single, single=s.single, size=s.size)
        return Sample(s.single, answer.single)

    sides = [
        Side("sync enqueue", timed(_put)), Side("huey", sent),
        Side("sync dequeue + complete", timed(_take)), Side("huey, destructive pop", popped),
    ]  # fmt: skip
    put, send, take, pop = await alternate(sides, s.repeats, bench.note)
    return [
        line("blocking enqueue, one caller, against huey", put, send, bar=1.0),
        line("blocking dequeue + complete (two commits), against huey's pop (one)", take, pop, bar=0.45),
    ]


def _on_fresh_folder(bench: Bench, load: Callable[[sync.Queue[Any], int, int], Sample]) -> Sample:
    with raw.scratch(bench.folder) as where, sync.connect(f"file://{where}") as broker:
        queue = broker.queue("bench")
        queue.enqueue_many([b"warm"] * _WARM)
        queue.complete_many(queue.dequeue_many(_WARM))
        return load(queue, bench.scale.single, bench.scale.size)


def _put(queue: sync.Queue[Any], count: int, size: int) -> Sample:
    pool = bodies(size)
    watch = Stopwatch()
    for number in range(count):
        queue.enqueue(pool[number % len(pool)])
    return Sample(count, watch.seconds())


def _take(queue: sync.Queue[Any], count: int, size: int) -> Sample:
    pool = bodies(size)
    queue.enqueue_many([pool[number % len(pool)] for number in range(count)])
    watch = Stopwatch()
    for _ in range(count):
        delivery = queue.dequeue()
        assert delivery is not None
        queue.complete(delivery)
    return Sample(count, watch.seconds())
