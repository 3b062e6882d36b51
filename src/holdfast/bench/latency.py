"""`bench latency`: from the call of `enqueue` to the start of the handler, with an idle worker in another process."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

import holdfast

from .child import Spec
from .measure import Latency, latency
from .processes import children
from .show import Bar


class PickUp(msgspec.Struct, frozen=True):
    """Seconds from `enqueue` to the handler, and the share of one core that the worker used while it was idle."""

    messages: int
    rate: float
    pick_up: Latency | None
    idle_cpu: float


async def measure(url: str, *, count: int, rate: float, idle: float, bar: Bar) -> PickUp:
    """`count` messages at a fixed rate; the worker was idle for `idle` seconds before."""
    spec = Spec(url=url, queue="bench-latency", count=count, concurrency=10, seconds=idle)
    async with children("listen", [spec]) as (worker,), holdfast.connect(url) as broker:
        queue: holdfast.Queue[Any] = await broker.queue("bench-latency")
        worker.tell()
        bar.note("idle")
        await worker.hear(idle + 60)
        bar.note("sending")
        await _send(queue, count, rate, bar)
        async with asyncio.timeout(60):
            while (await queue.stats()).completed < count:
                await queue.store.watch(queue.name, 0.05)
        worker.tell("stop")
        report = await worker.hear(60)
        await broker.delete_queue("bench-latency", force=True)
    return PickUp(report.units, rate, latency(report.marks), report.processor / max(report.seconds, 1e-9))


async def _send(queue: holdfast.Queue[Any], count: int, rate: float, bar: Bar) -> None:
    start = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
        await queue.enqueue(time.monotonic())
        bar.add(1)
