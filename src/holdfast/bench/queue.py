"""`bench queue`: one load through one store, phase by phase, and curves over size, backlog and processes."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

import holdfast

from .. import config
from ..errors import ConfigError
from ..stores.opening import locate, redact
from .child import Report, Spec
from .measure import Latency, latency
from .processes import drain, run, run_all
from .raw import scratch
from .show import Bar, milliseconds, rate

SINGLE_CALLS = 2000  # awaited one by one: enough for a p99, and a fsync each
CONCURRENT_CALLS = 20_000  # of many callers
COLUMNS = (
    "phase",
    "messages",
    "seconds",
    "per s",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "max ms",
    "bytes each",
    "requests each",
)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What `bench queue` is asked to do."""

    url: str
    count: int = 100_000
    size: int = 1024
    batch: int = 1000
    concurrency: int = 100
    processes: int = 1
    archive: bool = True


class Phase(msgspec.Struct, frozen=True):
    """One measured part. Latencies are of one call; a batch is one call."""

    name: str
    messages: int
    seconds: float
    rate: float
    latency: Latency | None = None
    written: float | None = None  # bytes to the disk, or to the bucket, per message
    requests: dict[str, float] | None = None  # to a bucket, per message, by kind


@asynccontextmanager
async def somewhere(url: str | None) -> AsyncIterator[str]:
    """The URL given, that of environment or file, or a folder that is gone afterwards; it is named afterwards."""
    said = url if url is not None else config.load().url
    if said is not None:
        yield said
        told(redact(said))
        return
    with scratch() as folder:
        yield f"file://{folder}"
    told(f"file://{folder}, which was temporary")


def told(store: str) -> None:
    """Figures without the store they are of are worth nothing."""
    sys.stderr.write(f"measured {store}\n")


async def reachable(url: str, *, at_once: int) -> None:
    """What is wrong with the store is said here, in one line: a child could only end."""
    location = locate(url)
    owner = location.kind.owner
    if owner == "process" or (at_once > 1 and owner == "one"):
        raise ConfigError(f"{location.scheme}:// belongs to one process, and this load is run by several")
    async with holdfast.connect(url):
        pass


def steps(load: Load) -> int:
    """How long the progress bar is."""
    return 2 * load.count + 2 * min(load.count, SINGLE_CALLS) + min(load.count, CONCURRENT_CALLS)


async def measure(load: Load, bar: Bar) -> list[Phase]:
    """Every phase of the load, in the order a message lives."""
    singles, together = min(load.count, SINGLE_CALLS), min(load.count, CONCURRENT_CALLS)
    phases = [await _enqueue(load, bar)]
    base = load.count
    for role, name, count in (
        ("single", "enqueue, one caller", singles),
        ("take", "dequeue + complete, one caller", singles),
        ("together", f"enqueue, {load.concurrency} callers", together),
    ):
        bar.note(name)
        spec = _spec(load, queue="bench-single" if role != "together" else "bench-together", count=count)
        report = await run(role, spec, progress=bar.above(base))
        phases.append(_phase(name, [report]))
        base += count
    phases.append(await _drain(load, bar, base))
    await _remove(load.url)
    ins, outs = phases[0], phases[-1]
    total = ins.seconds + outs.seconds
    return [*phases, Phase("in and out", load.count, total, load.count / total)]


async def _enqueue(load: Load, bar: Bar) -> Phase:
    name = f"enqueue_many × {load.batch}" + (f", {load.processes} processes" if load.processes > 1 else "")
    bar.note(name)
    specs = [_spec(load, count=count) for count in shares(load.count, load.processes)]
    return _phase(name, await run_all("enqueue", specs, progress=bar.to))


async def _drain(load: Load, bar: Bar, base: int) -> Phase:
    name = "worker" + (f", {load.processes} processes" if load.processes > 1 else "")
    bar.note(name)
    specs = [_spec(load, count=load.count) for _ in range(load.processes)]
    if load.processes == 1:
        reports = [await run("work", specs[0], progress=bar.above(base))]
    else:
        reports = await drain(specs, load.count, progress=bar.above(base))
    return _phase(name, reports)


