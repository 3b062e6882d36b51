"""The benchmark in a tiny form, so that it never rots."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.postgres import __main__ as bench
from tests.stores.postgres.fixtures import Database


@pytest.mark.timeout(120)
async def test_everything_is_measured_and_told(postgres: Database, tmp_path) -> None:
    arguments = bench.parser().parse_args(
        ["--count", "1000", "--size", "64", "--repeats", "1", "--settled", "4000", "--pickups", "4", "--no-peers"]
    )
    report = await asyncio.to_thread(bench.run, arguments, postgres.url, lambda name: postgres.url)
    assert all(one.bulk > 0 for rounds in report.rounds.values() for one in rounds)
    stays = report.staying
    assert stays is not None
    assert min(*stays.fresh, *stays.after, *stays.pinned, stays.waiting) > 0
    told = "\n".join(bench.lines(report))
    for part in ("raw COPY", "holdfast worker", "WAL", "with 4,000 settled", "xmin pinned", "pick-up, bare"):
        assert part in told
