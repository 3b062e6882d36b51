"""What a page of waiting messages costs in front of a long backlog, and of a short one."""

from __future__ import annotations

import os
import time
from statistics import median

import holdfast
from holdfast.bench import raw
from holdfast.bench.child import Spec
from holdfast.bench.measure import Result
from holdfast.bench.processes import run
from tests.servers import postgres, s3

from .context import Bench, Line, line

_FEW = 1000
_PAGES = 20  # of a turn; the first reads what the others find at hand
_LIMIT = 100
_SMALL = 64  # bytes: requests do not depend on it, and a million of 1 KiB fill the disk of a small server


async def on_file(bench: Bench) -> list[Line]:
    """In a folder."""
    with raw.scratch(bench.folder) as where:
        return await _pages(bench, f"file://{where}")


async def on_postgres(bench: Bench) -> list[Line]:
    """In a database of its own."""
    with postgres.Server(settings={"shared_buffers": "256MB", "max_wal_size": "2GB"}) as server:
        return await _pages(bench, server.url())


async def on_bucket(bench: Bench) -> list[Line]:
    """On SeaweedFS, in requests; the first page of a process, which has nothing at hand."""
    s, asked = bench.scale, list[float]()
    with s3.Server() as server:
        url = server.url("bench")
        for queue, count in (("many", s.waiting), ("few", _FEW)):
            bench.note(f"preparing {count:,} waiting on a bucket")
            await run("enqueue", Spec(url=url, queue=queue, count=count, batch=s.batch, size=_SMALL))
            asked.append(await _requests(url, queue))
    what = f"requests of list(limit={_LIMIT}), {s.waiting:,} waiting against {_FEW:,}"
    many, few = (Result.of(name, [count]) for name, count in zip(("many", "few"), asked, strict=True))
    return [line(what, many, few, bar=3.0, better="less", unit="requests")]


async def _requests(url: str, queue: str) -> float:
    async with holdfast.connect(url) as broker:
        listed: holdfast.Queue[object] = await broker.queue(queue)
        before = broker.store.requests() or {}
        assert len(await listed.list("ready", _LIMIT)) == _LIMIT
        after = broker.store.requests() or {}
    return float(sum(after[kind] - before.get(kind, 0) for kind in after if not kind.startswith("bytes")))


async def _pages(bench: Bench, url: str) -> list[Line]:
    s, marks = bench.scale, (f"many{os.getpid()}", f"few{os.getpid()}")
    bench.note(f"preparing {s.waiting:,} waiting")
    for queue, count in zip(marks, (s.waiting, _FEW), strict=True):
        await run("enqueue", Spec(url=url, queue=queue, count=count, batch=s.batch, size=s.size))
    took: dict[str, list[float]] = {queue: [] for queue in marks}
    for repeat in range(s.repeats):
        for queue in marks if repeat % 2 == 0 else reversed(marks):
            took[queue].append(await _turn(url, queue))
    many, few = (Result.of(name, took[queue]) for name, queue in zip(("many", "few"), marks, strict=True))
    what = f"list(limit={_LIMIT}), {s.waiting:,} waiting against {_FEW:,}"
    return [line(what, many, few, bar=1.5, goal=1.1, better="less", unit="ms a page")]


async def _turn(url: str, queue: str) -> float:
    """Milliseconds of a page, in the middle of some by a fresh connection."""
    async with holdfast.connect(url) as broker:
        listed: holdfast.Queue[object] = await broker.queue(queue)
        taken: list[float] = []
        for _ in range(_PAGES):
            began = time.perf_counter()
            page = await listed.list("ready", _LIMIT)
            taken.append(time.perf_counter() - began)
            assert len(page) == _LIMIT
    return median(taken) * 1000
