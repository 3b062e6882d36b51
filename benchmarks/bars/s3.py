"""`s3://`: requests per message, throughput with 60 ms on every request, and an idle worker's requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.bench.measure import Result
from tests.servers.proxy import Proxy
from tests.servers.s3 import Server

from ..s3 import throughput, usage
from ..s3.throughput import Shape, Turn
from .context import Bench, Line, limit, line

_LATENCY_SECONDS = 0.06
_BATCH = 50
_REST_SECONDS = 8.0  # after a lone message, for its flush
_WINDOW_SECONDS = 30.0  # until blocks of lone messages are gone
_REQUESTS_AN_HOUR = 120.0
_FOUR_ON_ONE_HEAD, _FOUR_ON_FOUR = 0.8, 1.5  # times one process


@asynccontextmanager
async def _bucket() -> AsyncIterator[tuple[Proxy, str]]:
    with Server() as server, Proxy(server.port) as proxy:
        yield proxy, server.url("bench", endpoint=proxy.endpoint)


async def requests(bench: Bench) -> list[Line]:
    """As the proxy in between counts them."""
    s, found = bench.scale, list[usage.Usage]()
    load = usage.Lone(count=s.lone, size=s.size, rest=_REST_SECONDS, window=_WINDOW_SECONDS)
    async with _bucket() as (proxy, url):
        for batch, bar in ((1000, 0.02), (50, 0.2)):
            bench.note(f"s3: batches of {batch}")
            found.append(await usage.batched(proxy, url, count=s.bucket, batch=batch, size=s.size, bar=bar))
        for archive, most in ((False, 6.0), (True, 10.0)):
            bench.note("s3: lone messages")
            found.append(await usage.lone(proxy, url, load, archive=archive, apart=False, bar=most))
    return [_requests(one) for one in found]


def _requests(one: usage.Usage) -> Line:
    most = one.bar or 0.0
    return limit(
        f"requests per message, {one.name}", Result.of("requests", [one.requests]), most, goal=most / 2, unit="requests"
    )


async def idle(bench: Bench) -> list[Line]:
    """Of a worker in a process of its own."""
    seconds = bench.scale.idle_bucket
    bench.note("s3: an idle worker")
    async with _bucket() as (proxy, url):
        found = await usage.idle(proxy, url, after=seconds, watched=seconds, bar=_REQUESTS_AN_HOUR)
    hourly = Result.of("requests", [found.requests])
    return [limit(found.name, hourly, _REQUESTS_AN_HOUR, goal=_REQUESTS_AN_HOUR / 2, unit="requests")]


async def far_away(bench: Bench) -> list[Line]:
    """Every shape in turn."""
    s = bench.scale
    found: dict[Shape, list[Turn]] = {shape: [] for shape in throughput.SHAPES}
    async with _bucket() as (proxy, url):
        for turn in range(min(s.repeats, s.far_turns)):
            for shape, turns in found.items():
                bench.note(f"s3: {shape.name}, turn {turn + 1}")
                measured = await throughput.measure(
                    proxy, url, shape, count=s.far * shape.share, batch=_BATCH, size=s.size, latency=_LATENCY_SECONDS
                )
                turns.append(measured)
    return lines_of(found)


def lines_of(found: dict[Shape, list[Turn]]) -> list[Line]:
    """Against the best published figure, and four processes against one."""
    rates = {shape: Result.of(shape.name, [turn.rate for turn in turns]) for shape, turns in found.items()}
    made = []
    for shape, rate in rates.items():
        published = Result.of("published", [throughput.PUBLISHED] * len(rate.samples))
        again = sum(turn.again for turn in found[shape])
        remark = f"handed out again: {again}"
        made.append(line(f"60 ms a request: {shape.name}", rate, published, bar=shape.bar, remark=remark))
    for one, four in throughput.PAIRS:
        bar = _FOUR_ON_ONE_HEAD if four.shards == 1 else _FOUR_ON_FOUR
        made.append(line(f"{four.name}, against {one.name}", rates[four], rates[one], bar=bar))
    return made
