"""What a load asks of the bucket: requests by kind and bytes, per message, as the proxy in between counts them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

import holdfast

from ...testing.proxy import Counts, Proxy
from ..child import Spec
from ..load import enqueue_batches, take_batches
from ..processes import children

_HOUR = 3600.0


class Usage(msgspec.Struct, frozen=True):
    """One load, everything per message (or, when idle, per hour)."""

    name: str
    messages: int
    requests: float
    kinds: dict[str, float]
    sent: float  # bytes towards the bucket
    received: float
    bar: float | None = None

    @classmethod
    def of(cls, name: str, messages: int, counts: Counts, *, bar: float | None = None, times: float = 1.0) -> Usage:
        scale = times / messages
        kinds = {kind: number * scale for kind, number in sorted(counts.requests.items())}
        total = counts.requests.total() * scale
        return cls(name, messages, total, kinds, counts.sent * scale, counts.received * scale, bar)


@asynccontextmanager
async def _opened(url: str, **options: Any) -> AsyncIterator[tuple[holdfast.Queue[Any], holdfast.Broker]]:
    """A new queue that has carried a message already: opening and first looks are a cost of starting."""
    async with holdfast.connect(url) as broker:
        queue: holdfast.Queue[Any] = await broker.queue(f"bench-{os.urandom(4).hex()}", **options)
        await queue.enqueue(b"warm")
        await queue.complete_many(await queue.dequeue_many(1))
        yield queue, broker


async def batched(
    proxy: Proxy, url: str, *, count: int, batch: int, size: int, bar: float, archive: bool = True
) -> Usage:
    """In and out in batches, by one process, to the last flush."""
    async with _opened(url, archive=archive) as (queue, _):
        before = proxy.counts.copy()
        await enqueue_batches(queue, count, batch, size)
        await take_batches(queue, count, batch)
    name = f"batches of {batch}" + ("" if archive else ", archive off")
    return Usage.of(name, count, proxy.counts.since(before), bar=bar)


async def lone(
    proxy: Proxy, url: str, *, count: int, size: int, rest: float, window: float, archive: bool, bar: float
) -> Usage:
    """Messages that come one by one, each flushed before the next: nothing is shared.

    After each one `rest` seconds, so that its flush is over; in the end `window` seconds, so that its blocks are gone.
    """
    async with _opened(url, archive=archive) as (queue, _):
        await asyncio.sleep(rest)
        before = proxy.counts.copy()
        for _ in range(count):
            await queue.enqueue(os.urandom(size))
            taken = await queue.dequeue_many(1)
            if not all(await queue.complete_many(taken)) or not taken:
                raise RuntimeError("a lone message was not there, or its lease was lost")
            await asyncio.sleep(rest)
        await asyncio.sleep(window)
    name = "lone messages" + ("" if archive else ", archive off")
    return Usage.of(name, count, proxy.counts.since(before), bar=bar)


async def idle(proxy: Proxy, url: str, *, after: float, watched: float, bar: float) -> Usage:
    """A worker with nothing to do, in a process of its own: its requests per hour after a while of idleness."""
    spec = Spec(url=url, queue=f"bench-idle-{os.urandom(4).hex()}")
    async with children("drain", [spec]) as [worker]:
        worker.tell()
        await asyncio.sleep(after)
        before = proxy.counts.copy()
        await asyncio.sleep(watched)
        counts = proxy.counts.since(before)
    return Usage.of(f"idle worker, an hour (after {after:g} s)", 1, counts, bar=bar, times=_HOUR / watched)


def lines(found: Sequence[Usage]) -> list[str]:
    """One row a load; kinds that never occur are left out."""
    rows = [f"{'requests per message':40} {'all':>9} {'bar':>6}  {'sent':>9} {'received':>9}  by kind"]
    for one in found:
        kinds = ", ".join(f"{kind} {number:.4g}" for kind, number in one.kinds.items())
        bar = "" if one.bar is None else f"{one.bar:g}"
        verdict = "" if one.bar is None else "  ok" if one.requests <= one.bar else "  ABOVE THE BAR"
        rows.append(
            f"{one.name:40} {one.requests:>9.4g} {bar:>6}  {one.sent:>9,.0f} {one.received:>9,.0f}  {kinds}{verdict}"
        )
    return rows
