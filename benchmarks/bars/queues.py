"""Many queues in one folder: listed, counted, and idle under a worker each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Any

import holdfast
from holdfast.bench import raw
from holdfast.bench.measure import Result

from .context import Bench, Line, limit

_AT_ONCE = 100  # calls
_WORKED_SHARE = 10  # one queue in so many has a worker
_MOST_S = 2.0  # for a list, and for the counts, of all of them
_IDLE_PERCENT = 3.0  # of a core


async def many_queues(bench: Bench) -> list[Line]:
    """`queue list` and `stats` of all queues, and what idle workers on a tenth of them cost."""
    s = bench.scale
    with raw.scratch(bench.folder) as where:
        async with holdfast.connect(f"file://{where}") as broker:
            bench.note(f"making {s.queues:,} queues")
            for names in _parts(f"q{number:05d}" for number in range(s.queues)):
                await asyncio.gather(*map(broker.create_queue, names))
            lists = [await _seconds(broker.queues) for _ in range(s.repeats)]
            counts = [await _seconds(broker.stats) for _ in range(s.repeats)]
            idle = [await _idle(bench, broker) for _ in range(s.repeats)]
    return [
        limit(f"list of {s.queues:,} queues", Result.of("queues()", lists), _MOST_S, goal=None, unit="s"),
        limit(f"counts of {s.queues:,} queues", Result.of("stats()", counts), _MOST_S, goal=None, unit="s"),
        limit(
            f"idle workers on {s.queues // _WORKED_SHARE:,} queues, share of a core", Result.of("idle", idle),
            _IDLE_PERCENT, goal=None, unit="%", remark=f"over {s.idle:.0f} s",
        ),
    ]  # fmt: skip


def _parts(names: Iterator[str]) -> Iterator[list[str]]:
    while part := list(islice(names, _AT_ONCE)):
        yield part


async def _seconds(call: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await call()
    return time.perf_counter() - begun


async def _idle(bench: Bench, broker: holdfast.Broker) -> float:
    """Percent of a core once every worker has started."""
    bench.note("idle workers")
    names = [f"q{number:05d}" for number in range(bench.scale.queues // _WORKED_SHARE)]
    workers = [(await broker.queue(name)).worker(_nothing) for name in names]
    await asyncio.gather(*(worker.start() for worker in workers))
    try:
        await asyncio.sleep(bench.scale.idle)
        begun, used = time.perf_counter(), time.process_time()
        await asyncio.sleep(bench.scale.idle)
        return 100 * (time.process_time() - used) / (time.perf_counter() - begun)
    finally:
        await asyncio.gather(*(worker.stop() for worker in workers))


async def _nothing(value: Any) -> None:
    raise AssertionError("an empty queue gave a message")
