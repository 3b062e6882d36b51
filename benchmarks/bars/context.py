"""What every bar is measured with, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec

from holdfast.bench.measure import Note, Result


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything; the quick one is for a look, the full one for a claim."""

    repeats: int = 5  # short turns, many of them: what else the machine does must hit both sides of a pair
    bulk: int = 200_000
    classic: int = 1_000_000
    drain: int = 50_000
    together: int = 100_000
    single: int = 2000
    queues: int = 10_000
    waiting: int = 1_000_000
    retries: int = 200_000
    latency: int = 500
    latency_rate: float = 50.0
    idle: float = 10.0
    overhead: int = 100_000
    starts: int = 15
    size: int = 1024
    batch: int = 1000
    postgres: int = 20_000
    settled: int = 1_000_000  # before the rate is taken again
    picked_up: int = 400
    nats: int = 20_000
    celery: int = 3000
    bucket: int = 20_000
    far: int = 8000  # of one turn with latency; more for workers and shards
    far_turns: int = 3  # at most: the processes of each of ten shapes take some seconds to start
    lone: int = 5
    idle_bucket: float = 300.0  # seconds, before and while requests are counted
    spark: int = 1_000_000
    http: int = 100_000
    page_queues: int = 1000
    archived: int = 1_000_000  # in all of them
    page_seen: float = 20.0  # seconds, until a server has seen the last message: two of its looks
    page_rest: float = 2.0  # between two pages: for as long it shows what it has just seen
    concurrency: int = 1000  # of the worker that drains: its best setting, as every peer gets its own


QUICK = Scale(
    bulk=50_000, classic=100_000, drain=10_000, together=20_000, single=500, queues=2000, waiting=100_000,
    retries=20_000, latency=100, idle=3.0, overhead=20_000, starts=5, postgres=4000, settled=50_000, picked_up=80,
    nats=4000, celery=1000, bucket=4000, far=1000, far_turns=1, lone=1, idle_bucket=30.0, spark=50_000,
    http=20_000, page_queues=100, archived=20_000,
)  # fmt: skip


class Bench(msgspec.Struct, frozen=True):
    """Where, how much, and whom to tell."""

    folder: Path | None
    scale: Scale
    note: Note
    peers_python: Callable[[], Path]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One bar: two sides of the same run, their ratio, what it must be and what we want."""

    store: str = ""
    name: str
    ours: Result
    other: Result
    ratio: float
    low: float  # the ratio's spread over the repeats
    high: float
    better: Literal["more", "less"]
    bar: float | None
    goal: float | None
    unit: str = "messages/s"
    remark: str = ""
    result: str = ""  # goal, pass, FAIL; without a bar: goal or below goal
    sure: bool = True  # False: the turns do not agree on which side of the bar they are


def _sure(low: float, high: float, bar: float | None, better: str) -> bool:
    return bar is None or _reached(low, bar, better) == _reached(high, bar, better)


def _judge(ratio: float, bar: float | None, goal: float | None, better: str) -> str:
    if _reached(ratio, goal, better):
        return "goal"
    if bar is None:
        return "below goal" if goal is not None else ""
    return "pass" if _reached(ratio, bar, better) else "FAIL"


def _reached(value: float, wanted: float | None, better: str) -> bool:
    if wanted is None:
        return False
    return value >= wanted if better == "more" else value <= wanted


def line(
    name: str,
    ours: Result,
    other: Result,
    *,
    bar: float | None,
    goal: float | None = None,
    better: Literal["more", "less"] = "more",
    unit: str = "messages/s",
    remark: str = "",
) -> Line:
    """The median of the ratios of the turns, and their spread: the two of a turn were measured side by side."""
    pairs = [a / b for a, b in zip(ours.samples, other.samples, strict=True) if b > 0]
    ratio, low, high = (median(pairs), min(pairs), max(pairs)) if pairs else (0.0, 0.0, 0.0)
    return Line(
        name=name, ours=ours, other=other, ratio=ratio, low=low, high=high, better=better, bar=bar, goal=goal,
        unit=unit, remark=remark, result=_judge(ratio, bar, goal, better), sure=_sure(low, high, bar, better),
    )  # fmt: skip


def limit(name: str, ours: Result, most: float, *, goal: float | None, unit: str, remark: str = "") -> Line:
    """A bar that is a number of its own: the other side is the limit, and the ratio must stay below one."""
    wanted = None if goal is None else goal / most
    return line(
        name, ours, Result.of("limit", [most] * len(ours.samples)), bar=1.0, goal=wanted, better="less", unit=unit,
        remark=remark,
    )  # fmt: skip
