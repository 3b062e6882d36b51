"""The other processes of a benchmark: `python -m holdfast.bench.child ROLE SPEC`, JSON lines both ways.

A child opens its queue, says `ready`, waits for a line, does its part, and answers with one `result`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

import holdfast

from . import load
from .load import Timed
from .machine import resident_bytes, written_bytes
from .measure import PROGRESS_S


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """The order of a child."""

    url: str
    queue: str = "bench"
    count: int = 0
    size: int = 1024
    batch: int = 1000
    concurrency: int = 100
    seconds: float = 0.0
    options: dict[str, Any] = {}  # of the queue


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a child says; instants are of the clock all processes share."""

    kind: str  # ready, progress, result
    done: int = 0
    units: int = 0
    seconds: float = 0.0
    calls: list[float] = []
    first: float = 0.0
    last: float = 0.0
    memory: int = 0  # bytes resident at the end
    written: int = 0  # bytes this process had written to the disk
    processor: float = 0.0  # seconds of CPU
    marks: list[float] = []
    requests: dict[str, int] = {}  # to a bucket, by kind, with bytes_sent and bytes_received
    claimed: int = 0  # messages taken, also those that somebody else completed


def say(report: Report) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


class Counter:
    """Progress lines, not more often than somebody can read them."""

    def __init__(self) -> None:
        self._done = 0
        self._next = 0.0

    def __call__(self, units: int) -> None:
        self._done += units
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_S
            say(Report(kind="progress", done=self._done))


async def line() -> str:
    """The next line from the parent; empty when it is gone."""
    return await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


Part = Callable[["holdfast.Queue[Any]", Spec], Awaitable[Report]]


def _timed(part: Callable[[holdfast.Queue[Any], Spec, Counter], Awaitable[Timed]]) -> Part:
    async def run(queue: holdfast.Queue[Any], spec: Spec) -> Report:
        first, before = time.monotonic(), written_bytes()
        timed = await part(queue, spec, Counter())
        return Report(
            kind="result", units=timed.units, seconds=timed.seconds, calls=timed.calls, first=first,
            last=first + timed.seconds, written=written_bytes() - before,
        )  # fmt: skip

    return run


async def drain_until_told(queue: holdfast.Queue[Any], spec: Spec) -> Report:
    """One of several workers on a queue: runs until the parent, who sees them all, sends a line."""
    handled, last, count, before = 0, 0.0, Counter(), written_bytes()

    async def handler(value: Any) -> None:
        nonlocal handled, last
        handled += 1
        last = time.monotonic()
        count(1)

    worker = queue.worker(handler, concurrency=spec.concurrency)
    first = time.monotonic()
    await worker.start()
    told = asyncio.ensure_future(line())
    while not told.done():
        await asyncio.wait([told], timeout=PROGRESS_S)
        count(0)
    await worker.stop()
    return Report(kind="result", units=handled, first=first, last=last, written=written_bytes() - before)


async def take_until_told(queue: holdfast.Queue[Any], spec: Spec) -> Report:
    """Consumers without a worker, `concurrency` of them: each takes and completes batches until the parent says so."""
    claimed, completed, last, count = 0, 0, 0.0, Counter()
    first = time.monotonic()
    told = asyncio.ensure_future(line())

    async def consume() -> None:
        nonlocal claimed, completed, last
        while not told.done():
            deliveries = await queue.dequeue_many(spec.batch, wait=PROGRESS_S)
            done = sum(await queue.complete_many(deliveries)) if deliveries else 0
            last = time.monotonic() if done else last
            claimed, completed = claimed + len(deliveries), completed + done
            count(done)

    await asyncio.gather(*(consume() for _ in range(spec.concurrency)))
    return Report(kind="result", units=completed, claimed=claimed, first=first, last=last or first)


async def listen(queue: holdfast.Queue[Any], spec: Spec) -> Report:
    """An idle worker: measures its own CPU for a while, then notes when each message (its sending time) starts."""
    marks: list[float] = []

    async def handler(sent: float) -> None:
        marks.append(time.monotonic() - sent)

    worker = queue.worker(handler, concurrency=spec.concurrency)
    await worker.start()
    await asyncio.sleep(min(1.0, spec.seconds))  # settle down first: idle means idle
    processor = time.process_time()
    await asyncio.sleep(spec.seconds)
    processor = time.process_time() - processor
    say(Report(kind="ready"))
    while len(marks) < spec.count and not (await line()).startswith("stop"):
        pass
    await worker.stop()
    return Report(kind="result", units=len(marks), marks=marks, processor=processor, seconds=spec.seconds)


async def claims(queue: holdfast.Queue[Any], spec: Spec) -> Report:
    """Claims on a queue with a backlog: the time of each, and the memory of a process that does nothing else."""
    calls = []
    start = time.perf_counter()
    for _ in range(spec.count):
        begun = time.perf_counter()
        deliveries = await queue.dequeue_many(spec.batch)
        calls.append(time.perf_counter() - begun)
        await queue.complete_many(deliveries)
    seconds = time.perf_counter() - start
    return Report(kind="result", units=spec.count, seconds=seconds, calls=calls, memory=resident_bytes())


ROLES: dict[str, Part] = {
    "enqueue": _timed(lambda queue, spec, done: load.enqueue_batches(queue, spec.count, spec.batch, spec.size, done)),
    "single": _timed(lambda queue, spec, done: load.enqueue_one_by_one(queue, spec.count, spec.size, done)),
    "together": _timed(
        lambda queue, spec, done: load.enqueue_together(queue, spec.count, spec.concurrency, spec.size, done)
    ),
    "waves": _timed(
        lambda queue, spec, done: load.enqueue_in_waves(queue, spec.count, spec.concurrency, spec.size, done)
    ),
    "take": _timed(lambda queue, spec, done: load.take_one_by_one(queue, spec.count, done)),
    "bare": _timed(lambda queue, spec, done: load.take_batches(queue, spec.count, spec.batch, done)),
    "work": _timed(lambda queue, spec, done: load.work(queue, spec.count, spec.concurrency, done)),
    "drain": drain_until_told,
    "share": take_until_told,
    "listen": listen,
    "claims": claims,
}


async def _warm_up(broker: holdfast.Broker) -> None:
    """What is imported on first use is a cost of starting, not of the load."""
    name = f"bench-warm-{os.getpid()}"
    queue: holdfast.Queue[Any] = await broker.queue(name)
    await queue.enqueue_many([b"warm"] * 100)
    await queue.complete_many(await queue.dequeue_many(100))
    await broker.delete_queue(name, force=True)


async def main(role: str, spec: Spec) -> None:
    async with holdfast.connect(spec.url) as broker:
        await _warm_up(broker)
        queue: holdfast.Queue[Any] = await broker.queue(spec.queue, **spec.options)
        say(Report(kind="ready"))
        await line()
        before = broker.store.requests()
        say(_with_requests(await ROLES[role](queue, spec), before, broker.store.requests()))


def _with_requests(report: Report, before: dict[str, int] | None, after: dict[str, int] | None) -> Report:
    """On a bucket nothing goes to the disk: what was sent there is what was written."""
    if before is None or after is None:
        return report
    asked = {kind: count - before[kind] for kind, count in after.items()}
    return msgspec.structs.replace(report, requests=asked, written=asked["bytes_sent"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Spec)))
