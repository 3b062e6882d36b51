"""The lake: every finished message once, commits whole or not at all, small files merged, old days gone."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.spark import jobs
from holdfast.spark.lake import Lake, LakeConflict, Snapshot, reading, tables
from holdfast.spark.lake.manifest import Change, File
from holdfast.spark.lake.tables import cause
from tests.spark.jobs.stories import dead_of, story


def ids_in(lake: Lake, table: str = tables.MESSAGES) -> list[str]:
    return [id for path in lake.files(table) for id in pq.read_table(path, columns=["id"])["id"].to_pylist()]


def test_run_twice_adds_nothing_and_later_runs_only_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    url, place = story(tmp_path), tmp_path / "lake"
    first = jobs.lake(spark, "emails", place, url=url)
    assert (first.added, first.errors, first.rows, first.version) == (300, dead_of(300), 300, 1)
    again = jobs.lake(spark, "emails", place, url=url)
    assert (again.added, again.rows, again.version) == (0, 300, 1)
    story(tmp_path, count=100, first=300)
    story(tmp_path, "notes", 40)
    third = jobs.lake(spark, [], place, url=url)  # all queues
    assert third.by_queue == {"emails": 100, "notes": 40}
    assert jobs.lake(spark, [], place, url=url, full=True).added == 0

    lake = Lake(place)
    found = ids_in(lake)
    assert len(found) == len(set(found)) == 440
    rows = reading.frame(spark, lake, queues=["emails"]).orderBy("enqueued_at").collect()
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


def test_compaction_changes_no_row_and_retention_keeps_days_away(spark: SparkSession, tmp_path: Path) -> None:
    url, place = story(tmp_path, count=60), tmp_path / "lake"
    jobs.lake(spark, "emails", place, url=url)
    story(tmp_path, count=30, first=60)
    jobs.lake(spark, "emails", place, url=url)
    lake = Lake(place)
    before, seen = sorted(ids_in(lake)), lake.snapshot()
    small = len(seen.of(tables.MESSAGES))
    assert small > 1
    assert jobs.compact(spark, place, dry_run=True).merged == small
    assert lake.snapshot() == seen
    done = jobs.compact(spark, place)
    assert (done.merged, done.into, done.swept) == (small, 1, 0)
    assert sorted(ids_in(lake)) == before
    # a reader that began before still sees what it saw, until its version is old
    assert reading.frame(spark, lake, snapshot=seen).count() == 90
    swept = jobs.compact(spark, place, keep_versions=0)
    assert (swept.merged, swept.versions, swept.swept) == (0, 2, small)
    assert sorted(ids_in(lake)) == before
    assert jobs.lake(spark, "emails", place, url=url).added == 0

    lake.commit(
        lake.snapshot(),
        Change("expire", remove=frozenset(one.path for one in lake.snapshot().files), floor="2999-01-01"),
    )
    assert jobs.lake(spark, "emails", place, url=url, full=True).rows == 0  # what was dropped does not come back


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
    assert len(ids_in(Lake(place))) == 80


def file(name: str, day: str = "2026-01-01") -> File:
    return File("messages", name, "emails", day, 1, 1, 0.0, 0.0)


def test_a_commit_is_seen_whole_and_a_late_one_is_judged(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    empty = lake.snapshot()
    assert empty == Snapshot()
    first = lake.commit(empty, Change("lake", add=(file("a"), file("b"))))
    with pytest.raises(LakeConflict, match="run it again"):  # planned before the other added
        lake.commit(empty, Change("lake", add=(file("c"),)))
    merged = lake.commit(first, Change("compact", add=(file("ab"),), remove=frozenset(["a", "b"])))
    late = lake.commit(first, Change("lake", add=(file("d"),)))  # a compaction meanwhile does not disturb
    assert ([one.path for one in late.files], late.version) == (["ab", "d"], merged.version + 1)
    with pytest.raises(LakeConflict):  # its files are no longer there
        lake.commit(first, Change("compact", add=(file("ab2"),), remove=frozenset(["a", "b"])))
    assert lake.snapshot() == late


def test_a_file_nobody_committed_is_not_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    url, place = story(tmp_path, count=10), tmp_path / "lake"
    jobs.lake(spark, "emails", place, url=url)
    lake = Lake(place)
    path = lake.files()[0]
    Path(path).with_name("half.parquet").write_bytes(Path(path).read_bytes()[:100])
    assert reading.frame(spark, lake).count() == 10


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


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("ValueError: order 7 has no street", "ValueError: order 12 has no street", True),
        ("KeyError: 'ada'", "KeyError: 'grace'", True),
        ("KeyError: 'ada'", "ValueError: 'ada'", False),
        ("X: at 0x7f00aa", "X: at 0x1200bb", True),
        ('E: a\n  File "/x/a.py", line 3, in f', 'E: a\n  File "/y/a.py", line 9, in f', True),
        ('E: a\n  File "/x/a.py", line 3, in f', 'E: a\n  File "/x/a.py", line 3, in g', False),
    ],
)
def test_fingerprints(one: str, other: str, same: bool) -> None:
    assert (cause(one).fingerprint == cause(other).fingerprint) is same


def test_bad_input_is_said_at_once(spark: SparkSession, tmp_path: Path) -> None:
    url = story(tmp_path, count=2)
    with pytest.raises(holdfast.QueueNotFound, match="did you mean 'emails'"):
        jobs.lake(spark, "email", tmp_path / "lake", url=url)
    with pytest.raises(holdfast.ConfigError, match="a folder that driver and executors share"):
        jobs.lake(spark, "emails", "s3a://bucket/lake", url=url)
    with pytest.raises(holdfast.ConfigError, match="keep_days"):
        jobs.lake(spark, "emails", tmp_path / "lake", url=url, keep_days=0)
    with pytest.raises(holdfast.ConfigError, match="there is no lake"):
        jobs.compact(spark, tmp_path / "nothing")
