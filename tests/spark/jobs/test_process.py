"""process: the handlers that workers run, on executors; every message ends once, as configured."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.spark import jobs

HANDLERS = "tests.spark.jobs.fleet_handlers"


async def fill(url: str, name: str, values: list[Any], **options: Any) -> None:
    async with holdfast.connect(url) as broker:
        queue = await broker.queue(name, **options)
        await queue.enqueue_many(values)


def ends(url: str, name: str) -> list[holdfast.Record[Any]]:
    async def read() -> list[holdfast.Record[Any]]:
        async with holdfast.connect(url) as broker:
            queue = await broker.queue(name, create=False)
            return [*await queue.archive.list(limit=10_000), *await queue.dead.list(limit=10_000)]

    return asyncio.run(read())


def test_every_message_ends_as_configured_though_some_kill_their_process(spark: SparkSession, tmp_path: Path) -> None:
    url, count, poison = (tmp_path / "store").as_uri(), 1000, 2
    orders: list[Any] = [{"n": number} for number in range(count)]
    orders += [{"n": -1, "note": "poison"}] * poison
    asyncio.run(fill(url, "orders", orders, max_attempts=3, lease=1.5, retry=holdfast.Fixed(0.1)))
    seen: list[jobs.Progress] = []
    done = jobs.process(spark, "orders", f"{HANDLERS}:ship", url=url, tell=seen.append)
    failing = sum(number % 100 == 5 for number in range(count))
    assert (done.completed, done.dead, done.left) == (count - failing, failing + poison, 0)
    assert done.fleet["restarts"] >= 1
    records = ends(url, "orders")
    assert len({one.id for one in records}) == len(records) == count + poison
    for one in records:
        number = one.value["n"]
        expected = 3 if number == -1 or number % 100 == 5 else 2 if number % 50 == 6 else 1
        # who shares a process with poison may lose an attempt to its death, never its end
        assert one.attempts >= expected, one
        assert one.status == ("dead" if number == -1 or number % 100 == 5 else "completed"), one
    assert Counter(one.attempts for one in records)[1] > count * 0.8
    assert seen
    assert seen[-1].total is not None
    again = jobs.process(spark, "orders", f"{HANDLERS}:app", url=url, tasks=1)
    assert (again.completed, again.dead, again.left) == (0, 0, 0)


def test_a_function_of_a_notebook_with_a_time_limit(spark: SparkSession, tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    asyncio.run(fill(url, "jobs", [{"n": number} for number in range(20)], max_attempts=2, retry=holdfast.Fixed(0.0)))
    offset = 100

    def add(job: dict[str, int]) -> int:  # travels with what it closes over
        return job["n"] + offset

    add.__module__ = "__main__"
    done = jobs.process(spark, "jobs", add, url=url, tasks=1, concurrency=4)
    assert done.completed == 20
    assert {one.result for one in ends(url, "jobs")} == set(range(100, 120))

    asyncio.run(fill(url, "jobs", [{"n": 0}]))
    late = jobs.process(spark, "jobs", f"{HANDLERS}:slow", url=url, tasks=1, timeout=0.2)
    assert (late.completed, late.dead, late.fleet["retried"]) == (0, 1, 1)
    [dead] = [one for one in ends(url, "jobs") if one.status == "dead"]
    assert "longer than 0.2 s" in dead.error


def test_what_is_wrong_is_said_at_once(spark: SparkSession, tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    asyncio.run(fill(url, "orders", []))
    for handler, sentence in (
        (f"{HANDLERS}:shop", "did you mean 'ship'"),
        ("nowhere:ship", "there is no module 'nowhere'"),
        ("ship", "write MODULE:HANDLER"),
        (f"{HANDLERS}:not_a_handler", "a handler is a function"),
    ):
        with pytest.raises(holdfast.ConfigError, match=sentence):
            jobs.process(spark, "orders", handler, url=url)
    with pytest.raises(holdfast.QueueNotFound, match="did you mean 'orders'"):
        jobs.process(spark, "order", f"{HANDLERS}:ship", url=url)
    with pytest.raises(holdfast.ConfigError, match="concurency"):
        jobs.process(spark, "orders", f"{HANDLERS}:ship", url=url, concurency=3)
    with pytest.raises(holdfast.ConfigError, match="secret"):
        jobs.process(spark, "orders", f"{HANDLERS}:ship", url="postgresql://me:pw@127.0.0.1/x")
    with pytest.raises(holdfast.ConfigError, match="one process"):
        jobs.process(spark, "orders", f"{HANDLERS}:ship", url="memory://")


def test_a_time_limit_leaves_the_rest_and_a_paused_queue_is_no_reason_to_wait(
    spark: SparkSession, tmp_path: Path
) -> None:
    url = (tmp_path / "store").as_uri()
    asyncio.run(fill(url, "orders", [{"n": 1}] * 5))

    async def pause() -> None:
        async with holdfast.connect(url) as broker:
            await (await broker.queue("orders")).pause()

    asyncio.run(pause())
    assert jobs.process(spark, "orders", f"{HANDLERS}:ship", url=url, tasks=1).left == 5
    assert jobs.process(spark, "orders", f"{HANDLERS}:ship", url=url, tasks=1, forever=True, seconds=1.0).left == 5
