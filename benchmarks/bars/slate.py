"""`slatedb+file://`: enqueue in bulk and one by one, against SlateDB bare."""

from __future__ import annotations

from holdfast.bench import raw
from holdfast.bench.child import Spec
from holdfast.bench.measure import Sample, Side, alternate
from holdfast.bench.processes import run

from ..raw_slate import durable_puts
from .context import Bench, Line, line


async def slate(bench: Bench) -> list[Line]:
    """`enqueue_many` of 1000 against raw puts of as many bytes; a lone enqueue against a raw put, for orientation."""
    s = bench.scale

    async def ours(role: str, count: int) -> Sample:
        with raw.scratch(bench.folder) as where:
            spec = Spec(url=f"slatedb+file://{where}/store", count=count, batch=s.batch, size=s.size)
            report = await run(role, spec)
        return Sample(report.units, report.seconds)

    sides = [
        Side("enqueue_many", lambda: ours("enqueue", s.bulk)),
        Side("SlateDB puts", lambda: durable_puts(bench.folder, s.bulk // s.batch, s.batch * s.size, s.batch)),
        Side("enqueue", lambda: ours("single", s.single)),
        Side("SlateDB put", lambda: durable_puts(bench.folder, s.single, s.size)),
    ]
    bulk, puts, single, put = await alternate(sides, s.repeats, bench.note)
    what = f"enqueue_many of {s.batch}, {s.bulk:,} × {s.size} B"
    return [
        line(f"{what}, against raw SlateDB puts of {s.batch * s.size:,} B", bulk, puts, bar=0.5, goal=0.8),
        line("single awaited enqueue, against raw SlateDB puts", single, put, bar=None),
    ]
