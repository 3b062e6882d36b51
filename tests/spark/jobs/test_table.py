"""A queue as a table of its fields: each message one row, what cannot be read a dead letter, whatever was killed."""

from __future__ import annotations

import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import holdfast
from holdfast.spark import jobs
from holdfast.spark.jobs.lake import drop_before
from holdfast.spark.lake import parquet
from holdfast.spark.lake.adding import TypedTable
from holdfast.spark.lake.delta import opened
from holdfast.spark.lake.lake import alone
from holdfast.spark.lake.place import open_place
from tests.spark.jobs.table_types import Later, Order
from tests.spark.lake.engines import counts_of
from tests.spark.test_streaming import stats, without_keys

pytestmark = pytest.mark.timeout(240)
FORMATS = pytest.mark.parametrize("format", ["delta", "parquet"])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


def send(url: str, count: int, *, first: int = 0, bad: tuple[Any, ...] = ()) -> None:
    with holdfast.sync.connect(url) as broker:
        queue = broker.queue("orders")
        queue.enqueue_many([*({"n": number, "to": f"c{number}"} for number in range(first, first + count)), *bad])


def rows_of(table: str | Path) -> list[dict[str, Any]]:
    """By number, as readers of the format find them."""
    import polars

    place = open_place(table)
    if opened(place) is not None:
        found = polars.read_delta(place.shown, storage_options=place.storage)
    else:
        found = polars.concat([polars.read_parquet(path) for path in sorted(Path(table).glob("**/part-*.parquet"))])
    return found.sort("n").to_dicts()


@FORMATS
def test_rows_dead_letters_and_a_second_run(spark: SparkSession, url: str, tmp_path: Path, format: Any) -> None:
    send(url, 200, bad=("nonsense", {"n": "seven"}, {"n": 2**70}))
    table = str(tmp_path / "table")
    done = jobs.table(spark, "orders", table, Order, url=url, format=format, batch=90)
    assert (done.rows, done.dead, done.known, done.batches) == (200, 3, 0, 3)
    found = rows_of(table)
    assert [(row["n"], row["to"]) for row in found] == [(number, f"c{number}") for number in range(200)]
    assert list(found[0]) == ["n", "to", "message_id", "message_enqueued_at"]
    assert len({row["message_id"] for row in found}) == 200
    with holdfast.sync.connect(url) as broker:
        reasons = sorted(letter.error or "" for letter in broker.queue("orders").dead.list())
    assert [reason.partition(":")[0] for reason in reasons] == ["it cannot be read as Order"] * 3
    assert "Expected `int`, got `str` - at `$.n`" in "".join(reasons)
    left = stats(url, "orders")
    assert (left.completed, left.dead, left.pending, left.processing) == (200, 3, 0, 0)

    again = jobs.table(spark, "orders", table, "tests.spark.jobs.table_types:Order", url=url, format=format)
    assert (again.rows, again.batches, again.version) == (0, 0, done.version)
    send(url, 50, first=200)
    later = jobs.table(spark, "orders", table, Order, url=url, format=format)
    assert (later.rows, later.known) == (50, 0)
    assert [row["n"] for row in rows_of(table)] == list(range(250))


class _Crash(Exception):
    pass


class _Crashing(TypedTable):
    """Dies before or after a commit, as a driver that is killed there."""

    moment = "after"

    def _commit(self, state: Any, change: Any, folder: str) -> None:
        if self.moment == "after":
            super()._commit(state, change, folder)
        raise _Crash


@FORMATS
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_dies_around_its_commit(
    spark: SparkSession, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Any, moment: str
) -> None:
    module = sys.modules["holdfast.spark.jobs.table"]  # its name is the function's
    send(url, 40, bad=("nonsense",))
    table = str(tmp_path / "table")
    with monkeypatch.context() as patched:
        patched.setattr(_Crashing, "moment", moment)
        patched.setattr(module, "TypedTable", _Crashing)
        with pytest.raises(_Crash):
            jobs.table(spark, "orders", table, Order, url=url, format=format, batch=30)
    assert stats(url, "orders").completed == 0
    done = jobs.table(spark, "orders", table, Order, url=url, format=format, batch=30)
    assert (done.rows, done.known) == ((40, 0) if moment == "before" else (10, 30))
    assert [row["n"] for row in rows_of(table)] == list(range(40))
    left = stats(url, "orders")
    assert (left.completed, left.dead, left.processing) == (40, 1, 0)


