"""Stores that Spark does not read: NATS takes writes and `process`, SlateDB `process`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import holdfast
from holdfast.spark import jobs
from tests.servers.nats import Server

HANDLERS = "tests.spark.jobs.fleet_handlers"


@pytest.fixture(scope="module")
def nats() -> Iterator[str]:
    with Server() as server:
        yield server.url


def fails_once(batches: Iterable[Any]) -> Iterator[Any]:
    """Every task gives all of its rows, fails, and runs again."""
    yield from batches
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        raise RuntimeError("a task that fails when it has written")


def failing(rows: DataFrame) -> DataFrame:
    return rows.mapInArrow(fails_once, rows.schema)


async def waiting(url: str, name: str) -> Counter[int]:
    """The messages of a queue by their numbers, as workers get them; the queue is empty afterwards."""
    found: Counter[int] = Counter()
    async with holdfast.connect(url) as broker:
        queue = await broker.queue(name, create=False)
        while claims := (await broker.store.claim(name, 1000, 60, wait=0.5)).messages:
            found.update(int(each.payload.strip(b'"')) for each in claims)
        assert (await queue.stats()).pending == 0
    return found


def test_writes_to_nats_are_there_once(spark: SparkSession, nats: str) -> None:
    rows = spark.range(0, 3000, 1, 3).selectExpr("cast(id as string) as value", "cast(id % 3 as int) as priority")

    def write(key: str) -> None:
        made = failing(rows).write.format("holdfast").option("url", nats).option("idempotencyKey", key)
        made.mode("append").save("loaded")

    write("a")
    write("a")
    assert asyncio.run(waiting(nats, "loaded")) == Counter(range(3000))


def test_a_stream_goes_to_nats_once(spark: SparkSession, nats: str, tmp_path: Path) -> None:
    url, count = (tmp_path / "store").as_uri(), 600

    async def fill() -> None:
        async with holdfast.connect(url) as broker:
            queue = await broker.queue("source")
            for start in range(0, count, 100):
                await queue.enqueue_many(list(range(start, start + 100)))

    asyncio.run(fill())
    stream = spark.readStream.format("holdfast").option("url", url).option("consumer", "etl")
    made = failing(stream.option("maxMessagesPerTrigger", 300).load("source").select("value"))
    writing = made.writeStream.format("holdfast").option("url", nats)
    writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writing.trigger(availableNow=True).start("copies").awaitTermination()
    assert asyncio.run(waiting(nats, "copies")) == Counter(range(count))


def test_nats_is_not_read(spark: SparkSession, nats: str) -> None:
    with pytest.raises(PySparkException, match="NATS takes writes and `process`"):
        spark.read.format("holdfast").option("url", nats).load("loaded").count()
    rows = spark.createDataFrame([("a", "k")], "value string, dedup_key string")
    with pytest.raises(PySparkException, match="buckets and NATS cannot look keys up"):
        rows.write.format("holdfast").option("url", nats).mode("append").save("keyed")


@pytest.mark.parametrize("store", ["nats", "slatedb"])
def test_process(spark: SparkSession, nats: str, tmp_path: Path, store: str) -> None:
    pytest.importorskip(store)
    url, tasks = (nats, 2) if store == "nats" else (f"slatedb+file://{tmp_path}/slate", None)

    async def fill() -> None:
        async with holdfast.connect(url) as broker:
            queue = await broker.queue("orders", max_attempts=2, lease=5.0, retry=holdfast.Fixed(0.1))
            await queue.enqueue_many([{"n": number} for number in range(210)])

    async def ends() -> Counter[str]:
        async with holdfast.connect(url) as broker:
            queue = await broker.queue("orders", create=False)
            found = [*await queue.archive.list(limit=1000), *await queue.dead.list(limit=1000)]
            assert len({one.id for one in found}) == len(found) == 210
            return Counter(one.status for one in found)

    asyncio.run(fill())
    done = jobs.process(spark, "orders", f"{HANDLERS}:ship", url=url, tasks=tasks)  # 5, 105 and 205 fail
    assert (done.completed, done.dead, done.left, done.tasks) == (207, 3, 0, tasks or 1)
    assert asyncio.run(ends()) == {"completed": 207, "dead": 3}
    if tasks is None:
        with pytest.raises(holdfast.ConfigError, match="one process at a time owns this store"):
            jobs.process(spark, "orders", f"{HANDLERS}:ship", url=url, tasks=2)
