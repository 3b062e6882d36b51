"""Drivers killed at each named point of a micro-batch, and started again on the same checkpoint."""

from __future__ import annotations

import pytest

import holdfast
from chaos.runs.spark_copy import SOURCE, TARGET, Pipeline, fill, judge, place
from chaos.settings import Settings
from chaos.spark.killing import POINTS
from chaos.verdict import Verdict, lines

COUNT = 150  # in batches of fifty
PATIENCE_S = 240.0  # two processors that others use, and a JVM for each driver
KILLED = ("claimed", "reading", "staged", "published", "before settle")


@pytest.mark.timeout(1200)
async def test_a_driver_killed_at_every_point(tmp_path):
    assert set(KILLED) < set(POINTS)
    async with holdfast.connect(f"file://{tmp_path}/store") as broker:
        await fill(broker, COUNT)
        verdict = await killed(broker, f"file://{tmp_path}/store", tmp_path, KILLED)
        assert verdict.notes["staged objects swept"], "the driver that was killed before it published left some"


@pytest.mark.timeout(1200)
async def test_a_driver_killed_on_a_queue_with_eight_shards(tmp_path):
    async with place("s3", tmp_path) as url, holdfast.connect(url) as broker:
        await fill(broker, COUNT, 8)
        await killed(broker, url, tmp_path, ("claimed", "published"))


async def killed(broker, url, root, points) -> Verdict:
    """Kill a driver at each of these points, let another end the work, and judge."""
    verdict = Verdict(run="killed at every point")
    await broker.queue(TARGET)
    pipeline = Pipeline(url, root, Settings(messages=COUNT), master="local[2,4]")
    try:
        for point in points:
            await pipeline.start(kill_at=point)
            assert await pipeline.wait(PATIENCE_S) == -9, f"{point}: {(root / 'driver.log').read_text()[-3000:]}"
            verdict.kills += 1
        await pipeline.start()
        assert await pipeline.wait(PATIENCE_S) == 0, (root / "driver.log").read_text()[-3000:]
    finally:
        await pipeline.end()
    await judge(broker, COUNT, verdict)
    assert verdict.valid, "\n".join(lines(verdict))
    assert (await broker.store.stats(SOURCE)).completed == COUNT
    assert (await broker.store.stats(TARGET)).pending == COUNT
    return verdict


async def test_the_judge_sees_what_went_wrong(tmp_path):
    """Lost, doubled, claimed and staged messages are told: a judge that never objects proves nothing."""
    async with holdfast.connect(f"file://{tmp_path}/store") as broker:
        await fill(broker, 10)
        await broker.queue(TARGET)
        batches = broker.store.batches
        owner = await batches.own(SOURCE, "etl", holder="me", lease=60.0)
        await batches.claim_batch(owner, after=0, limit=4)
        target = await broker.queue(TARGET)
        await target.enqueue_many([0, 1, 2, 3, 3, 77])
        verdict = Verdict(run="wrong")
        await judge(broker, 10, verdict)
        assert (verdict.lost, verdict.duplicate_completions, verdict.unexpected) == (6, 1, 1)
        assert verdict.unfinished == 10
        assert verdict.failures == ["4 messages are still claimed"]
        assert not verdict.valid
