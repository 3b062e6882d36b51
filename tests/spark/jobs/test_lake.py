"""The lake: every finished message once, whatever runs at once; small files merged, old days gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import holdfast
from holdfast.spark import jobs
from holdfast.spark.lake import Lake, compacting, reading, tables
from tests.spark.jobs.stories import dead_of, story
from tests.spark.lake.engines import same


def ids_in(spark: SparkSession, lake: Lake) -> list[str]:
    return sorted(row.id for row in reading.frame(spark, lake, columns=["id"]).collect())


def test_run_twice_adds_nothing_and_later_runs_only_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    url, place = story(tmp_path), tmp_path / "lake"
    first = jobs.lake(spark, "emails", place, url=url)
    assert (first.added, first.errors, first.rows, first.version) == (300, dead_of(300), 300, 0)
    again = jobs.lake(spark, "emails", place, url=url)
    assert (again.added, again.rows, again.version) == (0, 300, 0)
    story(tmp_path, count=100, first=300)
    story(tmp_path, "notes", 40)
    third = jobs.lake(spark, [], place, url=url)  # all queues
    assert third.by_queue == {"emails": 100, "notes": 40}
    assert jobs.lake(spark, [], place, url=url, full=True).added == 0

    lake = Lake(place)
    found = ids_in(spark, lake)
    assert len(found) == len(set(found)) == 440
    assert same(lake) == (440, 440)
    rows = spark.read.format("holdfast").option("lake", str(place)).option("queue", "emails").load()
    rows = rows.orderBy("enqueued_at").collect()
    assert {row.status for row in rows} == {"completed", "dead"}
    sample = next(row for row in rows if row.status == "completed")
    assert (bytes(sample.value)[:5], sample.headers, sample.day) == (
        b'{"n":',
        {"of": "emails"},
        sample.finished_at.date(),
    )
    errors = reading.frame(spark, lake, tables.ERRORS, queues=["emails"]).collect()
    assert {(row.kind, row.reason) for row in errors} == {
        ("ValueError", "ValueError: order # has no street"), ("", "order '…' is a duplicate"),
    }  # fmt: skip
    assert len({row.fingerprint for row in errors}) == 2
    # time travel, and what cannot be read; Spark Connect asks nobody before something is done
    reader = spark.read.format("holdfast").option("lake", str(place))
    assert reader.option("versionAsOf", "0").load().count() == 300
    for option, value, sentence in (
        ("versionAsOf", "7", "has versions up to 1, not 7"),
        ("versionAsOf", "new", "a whole number"),
        ("view", "dead", "no option to read a lake called"),
    ):
        with pytest.raises(PySparkException, match=sentence):
            spark.read.format("holdfast").option("lake", str(place)).option(option, value).load().count()
    with pytest.raises(PySparkException, match="did you mean 'errors'"):
        reader.load("error").count()
    with pytest.raises(PySparkException, match="there is no lake at"):
        spark.read.format("holdfast").option("lake", str(tmp_path / "none")).load().count()


def test_a_lake_knows_what_was_tried_before(spark: SparkSession, tmp_path: Path) -> None:
    url, place = f"file://{tmp_path}/store", tmp_path / "lake"

    async def work() -> None:
        async with holdfast.connect(url) as broker:
            queue = await broker.queue("emails", retry=holdfast.Fixed(0), max_attempts=2)
            await queue.enqueue_many([1, 2], expires=3600.0)
            for text in ("first", "second"):
                for delivery in await queue.dequeue_many(2, wait=5):
                    await (delivery.complete() if (delivery.value, text) == (1, "second") else delivery.fail(text))

    asyncio.run(work())
    jobs.lake(spark, "emails", place, url=url)
    rows = spark.read.format("holdfast").option("lake", str(place)).load().orderBy("enqueued_at", "id").collect()
    assert [(row.status, row.attempts) for row in rows] == [("completed", 2), ("dead", 2)]
    for row in rows:
        assert [(each.error, each.worker) for each in row.history] == [("first", row.worker)]
        assert row.history[0].start < row.history[0].end <= row.claimed_at
        assert row.expires > row.finished_at


def test_compaction_changes_no_row_and_retention_keeps_days_away(spark: SparkSession, tmp_path: Path) -> None:
    url, place = story(tmp_path, count=60), tmp_path / "lake"
    jobs.lake(spark, "emails", place, url=url)
    story(tmp_path, count=30, first=60)
    jobs.lake(spark, "emails", place, url=url)
    lake = Lake(place)
    before, seen = ids_in(spark, lake), lake.state()
    small = len(seen.files)
    assert small > 1
    assert jobs.compact(spark, place, dry_run=True).merged == small
    assert lake.state().version == seen.version
    done = jobs.compact(spark, place)
    assert (done.merged, done.into, done.swept) == (small, 1, 0)
    assert ids_in(spark, lake) == before
    assert same(lake) == (90, 90)
    # a reader that began before still sees what it saw, until its files are swept
    assert reading.frame(spark, lake, version=seen.version).count() == 90
    swept = jobs.compact(spark, place, keep_versions=0)
    assert (swept.merged, swept.swept) == (0, small)
    assert ids_in(spark, lake) == before
    assert same(lake) == (90, 90)
    assert jobs.lake(spark, "emails", place, url=url).added == 0

    state = lake.state()
    change = compacting.expired(lake.messages, state, "2999-01-01")
    assert change is not None
    lake.messages.commit(state, change)
    assert jobs.lake(spark, "emails", place, url=url, full=True).rows == 0  # what was dropped does not come back
    assert same(lake) == (0, 0)


def test_two_jobs_at_once_add_each_message_once(spark: SparkSession, tmp_path: Path) -> None:
    url, place = story(tmp_path, count=80), tmp_path / "lake"
    added: list[int] = []
    both = [
        threading.Thread(target=lambda: added.append(jobs.lake(spark, "emails", place, url=url).added)) for _ in "ab"
    ]
    for one in both:
        one.start()
    for one in both:
        one.join(120)
    assert sorted(added) == [0, 80]
    assert same(Lake(place)) == (80, 80)


def test_compactions_and_a_lake_at_once(spark: SparkSession, tmp_path: Path) -> None:
    url, place = story(tmp_path, count=40), tmp_path / "lake"
    jobs.lake(spark, "emails", place, url=url)
    story(tmp_path, count=40, first=40)
    did: list[object] = []
    work: list[Callable[[], object]] = [lambda: jobs.lake(spark, "emails", place, url=url)]
    work += [lambda: jobs.compact(spark, place, keep_days=3)] * 2
    threads = [threading.Thread(target=lambda one=one: did.append(one())) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert len(did) == 3
    assert same(Lake(place)) == (80, 80)
    assert len(ids_in(spark, Lake(place))) == 80


def test_a_dead_letter_that_is_processed_later_is_there_with_both_ends(spark: SparkSession, tmp_path: Path) -> None:
    url, place = story(tmp_path, count=10), tmp_path / "lake"  # 7 and 8 die
    jobs.lake(spark, "emails", place, url=url)

    async def heal() -> None:
        async with holdfast.connect(url) as broker:
            queue = await broker.queue("emails")
            await broker.maintain()  # dead letters that still lie in the head become a queue of their own
            async with queue.dead.worker(lambda value: None), asyncio.timeout(20):
                while await queue.dead.count():
                    await asyncio.sleep(0.02)

    asyncio.run(heal())
    assert jobs.lake(spark, "emails", place, url=url).added == 2
    assert jobs.lake(spark, "emails", place, url=url).added == 0


def test_bad_input_is_said_at_once(spark: SparkSession, tmp_path: Path) -> None:
    url = story(tmp_path, count=2)
    with pytest.raises(holdfast.QueueNotFound, match="did you mean 'emails'"):
        jobs.lake(spark, "email", tmp_path / "lake", url=url)
    with pytest.raises(holdfast.ConfigError, match="cannot hold a lake"):
        jobs.lake(spark, "emails", "postgresql://host/db", url=url)
    with pytest.raises(holdfast.ConfigError, match="has a secret in it"):
        jobs.lake(spark, "emails", "s3://bucket/lake?secret_access_key=x", url=url)
    with pytest.raises(holdfast.ConfigError, match="keep_days"):
        jobs.lake(spark, "emails", tmp_path / "lake", url=url, keep_days=0)
    with pytest.raises(holdfast.ConfigError, match="there is no lake"):
        jobs.compact(spark, tmp_path / "nothing")
