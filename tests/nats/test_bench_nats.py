"""A tiny form of the benchmark, so that it never rots."""

from __future__ import annotations

import math

from holdfast.bench.nats.__main__ import lines
from holdfast.bench.nats.sides import Figures, ours, raw
from holdfast.testing.nats import Server


async def test_both_sides_run_and_are_told() -> None:
    with Server() as server:
        found = {"Holdfast": [await ours(server.url, 50, 64)], "raw nats-py": [await raw(server.url, 50, 64)]}
    told = "\n".join(lines(found))
    assert "publish against raw nats-py" in told
    assert "drain against raw nats-py" in told


def test_bars_are_judged_by_medians() -> None:
    fast, slow = Figures(100, 100, 300, 10), Figures(50, 50)
    told = "\n".join(lines({"Holdfast": [fast], "raw nats-py": [slow], "taskiq-nats": [slow]}))
    assert told.count(": ok") == 3
    assert "nan" in told
    assert not math.isnan(fast.publish)
