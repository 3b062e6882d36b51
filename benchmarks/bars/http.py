"""`http://`: what a served store costs against the same store opened directly, and 200 producers on a served bucket."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import holdfast
from holdfast.bench import raw
from holdfast.bench.load import enqueue_together
from holdfast.bench.measure import Result
from holdfast.bench.payloads import batches, bodies
from tests.servers import postgres, s3
from tests.servers.proxy import Proxy
from tests.servers.serving import ServerProcess

from .context import Bench, Line, line

_IN_FLIGHT = 4  # calls
_PRODUCERS = 200
_SINGLE_RATE = 1000.0  # messages a second, at least
_LATENCY_S = 0.06  # of a request to a bucket elsewhere, as in all figures of buckets
_MOST_REQUESTS = 1.2  # times those of one process


class Rates(NamedTuple):
    """Messages a second."""

    sent: float
    drained: float


async def on_file(bench: Bench) -> list[Line]:
    """A folder."""
    with raw.scratch(bench.folder) as where, ServerProcess(f"file://{where}/store") as server:
        return await _against(bench, f"file://{where}/store", server.address, bar=0.25)


async def on_postgres(bench: Bench) -> list[Line]:
    """A database of its own."""
    settings = {"shared_buffers": "256MB", "max_wal_size": "2GB"}
    with postgres.Server(settings=settings) as database, ServerProcess(database.url()) as server:
        return await _against(bench, database.url(), server.address, bar=0.5)


async def _against(bench: Bench, direct: str, served: str, *, bar: float) -> list[Line]:
    s = bench.scale
    found: dict[str, list[Rates]] = {served: [], direct: []}
    singles: list[float] = []
    lone: list[float] = []
    alike: list[float] = []  # the same, directly
    for turn in range(s.repeats):
        for url in (served, direct) if turn % 2 == 0 else (direct, served):
            bench.note(f"{url.partition(':')[0]}, turn {turn + 1}")
            found[url].append(await _turn(url, count=s.http, batch=s.batch, size=s.size))
        singles.append(await _single(served, s.single, _IN_FLIGHT, s.size))
        alike.append(await _single(direct, s.single, _IN_FLIGHT, s.size))
        lone.append(await _single(served, s.single, 1, s.size))
    what = f"{s.http:,} × {s.size} B, batches of {s.batch}, {_IN_FLIGHT} in flight"
    made = [
        line(f"{name} over http, against the store opened directly; {what}", _side("http", field, found[served]),
             _side("direct", field, found[direct]), bar=bar)
        for name, field in (("enqueue_many", "sent"), ("drain", "drained"))
    ]  # fmt: skip
    least = Result.of("least", [_SINGLE_RATE] * s.repeats)
    return [
        *made,
        line(f"single enqueue calls over http, {_IN_FLIGHT} in flight", Result.of("enqueue", singles), least, bar=1.0),
        line(
            "the same, against the store opened directly",
            Result.of("http", singles),
            Result.of("direct", alike),
            bar=None,
        ),
        line("the same, one after the other", Result.of("enqueue", lone), least, bar=None),
    ]


def _side(name: str, field: str, turns: Sequence[Rates]) -> Result:
    return Result.of(name, [getattr(turn, field) for turn in turns])


async def _turn(url: str, *, count: int, batch: int, size: int) -> Rates:
    """In and out of a new queue."""
    async with holdfast.connect(url) as broker:
        queue: holdfast.Queue[Any] = await broker.queue(f"bench-{os.urandom(4).hex()}")
        values = iter(list(batches(count, batch, size)))
        left = count

        async def send() -> None:
            for part in values:
                await queue.enqueue_many(part)

        async def take() -> None:
            nonlocal left
            while left > 0:
                held = await queue.dequeue_many(min(batch, left))
                left -= len(held)
                if held and not all(await queue.complete_many(held)):
                    raise RuntimeError("a lease was lost")

        return Rates(count / await _seconds(send), count / await _seconds(take))


async def _seconds(part: Callable[[], Awaitable[None]]) -> float:
    """Of all in flight."""
    began = time.perf_counter()
    await asyncio.gather(*(part() for _ in range(_IN_FLIGHT)))
    return time.perf_counter() - began


async def _single(url: str, count: int, callers: int, size: int) -> float:
    async with holdfast.connect(url) as broker:
        queue: holdfast.Queue[Any] = await broker.queue(f"bench-{os.urandom(4).hex()}")
        return (await enqueue_together(queue, count, callers, size)).sample.rate


async def producers(bench: Bench) -> list[Line]:
    """Requests to the bucket for each message: of many clients of one server, and of as many callers in one process."""
    with s3.Server() as bucket, Proxy(bucket.port) as proxy:
        url = bucket.url("bench", endpoint=proxy.endpoint)
        with ServerProcess(url) as server:
            near = await _shared(bench, proxy, url, server.address)
            proxy.latency = _LATENCY_S
            far = await _shared(bench, proxy, url, server.address)
    what = f"requests per message, {_PRODUCERS} http producers, against as many callers of one process"
    return [
        line(f"{what}; 60 ms a request", *far, bar=_MOST_REQUESTS, better="less", unit="requests"),
        line("the same with a bucket on this machine", *near, bar=None, better="less", unit="requests"),
    ]


async def _shared(bench: Bench, proxy: Proxy, url: str, served: str) -> tuple[Result, Result]:
    s = bench.scale
    ours, other = list[float](), list[float]()
    for turn in range(min(s.repeats, s.far_turns)):
        bench.note(f"{_PRODUCERS} producers, {proxy.latency:g} s a request, turn {turn + 1}")
        ours.append(await _requests(proxy, [served] * _PRODUCERS, s.bucket, s.size))
        other.append(await _requests(proxy, [url], s.bucket, s.size))
    return Result.of("served", ours), Result.of("one process", other)


async def _requests(proxy: Proxy, urls: Sequence[str], count: int, size: int) -> float:
    """Of single calls, each client with its share of the callers."""
    name, body = f"bench-{os.urandom(4).hex()}", bodies(size)[0]
    async with AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(holdfast.connect(url)) for url in urls]
        queues: list[holdfast.Queue[Any]] = [await broker.queue(name) for broker in brokers]
        await asyncio.gather(*(queue.enqueue(body) for queue in queues))  # opening is a cost of starting
        before = proxy.counts.copy()

        async def send(queue: holdfast.Queue[Any]) -> None:
            for _ in range(count // _PRODUCERS):
                await queue.enqueue(body)

        await asyncio.gather(*(send(queues[number % len(queues)]) for number in range(_PRODUCERS)))
        asked = proxy.counts.since(before).requests.total()
    return asked / (count // _PRODUCERS * _PRODUCERS)