def shares(count: int, processes: int) -> list[int]:
    """`count` divided among processes, to the last message."""
    return [count // processes + (place < count % processes) for place in range(processes)]


def _spec(load: Load, *, count: int, queue: str = "bench") -> Spec:
    return Spec(
        url=load.url, queue=queue, count=count, size=load.size, batch=load.batch, concurrency=load.concurrency,
        options={"archive": load.archive},
    )  # fmt: skip


def _phase(name: str, reports: Sequence[Report]) -> Phase:
    messages = sum(report.units for report in reports)
    seconds = max(report.last for report in reports) - min(report.first for report in reports)
    calls = [call for report in reports for call in report.calls]
    written = sum(report.written for report in reports)
    return Phase(
        name, messages, seconds, messages / seconds, latency(calls), written / messages if written else None,
        _requests(reports, messages),
    )  # fmt: skip


def _requests(reports: Sequence[Report], messages: int) -> dict[str, float] | None:
    kinds = [kind for kind in reports[0].requests if not kind.startswith("bytes")]
    return {kind: sum(each.requests[kind] for each in reports) / messages for kind in kinds} or None


async def _remove(url: str) -> None:
    """Leave nothing of the benchmark in the user's store."""
    async with holdfast.connect(url) as broker:
        for name in ("bench", "bench-single", "bench-together"):
            await broker.delete_queue(name, force=True)


# ---------------------------------------------------------------------- curves


class Point(msgspec.Struct, frozen=True):
    """One place on a curve."""

    at: int
    phases: list[Phase]
    memory: int | None = None  # bytes resident in a process that only claims


async def curve(base: Load, over: str, values: Sequence[int], bar: Bar) -> list[Point]:
    """The same load with one thing changed: `size` or `processes`."""
    points = []
    for value in values:
        changed: dict[str, Any] = {over: value}
        if over == "size":  # a gigabyte of each is enough, and fits the disk
            changed["count"] = max(100, min(base.count, (1 << 30) // value))
            changed["batch"] = max(1, min(base.batch, (16 << 20) // value))
        points.append(Point(value, await measure(msgspec.structs.replace(base, **changed), bar)))
    return points


async def waiting(base: Load, backlogs: Sequence[int], bar: Bar) -> list[Point]:
    """What a claim of ten costs with so many messages waiting; at least half of them still wait at the end."""
    points = []
    for backlog in backlogs:
        bar.note(f"{backlog} waiting")
        spec = _spec(base, count=backlog, queue=f"bench-waiting-{backlog}")
        await run("enqueue", spec)
        claims = max(1, min(50, backlog // 20))
        report = await run("claims", msgspec.structs.replace(spec, count=claims, batch=10))
        seconds = sum(report.calls)
        claim = Phase("claim of 10", 10 * claims, seconds, 10 * claims / seconds, latency(report.calls))
        points.append(Point(backlog, [claim], report.memory))
        async with holdfast.connect(base.url) as broker:
            await broker.delete_queue(spec.queue, force=True)
    return points


def rows(phases: Sequence[Phase]) -> list[list[str]]:
    """For the table."""
    return [_row(phase) for phase in phases]


def _row(phase: Phase) -> list[str]:
    times = phase.latency
    percentiles = [milliseconds(t) for t in (times.p50, times.p95, times.p99, times.max)] if times else [""] * 4
    written = f"{phase.written:,.0f}" if phase.written is not None else ""
    requests = f"{sum(phase.requests.values()):.4g}" if phase.requests else ""
    return [
        phase.name,
        f"{phase.messages:,}",
        f"{phase.seconds:.3f}",
        rate(phase.rate),
        *percentiles,
        written,
        requests,
    ]
