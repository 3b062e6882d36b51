"""Consumers on a bucket that is far away: messages claimed and completed per second, with latency on every request."""

from __future__ import annotations

import asyncio
import os
from statistics import median
from typing import Any, Literal, cast

import msgspec

import holdfast
from holdfast.bench import load
from holdfast.bench.child import Spec
from holdfast.bench.processes import drain
from holdfast.stores.log.bucket.store import LateStore
from tests.servers.proxy import Proxy

PUBLISHED = 326.0  # messages a second: the best published figure of a queue on an object store (pgqrs)


class Shape(msgspec.Struct, frozen=True):
    """Who takes part: processes, each with so many consumers that take batches, or one worker of as many handlers."""

    how: Literal["calls", "worker"]
    processes: int
    consumers: int  # in each process
    shards: int
    bar: float | None = None  # times the published figure

    @property
    def share(self) -> int:
        """How many times the messages of a turn: where more are taken in a second, and where there are more heads."""
        return (4 if self.how == "worker" else 1) * (2 if self.shards > 1 else 1)

    @property
    def name(self) -> str:
        heads = "one head" if self.shards == 1 else f"{self.shards} shards"
        return f"{self.how}, {self.processes} × {self.consumers} consumers, {heads}"

    def at_best(self, *, latency: float, batch: int) -> float | None:
        """What callers cannot exceed whatever the queue does: each waits for its claim, then for its completion.

        Those of one process share replacements of a head, processes on one head exclude each other. A worker sends its
        claims and its completions together, and is not bound by this.
        """
        if self.how == "worker" or not latency:
            return None
        together = self.consumers * min(self.processes, self.shards)
        return together * batch / (2 * latency)


class Turn(msgspec.Struct, frozen=True):
    """One drain: everything was completed once when `completed` is the number of messages."""

    rate: float
    completed: int
    again: int  # handed out more than once
    requests: float  # per message


SHAPES = (
    Shape("calls", 1, 1, 1),
    Shape("calls", 1, 4, 1, 1.5),
    Shape("calls", 4, 1, 1),  # its bar is the ratio to one process: see `at_best`
    Shape("worker", 1, 4, 1, 1.5),
    Shape("worker", 4, 1, 1, 1.5),
    Shape("calls", 1, 4, 8, 10.0),
    Shape("calls", 4, 1, 8, 10.0),
    Shape("worker", 4, 1, 8, 10.0),
    Shape("worker", 4, 4, 8, 10.0),
    Shape("worker", 4, 1, 4),
)
# One process on one head; four, on one head or on four.
PAIRS = ((SHAPES[0], SHAPES[2]), (SHAPES[3], SHAPES[4]), (SHAPES[3], SHAPES[-1]))


async def measure(proxy: Proxy, url: str, shape: Shape, *, count: int, batch: int, size: int, latency: float) -> Turn:
    """Filled without latency, drained with it."""
    options = {"shards": shape.shards, "archive": False, "lease": 120.0}
    share = count // shape.shards
    spec = Spec(url=url, queue=f"bench-{os.urandom(4).hex()}", size=size, batch=batch, options=options, count=share)
    proxy.latency = 0.0
    await asyncio.gather(*(_fill(spec, shard) for shard in range(shape.shards)))
    total = share * shape.shards
    handlers = shape.consumers * (batch if shape.how == "worker" else 1)
    consumer = msgspec.structs.replace(spec, concurrency=handlers)
    role = "drain" if shape.how == "worker" else "share"
    proxy.latency = latency
    try:
        before = proxy.counts.copy()
        reports = await drain([consumer] * shape.processes, total, role=role)
    finally:
        proxy.latency = 0.0
    requests = proxy.counts.since(before).requests.total()
    seconds = max(report.last for report in reports) - min(report.first for report in reports)
    completed = sum(report.units for report in reports)
    again = sum(report.claimed - report.units for report in reports if report.claimed)
    return Turn(total / seconds, completed, again + max(0, completed - total), requests / total)


async def _fill(spec: Spec, shard: int) -> None:
    """By a producer of its own."""
    async with holdfast.connect(spec.url) as broker:
        queue: holdfast.Queue[Any] = await broker.queue(spec.queue, **spec.options)
        cast(LateStore, broker.store).home = shard
        await load.enqueue_batches(queue, spec.count, spec.batch, spec.size)


def lines(found: dict[Shape, list[Turn]], *, latency: float, batch: int) -> list[str]:
    rows = [f"{latency * 1000:g} ms on every request, batches of {batch}: messages a second (published: {PUBLISHED:g})"]
    for shape, turns in found.items():
        rates = [turn.rate for turn in turns]
        rate = median(rates)
        row = f"{shape.name:40} {rate:>7,.0f} ({min(rates):,.0f}–{max(rates):,.0f})  {rate / PUBLISHED:5.1f} ×"
        row += f"  requests a message {median(turn.requests for turn in turns):.3g}"
        row += f", handed out again {sum(turn.again for turn in turns)}"
        if shape.bar is not None:
            row += f"  bar {shape.bar:g} ×: {'ok' if rate / PUBLISHED >= shape.bar else 'BELOW'}"
        best = shape.at_best(latency=latency, batch=batch)
        rows.append(row if best is None else f"{row}  (callers: at most {best / PUBLISHED:.1f} ×)")
    for one, four in PAIRS:
        if found.get(one) and found.get(four):
            ratio = median(turn.rate for turn in found[four]) / median(turn.rate for turn in found[one])
            rows.append(f"{four.name} against {one.name}: {ratio:.2f}")
    return rows
