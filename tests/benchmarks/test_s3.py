"""The benchmark of buckets in a tiny form, so that it never rots."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from benchmarks.s3 import __main__ as bench
from benchmarks.s3 import usage
from benchmarks.s3.throughput import Shape
from tests.servers.bucket import BucketServer
from tests.servers.proxy import Counts

TINY = ["--count", "400", "--size", "64", "--paced", "0.5", "--lone", "1", "--rest", "0.1", "--window", "0.1",
        "--drained", "160", "--latency", "0.002", "--repeats", "1", "--idle", "0.5", "--watched", "1"]  # fmt: skip


@pytest.mark.timeout(180)
async def test_everything_is_measured_and_told(tmp_path: Path) -> None:
    arguments = bench.parser().parse_args([*TINY, "--server", "memory"])
    with BucketServer() as server:
        report = await bench.run(arguments, server, [Shape("calls", 2, 2, 2, 1.5), Shape("worker", 1, 1, 1)])
    told = "\n".join(bench.lines(report, arguments))
    for part in (
        "batches of 1000",
        "100 single calls a second, linger=0.1",
        "lone messages, archive off",
        "idle worker",
        "calls, 2 × 2 consumers, 2 shards",
    ):
        assert part in told
    assert all(one.requests > 0 for one in report.usage[:4])
    assert all(turn.completed >= 160 and turn.rate > 0 for _, turns in report.turns for turn in turns)
    assert msgspec.json.encode(report)


def test_what_callers_cannot_exceed() -> None:
    def best(how: Literal["calls", "worker"], processes: int, consumers: int, shards: int) -> float | None:
        return Shape(how, processes, consumers, shards).at_best(latency=0.06, batch=50)

    assert best("calls", 1, 4, 1) == pytest.approx(4 * 50 / 0.12)
    assert best("calls", 4, 1, 1) == pytest.approx(50 / 0.12), "one at a time"
    assert best("calls", 4, 1, 8) == pytest.approx(4 * 50 / 0.12)
    assert best("worker", 4, 1, 8) is None


def test_usage_is_per_message_and_judged_by_its_bar() -> None:
    counts = Counts(sent=2000, received=100)
    counts.requests.update(create=2, get=8)
    found = usage.Usage.of("batches", 100, counts, bar=0.05)
    assert (found.requests, found.kinds, found.sent, found.received) == (0.1, {"create": 0.02, "get": 0.08}, 20, 1)
    assert "ABOVE THE BAR" in usage.lines([found])[1]
