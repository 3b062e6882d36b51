"""What pages of `holdfast serve` cost in front of many queues with long archives."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import urllib.request
from typing import Any

import msgspec

import holdfast
from holdfast.bench import raw
from holdfast.bench.measure import Result
from tests.servers import postgres
from tests.servers.serving import ServerProcess

from .context import Bench, Line, limit, line

_MOST_MS = 300.0  # of a page, from the request to its last byte
_MOST_KB = 150.0  # of one, as transferred
_AT_ONCE = 20  # queues that are filled
_UNBOUND = ("search for an id that nobody has", "dead letters")  # told, but nobody has promised how fast they are
_ABSENT = "01a00000-0000-7000-8000-000000000000"  # an id that nobody has


class Made(msgspec.Struct):
    """What is asked for."""

    queue: str
    ids: list[str]  # of messages anywhere, one a queue


async def on_file(bench: Bench) -> list[Line]:
    """In a folder."""
    with raw.scratch(bench.folder) as where:
        return await _pages(bench, f"file://{where}/store", f"{where}/state")


async def on_postgres(bench: Bench) -> list[Line]:
    """In a database of its own."""
    settings = {"shared_buffers": "256MB", "max_wal_size": "2GB"}
    with raw.scratch(bench.folder) as where, postgres.Server(settings=settings) as server:
        return await _pages(bench, server.url(), f"{where}/state")


async def _pages(bench: Bench, url: str, state: str) -> list[Line]:
    """The server is there while messages come, as it usually is; then it starts again, with nothing in memory."""
    with ServerProcess(url, "--state", state):
        made = await fill(bench, url)
        await asyncio.sleep(bench.scale.page_seen)
    with ServerProcess(url, "--state", state) as server:
        return await asyncio.to_thread(_asked, bench, server.address, made)


async def fill(bench: Bench, url: str) -> Made:
    """As many queues as the scale says, each with its share of archived messages, and some that wait and are dead."""
    s = bench.scale
    share = s.archived // s.page_queues
    bench.note(f"making {s.page_queues:,} queues with {share:,} archived messages each")
    names = [f"tenant-{number:05d}" for number in range(s.page_queues)]
    ids: list[str] = []
    logging.disable(logging.ERROR)  # a line for each dead letter
    async with holdfast.connect(url) as broker:
        for first in range(0, len(names), _AT_ONCE):
            ids += await asyncio.gather(*(_fill(broker, name, share) for name in names[first : first + _AT_ONCE]))
    logging.disable(logging.NOTSET)
    return Made(names[len(names) // 2], ids)


async def _fill(broker: holdfast.Broker, name: str, share: int) -> str:
    queue: holdfast.Queue[Any] = await broker.queue(name, max_attempts=1)
    ids = await queue.enqueue_many([{"number": number} for number in range(share)])
    await queue.complete_many(await queue.dequeue_many(share))
    await queue.enqueue_many([{"waits": True}] * 3)
    for each in await queue.dequeue_many(1):
        await each.fail("ValueError: nothing")
    return ids[share // 2]


class Timed(msgspec.Struct):
    """A page, asked for again and again."""

    name: str
    paths: list[str]  # one for each time
    taken: list[float] = []  # milliseconds
    kilobytes: float = 0.0  # the largest, as transferred


def _asked(bench: Bench, address: str, made: Made) -> list[Line]:
    """Every page in turn, with a pause in which what the server has just seen gets old."""
    times = bench.scale.repeats
    chosen = [random.Random(number).choice(made.ids) for number in range(times)]  # nosec B311 - any will do
    pages = [
        Timed(name, [path] * times)
        for name, path in (
            ("overview", "/"),
            ("queues", "/queues"),
            ("queue", f"/queues/{made.queue}"),
            ("archive of a queue", f"/queues/{made.queue}/messages?state=archive"),
            ("dead letters", "/dead"),
            ("search for an id that nobody has", f"/messages?text={_ABSENT}"),
        )
    ]
    pages.append(Timed("search by id", [f"/messages?text={id}" for id in chosen]))
    _ask(address, "/")  # the first look
    for turn in range(times):
        for each in pages:
            bench.note(f"{each.name} ({turn + 1}/{times})")
            time.sleep(bench.scale.page_rest)
            took, size = _ask(address, each.paths[turn])
            each.taken.append(took)
            each.kilobytes = max(each.kilobytes, size)
    store = f"{bench.scale.page_queues:,} queues, {bench.scale.archived:,} archived messages"
    return [*(_line(each, store) for each in pages), _heaviest(pages)]


def _line(page: Timed, store: str) -> Line:
    remark = f"{page.kilobytes:.1f} kB as transferred; {store}"
    bar = None if page.name in _UNBOUND else _MOST_MS
    ours = Result.of(page.name, page.taken)
    if bar is None:
        return line(f"page: {page.name}", ours, Result.of("limit", [_MOST_MS] * len(page.taken)), bar=None,
                    better="less", unit="ms", remark=remark)  # fmt: skip
    return limit(f"page: {page.name}", ours, bar, goal=bar / 2, unit="ms", remark=remark)


def _heaviest(pages: list[Timed]) -> Line:
    most = max(page.kilobytes for page in pages)
    return limit("heaviest page", Result.of("page", [most]), _MOST_KB, goal=None, unit="kB")


def _ask(address: str, path: str) -> tuple[float, float]:
    """Milliseconds and kilobytes of a page, where it leads to."""
    request = urllib.request.Request(address + path, headers={"accept": "text/html", "accept-encoding": "gzip"})
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=60) as answer:  # nosec B310 - our own server
        body = answer.read()
    return (time.perf_counter() - began) * 1000, len(body) / 1000
