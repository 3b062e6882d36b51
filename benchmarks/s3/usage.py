"""What a load asks of the bucket: requests by kind and bytes, per message, as the proxy in between counts them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

import holdfast
from holdfast.bench.child import Spec
from holdfast.bench.load import enqueue_batches, take_batches
from holdfast.bench.processes import children
from tests.servers.proxy import Counts, Proxy

_HOUR = 3600.0
_CALLS_A_SECOND = 100
_SETTLED_S = 5.0  # until the outcomes of the last messages are written


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
async def _opened(url: str, name: str, **options: Any) -> AsyncIterator[holdfast.Queue[Any]]:
    """A queue that has carried a message already: opening and first looks are a cost of starting."""
    async with holdfast.connect(url) as broker:
        queue: holdfast.Queue[Any] = await broker.queue(name, **options)
        await queue.enqueue(b"warm")
        await queue.complete_many(await queue.dequeue_many(1))
        yield queue


def _name() -> str:
    return f"bench-{os.urandom(4).hex()}"


async def batched(
    proxy: Proxy, url: str, *, count: int, batch: int, size: int, bar: float, archive: bool = True
) -> Usage:
    """In and out in batches, by one process, to the last flush."""
    async with _opened(url, _name(), archive=archive) as queue:
        before = proxy.counts.copy()
        await enqueue_batches(queue, count, batch, size)
        await take_batches(queue, count, batch)
    name = f"batches of {batch}" + ("" if archive else ", archive off")
    return Usage.of(name, count, proxy.counts.since(before), bar=bar)


class Lone(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that come one by one, each flushed before the next: nothing is shared."""

    count: int
    size: int
    rest: float  # seconds after each, so that its flush is over
    window: float  # seconds in the end, so that its blocks are gone


async def lone(proxy: Proxy, url: str, load: Lone, *, archive: bool, apart: bool, bar: float | None) -> Usage:
    """Sent and taken by one client, or by two that know nothing of each other."""
    name = _name()
    async with AsyncExitStack() as opened:
        sends = takes = await opened.enter_async_context(_opened(url, name, archive=archive))
        if apart:
            takes = await opened.enter_async_context(_opened(url, name, archive=archive))
        await asyncio.sleep(load.window)  # until nothing is left of the first ones
        before = proxy.counts.copy()
        for _ in range(load.count):
            await sends.enqueue(os.urandom(load.size))
            taken = await takes.dequeue_many(1)
            if not taken or not all(await takes.complete_many(taken)):
                raise RuntimeError("a lone message was not there, or its lease was lost")
            await asyncio.sleep(load.rest)
        await asyncio.sleep(load.window)
        counts = proxy.counts.since(before)
    told = "lone messages" + ("" if archive else ", archive off") + (", two clients" if apart else "")
    return Usage.of(told, load.count, counts, bar=bar)


async def paced(proxy: Proxy, url: str, *, seconds: float, linger: float, bar: float | None) -> Usage:
    """Single calls, 100 a second, and a worker in another client, to the last outcome."""
    name, count, done = _name(), round(seconds * _CALLS_A_SECOND), asyncio.Event()
    left = count

    async def handle(value: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    sender = f"{url}{'&' if '?' in url else '?'}linger={linger}"
    async with _opened(sender, name) as sends, _opened(url, name) as takes, takes.worker(handle, concurrency=100):
        before = proxy.counts.copy()
        loop = asyncio.get_running_loop()
        began, calls = loop.time(), list[asyncio.Task[str]]()
        for number in range(count):
            calls.append(loop.create_task(sends.enqueue(number)))
            await asyncio.sleep(max(0.0, began + (number + 1) / _CALLS_A_SECOND - loop.time()))
        await asyncio.gather(*calls)
        await done.wait()
        await asyncio.sleep(_SETTLED_S)
        counts = proxy.counts.since(before)
    return Usage.of(f"100 single calls a second, linger={linger:g}", count, counts, bar=bar)


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
