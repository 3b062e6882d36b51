"""The benchmark in a tiny form, so that it never rots."""

from __future__ import annotations

import pytest

from benchmarks.spark import __main__ as program
from benchmarks.spark.sides import Bench, Round


@pytest.mark.timeout(300)
def test_a_round(spark, tmp_path):
    bench = Bench(spark, tmp_path, count=300, size=128, trigger=300)
    told = "\n".join(program.lines(program.rounds(bench, 1)))
    assert "stream against parquet stream" in told
    assert "bar 0.5" in told


def test_ratios_are_judged_by_their_bars():
    sides = dict.fromkeys(Round.__struct_fields__, 1.0)
    slow = Round(**sides | {"stream": 40, "sink": 60, "parquet_stream": 100, "parquet_sink": 100})
    told = program.lines([slow])
    assert "stream against parquet stream: 0.40 ×, bar 0.5 ×: below" in told
    assert "sink against parquet sink: 0.60 ×, bar 0.5 ×: ok" in told
