"""Pick-up latency and idle CPU: two processes on one folder."""

from __future__ import annotations

from holdfast.bench import raw
from holdfast.bench.latency import PickUp, measure
from holdfast.bench.measure import Result
from holdfast.bench.show import Bar

from .context import Bench, Line, limit


async def pickup(bench: Bench) -> list[Line]:
    """p50 below 3 ms, below 1 % of a core when idle."""
    s, found = bench.scale, list[PickUp]()
    for repeat in range(s.repeats):
        bench.note(f"pick-up ({repeat + 1}/{s.repeats})")
        with raw.scratch(bench.folder) as where:
            found.append(
                await measure(
                    f"file://{where}", count=s.latency, rate=s.latency_rate, idle=s.idle, bar=Bar(None, s.latency)
                )
            )
    times = [pick.pick_up for pick in found if pick.pick_up is not None]
    p99 = max(time.p99 for time in times) * 1000
    commit = 1000 / raw.sqlite_inserts(bench.folder, s.single, s.size).rate
    remark = f"p99 up to {p99:.2f} ms; one bare SQLite commit takes {commit:.2f} ms"
    return [
        limit("pick-up p50, idle worker, another process enqueues",
              Result.of("p50", [time.p50 * 1000 for time in times]), 3.0, goal=1.0, unit="ms", remark=remark),
        limit("idle worker, share of a core",
              Result.of("idle", [pick.idle_cpu * 100 for pick in found]), 1.0, goal=None, unit="%",
              remark=f"over {s.idle:.0f} s"),
    ]  # fmt: skip