def test_a_queue_that_is_made_again_loses_nothing(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """Its batches have the numbers of those before it: numbers alone would say that they are rows already."""
    table = str(tmp_path / "table")
    send(url, 10)
    jobs.table(spark, "orders", table, Order, url=url, batch=5)
    with holdfast.sync.connect(url) as broker:
        broker.delete_queue("orders", force=True)
    send(url, 10, first=10)
    assert jobs.table(spark, "orders", table, Order, url=url, batch=5).rows == 10
    assert [row["n"] for row in rows_of(table)] == list(range(20))


def test_two_writers_at_once_and_a_compaction(spark: SparkSession, url: str, tmp_path: Path) -> None:
    table, done = str(tmp_path / "table"), []
    send(url, 300)
    jobs.table(spark, "orders", table, Order, url=url, by_day=True, batch=150, consumer="one")
    send(url, 300, first=300)

    def write(name: str) -> None:
        done.append(jobs.table(spark, "orders", table, Order, url=url, by_day=True, batch=50, consumer=name))

    threads = [threading.Thread(target=write, args=(name,)) for name in ("one", "two")]
    threads.append(threading.Thread(target=lambda: jobs.compact(spark, table)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert sum(each.rows for each in done) == 300
    assert [row["n"] for row in rows_of(table)] == list(range(600))
    past = spark.read.format("holdfast").option("table", table).option("versionAsOf", "0").schema("n long")
    assert past.load().count() == 150
    reader = spark.read.format("holdfast").option("table", table)
    assert jobs.compact(spark, table, keep_days=3, keep_versions=0).dropped == 0
    found = reader.load()
    assert (found.count(), found.select("n").distinct().count(), found.where("message_day is null").count()) == (
        600,
        600,
        0,
    )
    assert counts_of(open_place(table), "message_id")["duckdb"] == (600, 600)
    tomorrow = (datetime.now(UTC).date() + timedelta(days=1)).isoformat()
    place = alone(open_place(table))
    assert place is not None
    assert drop_before(place, tomorrow) == 600
    assert rows_of(table) == []


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_a_table_in_a_bucket(spark: SparkSession, url: str, s3: Any, format: Any) -> None:
    import pyarrow.parquet as pq

    place = without_keys(s3.url)
    send(url, 20, bad=("nonsense",))
    done = jobs.table(spark, "orders", place, Order, url=url, format=format, batch=8)
    assert (done.rows, done.dead) == (20, 1)
    at = open_place(place)
    numbers = [
        n
        for name in at.names("")
        if parquet.is_data(name)
        for n in pq.read_table(at.source(name), partitioning=None)["n"].to_pylist()
    ]
    assert sorted(numbers) == list(range(20))
    if format == "delta":
        assert [row["n"] for row in rows_of(place)] == list(range(20))


def test_bad_input_is_a_sentence_before_anything_is_claimed(spark: SparkSession, url: str, tmp_path: Path) -> None:
    send(url, 3)
    table = str(tmp_path / "table")
    for given, more, sentence in (
        (int, {}, "int has no fields"),
        ("tests.spark.jobs.table_types:Ordre", {}, "did you mean 'Order'"),
        (Order, {"format": "orc"}, "unknown format"),
        (Order, {"keep": ["header"]}, "did you mean 'headers'"),
        (Order, {"batch": 0}, "maxMessagesPerTrigger"),
        (Order, {"seconds": -1}, "seconds"),
    ):
        with pytest.raises(holdfast.ConfigError, match=sentence):
            jobs.table(spark, "orders", table, given, url=url, **more)
    with pytest.raises(holdfast.QueueNotFound, match="did you mean 'orders'"):
        jobs.table(spark, "order", table, Order, url=url)
    assert stats(url, "orders").pending == 3
    assert not Path(table).exists()
    jobs.table(spark, "orders", table, Order, url=url)
    with pytest.raises(holdfast.ConfigError, match="its column 'n' is long, not string"):
        jobs.table(spark, "orders", table, Later, url=url)
    with pytest.raises(holdfast.ConfigError, match="is a Delta table"):
        jobs.table(spark, "orders", table, Order, url=url, format="parquet")
    with pytest.raises(holdfast.ConfigError, match="not divided by day"):
        jobs.compact(spark, table, keep_days=2)
    with pytest.raises(PySparkException, match="there is no Delta table at"):
        spark.read.format("holdfast").option("table", str(tmp_path / "none")).load().count()
