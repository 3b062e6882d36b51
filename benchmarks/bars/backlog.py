"""What a backlog costs: claims and memory with a million waiting, and with retries pending."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast.bench import raw
from holdfast.bench.child import Report, Spec
from holdfast.bench.measure import Result
from holdfast.bench.processes import run

from .context import Bench, Line, line

_CLAIMS, _AT_ONCE = 50, 10
_FEW = 1000
_HOUR = 3600.0


async def waiting(bench: Bench) -> list[Line]:
    """A million waiting against a thousand."""
    s = bench.scale
    with raw.scratch(bench.folder) as where:
        full = Spec(url=f"file://{where}", queue="full", count=s.waiting, batch=s.batch, size=s.size)
        bench.note(f"preparing {s.waiting:,} waiting")
        await run("enqueue", full)
        many, few = await _turns(bench, full)
    return _lines(f"{s.waiting:,} waiting against {_FEW:,}", many, few)


async def retries(bench: Bench) -> list[Line]:
    """Many retries pending against none."""
    s = bench.scale
    with raw.scratch(bench.folder) as where:
        full = Spec(url=f"file://{where}", queue="full", count=s.retries, batch=s.batch, size=s.size)
        bench.note(f"preparing {s.retries:,} retries")
        await run("enqueue", full)
        await _fail_all(full)
        await run("enqueue", msgspec.structs.replace(full, count=_FEW * s.repeats))
        many, few = await _turns(bench, full)
    return _lines(f"{s.retries:,} retries pending against none", many, few)


async def _fail_all(spec: Spec) -> None:
    async with holdfast.connect(spec.url) as broker:
        queue: holdfast.Queue[Any] = await broker.queue(spec.queue)
        while deliveries := await queue.dequeue_many(1000):
            await queue.fail_many(deliveries, ["later"] * len(deliveries), retry_in=_HOUR)
        await broker.store.maintain(spec.queue)  # as a worker does now and then; else the first who claims would


async def _turns(bench: Bench, full: Spec) -> tuple[list[Report], list[Report]]:
    """Claims on the full queue and on a fresh small one, in turns, each in a process of its own."""
    many: list[Report] = []
    few: list[Report] = []
    for repeat in range(bench.scale.repeats):
        bench.note(f"claims ({repeat + 1}/{bench.scale.repeats})")
        turns: list[Callable[[], Awaitable[None]]] = [
            lambda: _claim_many(full, many),
            lambda: _claim_few(bench.folder, full, few),
        ]
        for turn in turns if repeat % 2 == 0 else reversed(turns):
            await turn()
    return many, few


async def _claim(spec: Spec, into: list[Report]) -> None:
    into.append(await run("claims", msgspec.structs.replace(spec, count=_CLAIMS, batch=_AT_ONCE)))


async def _claim_many(spec: Spec, into: list[Report]) -> None:
    """What this turn completed is archived before the next: the small queue, always a fresh one, has no such rest."""
    await _claim(spec, into)
    async with holdfast.connect(spec.url) as broker:
        await broker.store.maintain(spec.queue)


async def _claim_few(folder: Path | None, full: Spec, into: list[Report]) -> None:
    with raw.scratch(folder) as where:
        few = msgspec.structs.replace(full, url=f"file://{where}", count=_FEW)
        await run("enqueue", few)
        await _claim(few, into)


def _lines(what: str, many: list[Report], few: list[Report]) -> list[Line]:
    sides = (("many", many), ("few", few))
    cost = [Result.of(name, [_mean_ms(report) for report in reports]) for name, reports in sides]
    memory = [Result.of(name, [report.memory / 2**20 for report in reports]) for name, reports in sides]
    first = max(report.calls[0] for report in many) * 1000
    return [
        line(f"claim cost, {what}", *cost, bar=1.5, goal=1.1, better="less", unit="ms a claim of 10",
             remark=f"mean of {_CLAIMS} claims, the first (up to {first:.1f} ms) included"),
        line(f"resident memory, {what}", *memory, bar=1.5, goal=1.1, better="less", unit="MiB"),
    ]  # fmt: skip


def _mean_ms(report: Report) -> float:
    return sum(report.calls) / len(report.calls) * 1000
