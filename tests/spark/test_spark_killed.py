"""Drivers killed at each named point of a micro-batch, and started again on the same checkpoint."""

from __future__ import annotations

import pytest
from chaos.runs.spark_copy import SOURCE, TARGET, Pipeline, fill, judge
from chaos.settings import Settings
from chaos.spark.killing import POINTS
from chaos.verdict import Verdict, lines

import holdfast

COUNT = 400  # in batches of fifty: one after the other is killed
KILLED = ("claimed", "reading", "staged", "published", "before settle")


@pytest.mark.timeout(600)
async def test_a_driver_killed_at_every_point(tmp_path):
    url = f"file://{tmp_path}/store"
    assert set(KILLED) < set(POINTS)
    verdict = Verdict(run="killed at every point")
    async with holdfast.connect(url) as broker:
        await fill(broker, COUNT)
        pipeline = Pipeline(url, tmp_path, Settings(messages=COUNT), master="local[2,4]")
        try:
            for point in KILLED:
                await pipeline.start(kill_at=point)
                assert await pipeline.wait(120) == -9, f"{point}: {(tmp_path / 'driver.log').read_text()[-3000:]}"
                verdict.kills += 1
            await pipeline.start()
            assert await pipeline.wait(120) == 0, (tmp_path / "driver.log").read_text()[-3000:]
        finally:
            await pipeline.end()
        await judge(broker, COUNT, verdict)
        assert verdict.valid, "\n".join(lines(verdict))
        assert verdict.notes["staged objects swept"], "the driver that was killed before it published left some"
        assert (await broker.store.stats(SOURCE)).completed == COUNT
        assert (await broker.store.stats(TARGET)).pending == COUNT
