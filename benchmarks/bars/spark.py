"""Spark: a stream from a folder and a sink into one, beside the same rows as Parquet."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from holdfast.bench.measure import Result

from ..spark import __main__ as program
from ..spark.sides import Bench as SparkBench
from ..spark.sides import Round
from .context import Bench, Line, line


async def spark(bench: Bench) -> list[Line]:
    s, folder = bench.scale, Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=bench.folder))
    bench.note("spark")
    session = program.session("local[2]", folder)
    try:
        sides = SparkBench(session, folder, count=s.spark, size=s.size, trigger=max(s.spark // 5, 1))
        found = await asyncio.to_thread(program.rounds, sides, min(s.repeats, 3))
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return lines_of(found, f"{s.spark:,} × {s.size} B")


def lines_of(found: list[Round], what: str) -> list[Line]:
    return [
        line(f"{mine.replace('_', ' ')} of {what}, against {other.replace('_', ' ')}", _side(found, mine),
             _side(found, other), bar=bar, goal=None if bar is None else 1.0, unit="rows/s")
        for mine, other, bar in program.BARS
    ]  # fmt: skip


def _side(found: list[Round], name: str) -> Result:
    return Result.of(name.replace("_", " "), [getattr(one, name) for one in found])
