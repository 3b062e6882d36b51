"""The loads themselves, on an open queue. Every function returns when what it did is durable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from .measure import Sample
from .payloads import batches, bodies

if TYPE_CHECKING:
    from ..queue import Queue

Done = Callable[[int], None]
_TIMED_ONE_IN = 20  # concurrent callers: a clock in each would be part of what is measured


class Timed(msgspec.Struct):
    """A phase: how much, how long, and the seconds of every call in it."""

    units: int
    seconds: float
    calls: list[float] = []

    @property
    def sample(self) -> Sample:
        return Sample(self.units, self.seconds)


def _quiet(_: int) -> None:
    pass


async def enqueue_batches(queue: Queue[Any], count: int, batch: int, size: int, done: Done = _quiet) -> Timed:
    """`enqueue_many`, one call after the other."""
    calls: list[float] = []
    start = last = time.perf_counter()
    for values in batches(count, batch, size):
        await queue.enqueue_many(values)
        now = time.perf_counter()
        calls.append(now - last)
        last = now
        done(len(values))
    return Timed(count, last - start, calls)


async def enqueue_one_by_one(queue: Queue[Any], count: int, size: int, done: Done = _quiet) -> Timed:
    """Single awaited calls of one caller."""
    pool, calls = bodies(size), []
    start = last = time.perf_counter()
    for number in range(count):
        await queue.enqueue(pool[number % len(pool)])
        now = time.perf_counter()
        calls.append(now - last)
        last = now
        done(1)
    return Timed(count, last - start, calls)


async def enqueue_together(queue: Queue[Any], count: int, concurrency: int, size: int, done: Done = _quiet) -> Timed:
    """Single calls of `concurrency` callers at a time, each awaiting its call before its next one."""
    pool, calls = bodies(size), []

    async def caller(first: int) -> None:
        body = pool[first % len(pool)]
        for _ in range(first, count, concurrency):
            await queue.enqueue(body)

    async def timing_caller(first: int) -> None:
        body = pool[first % len(pool)]
        for number in range(first, count, concurrency):
            begun = time.perf_counter()
            await queue.enqueue(body)
            calls.append(time.perf_counter() - begun)
            done(min(_TIMED_ONE_IN, concurrency - first, count - number))  # and the callers without a clock

    start = time.perf_counter()
    await asyncio.gather(*((caller if each % _TIMED_ONE_IN else timing_caller)(each) for each in range(concurrency)))
    return Timed(count, time.perf_counter() - start, calls)


async def enqueue_in_waves(queue: Queue[Any], count: int, concurrency: int, size: int, done: Done = _quiet) -> Timed:
    """A task for every single call, as in a web server, `concurrency` at a time: asyncio's own work is part of it."""
    pool = bodies(size)
    start = time.perf_counter()
    for first in range(0, count, concurrency):
        wave = range(first, min(first + concurrency, count))
        await asyncio.gather(*(queue.enqueue(pool[number % len(pool)]) for number in wave))
        done(len(wave))
    return Timed(count, time.perf_counter() - start)


async def take_one_by_one(queue: Queue[Any], count: int, done: Done = _quiet) -> Timed:
    """Single dequeue + complete of one caller: two commits each."""
    calls: list[float] = []
    start = last = time.perf_counter()
    for _ in range(count):
        delivery = await queue.dequeue()
        if delivery is None:
            raise RuntimeError("the queue ran dry before the load was done")
        await delivery.complete()
        now = time.perf_counter()
        calls.append(now - last)
        last = now
        done(1)
    return Timed(count, last - start, calls)


async def take_batches(queue: Queue[Any], count: int, batch: int, done: Done = _quiet) -> Timed:
    """Bare `dequeue_many` + `complete_many`, no worker."""
    left, calls = count, []
    start = last = time.perf_counter()
    while left > 0:
        deliveries = await queue.dequeue_many(min(batch, left))
        if not deliveries or not all(await queue.complete_many(deliveries)):
            raise RuntimeError("the queue ran dry, or a lease was lost, before the load was done")
        now = time.perf_counter()
        calls.append(now - last)
        last = now
        left -= len(deliveries)
        done(len(deliveries))
    return Timed(count, last - start, calls)


async def work(queue: Queue[Any], count: int, concurrency: int, done: Done = _quiet, **options: Any) -> Timed:
    """A `Worker` with a trivial async handler; ends when every completion is durable."""
    finished = asyncio.Event()
    handled = 0

    async def handler(value: Any) -> None:
        nonlocal handled
        handled += 1
        if handled >= count:
            finished.set()
        if handled % 1000 == 0:
            done(1000)

    worker = queue.worker(handler, concurrency=concurrency, **options)
    start = time.perf_counter()
    await worker.start()
    await finished.wait()
    await worker.stop()
    return Timed(handled, time.perf_counter() - start)
