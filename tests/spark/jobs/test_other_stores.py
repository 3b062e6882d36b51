"""The jobs on PostgreSQL and on a bucket: load, process, keep, play back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.spark import jobs

HANDLERS = "tests.spark.jobs.fleet_handlers"


def without_keys(url: str) -> str:
    """As Spark takes it: the keys are in the environment."""
    parts = urlsplit(url)
    query = [(name, value) for name, value in parse_qsl(parts.query) if not name.endswith(("_key", "_key_id"))]
    return urlunsplit(parts._replace(query=urlencode(query)))


@pytest.mark.parametrize("store", ["postgres", "s3"])
def test_the_whole_way(store: str, request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> None:
    url = without_keys(request.getfixturevalue(store).url)

    async def make() -> None:
        async with holdfast.connect(url) as broker:
            await broker.queue("orders", max_attempts=2, retry=holdfast.Fixed(0.1))
            await broker.queue("again")

    async def count(name: str) -> Any:
        async with holdfast.connect(url) as broker:
            return await (await broker.queue(name)).stats()

    asyncio.run(make())
    rows = spark.createDataFrame([(number, number % 3) for number in range(220)], "n long, p int")
    load = {"url": url, "priority": "p", "key": "first"}
    assert jobs.ingest(spark, rows, "orders", **load).added == 220
    assert jobs.ingest(spark, rows, "orders", **load).added == 0

    done = jobs.process(spark, "orders", f"{HANDLERS}:ship", url=url, tasks=1)  # 5, 105 and 205 fail
    assert (done.completed, done.dead, done.left) == (217, 3, 0)

    lake = tmp_path / "lake"
    assert jobs.lake(spark, "orders", lake, url=url).added == 220
    assert jobs.lake(spark, "orders", lake, url=url).added == 0
    assert jobs.report(spark, lake, tmp_path / "out").messages == 220

    choice: dict[str, Any] = {"url": url, "to": "again", "where": "status = 'dead' or attempts > 1"}
    dry = jobs.replay(spark, lake, dry_run=True, **choice).replayed
    assert jobs.replay(spark, lake, **choice).replayed == dry > 3
    assert jobs.replay(spark, lake, **choice).replayed == 0
    assert asyncio.run(count("again")).pending == dry
    assert jobs.replay(spark, dead="orders", url=url).replayed == 3
    assert jobs.replay(spark, dead="orders", url=url).replayed == 0
    assert asyncio.run(count("orders")).pending == 3
