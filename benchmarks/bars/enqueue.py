"""Enqueue: in bulk against the bare durable steps, many single callers, one single caller."""

from __future__ import annotations

from pathlib import Path

from holdfast.bench import raw
from holdfast.bench.child import Report, Spec
from holdfast.bench.measure import Sample, Side, alternate
from holdfast.bench.processes import run

from .context import Bench, Line, line


async def on_fresh_folder(folder: Path | None, role: str, *, before: str | None = None, **spec: object) -> Report:
    """Run a child's part on a store of its own; `before` is a part that prepares it."""
    with raw.scratch(folder) as where:
        what = Spec(url=f"file://{where}", **spec)  # type: ignore[arg-type]  # the names are those of Spec
        if before is not None:
            await run(before, what)
        return await run(role, what)


def _sample(report: Report) -> Sample:
    return Sample(report.units, report.seconds)


async def bulk(bench: Bench) -> list[Line]:
    """`enqueue_many` of 1000 against the same durable steps bare, and against raw fsynced blocks."""
    s, blocks = bench.scale, bench.scale.bulk // bench.scale.batch

    async def ours() -> Sample:
        return _sample(await on_fresh_folder(bench.folder, "enqueue", count=s.bulk, batch=s.batch, size=s.size))

    async def bare() -> Sample:
        return raw.blocks_with_index(bench.folder, blocks, s.batch * s.size, s.batch)

    async def files() -> Sample:
        return raw.fsynced_blocks(bench.folder, blocks, s.batch * s.size, s.batch)

    sides = [Side("enqueue_many", ours), Side("block + index row", bare), Side("fsynced blocks", files)]
    mine, steps, blocks_only = await alternate(sides, s.repeats, bench.note)
    what = f"enqueue_many of {s.batch}, {s.bulk:,} × {s.size} B"
    return [
        line(f"{what}, against the bare durable steps", mine, steps, bar=0.6),
        line(f"{what}, against raw fsynced blocks", mine, blocks_only, bar=None, goal=0.5),
    ]


async def together(bench: Bench) -> list[Line]:
    """1000 concurrent single `enqueue` calls against `enqueue_many`."""
    s = bench.scale

    async def many() -> Sample:
        return _sample(await on_fresh_folder(bench.folder, "enqueue", count=s.together, batch=s.batch, size=s.size))

    async def singles() -> Sample:
        return _sample(await on_fresh_folder(bench.folder, "together", count=s.together, concurrency=1000, size=s.size))

    async def waves() -> Sample:
        return _sample(await on_fresh_folder(bench.folder, "waves", count=s.together, concurrency=1000, size=s.size))

    sides = [Side("1000 callers", singles), Side("enqueue_many", many), Side("1000 tasks at a time", waves)]
    mine, other, tasks = await alternate(sides, s.repeats, bench.note)
    return [
        line("1000 concurrent single enqueue calls, against enqueue_many", mine, other, bar=0.25, goal=0.6),
        line("the same with a new asyncio task for every call", tasks, other, bar=None),
    ]


async def single(bench: Bench) -> list[Line]:
    """One caller, every call awaited: against raw SQLite commits of the same bytes."""
    s = bench.scale

    async def put() -> Sample:
        return _sample(await on_fresh_folder(bench.folder, "single", count=s.single, size=s.size))

    async def take() -> Sample:
        return _sample(
            await on_fresh_folder(bench.folder, "take", before="enqueue", count=s.single, batch=s.batch, size=s.size)
        )

    async def raw_put() -> Sample:
        return raw.sqlite_inserts(bench.folder, s.single, s.size)

    async def raw_take() -> Sample:
        return raw.sqlite_take_and_delete(bench.folder, s.single, s.size)

    async def raw_fleeting_take() -> Sample:
        return raw.sqlite_take_and_delete(bench.folder, s.single, s.size, take="NORMAL")

    sides = [
        Side("enqueue", put), Side("SQLite insert", raw_put),
        Side("dequeue + complete", take), Side("SQLite take + delete", raw_take),
        Side("SQLite take not synced + delete", raw_fleeting_take),
    ]  # fmt: skip
    enqueue, insert, dequeue, delete, fleeting = await alternate(sides, s.repeats, bench.note)
    return [
        line("single awaited enqueue, against raw SQLite commits", enqueue, insert, bar=0.5, goal=0.8),
        line("single dequeue + complete (two commits), against the same raw", dequeue, delete, bar=0.4, goal=0.8),
        line("the same, against raw commits of which the take is not synced either", dequeue, fleeting, bar=None),
    ]
