"""Sessions of Spark Connect. What needs a server runs in tools/spark_suites.py, and with it all tests of the jobs."""

from __future__ import annotations

import os

import pytest

import holdfast
from holdfast.errors import ConfigError
from holdfast.spark import cluster, settle
from holdfast.spark.jobs import session
from holdfast.spark.jobs.progress import Progress, tasks

REMOTE = os.environ.get("SPARK_REMOTE")
connected = pytest.mark.skipif(not REMOTE, reason="tools/spark_suites.py starts a server")


def test_a_server_has_a_master_of_its_own():
    with pytest.raises(ConfigError, match="give one of the two"):
        session("local[2]", remote="sc://127.0.0.1:15002")


@pytest.mark.skipif(bool(REMOTE), reason="PySpark has no way back from Spark Connect in one process")
def test_a_master_that_is_named_goes_before_the_environment(spark, monkeypatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    assert session("local[2]", {"spark.log.level": "OFF"}) is spark


@connected
def test_the_session_is_one_of_spark_connect(spark):
    assert cluster.is_remote(spark)
    assert type(spark).__module__ == "pyspark.sql.connect.session"
    assert cluster.cores(spark) == 2


@connected
def test_progress_is_told_while_a_query_runs(spark):
    told: list[Progress] = []
    with tasks(spark, "counting", told.append):
        assert spark.range(2000).repartition(8).distinct().count() == 2000
    assert {each.doing for each in told} == {"counting"}
    assert max(each.done for each in told) <= max(each.total or 0 for each in told)
    seen = len(told)
    spark.range(100).repartition(4).count()
    assert len(told) == seen, "not after the job"


@connected
def test_an_error_of_an_executor_is_said_in_plain_words(spark):
    def broken(batches):
        raise holdfast.CodecError("the third row is bad")
        yield

    with pytest.raises(holdfast.CodecError, match="the third row is bad"), tasks(spark, "x", lambda told: None):
        spark.range(3).mapInArrow(broken, "id long").collect()


@connected
def test_a_stream_settles_rows_in_foreach_batch(spark, tmp_path):
    """The function runs in a process of the server."""
    url = f"file://{tmp_path}/store"
    with holdfast.sync.connect(url) as broker:
        broker.queue("emails").enqueue_many([{"n": n} for n in range(10)])

    def keep(rows, number):
        settle(rows.where("cast(value as string) like '%3%'"), "dead", "three is bad", url=url)

    read = spark.readStream.format("holdfast").option("url", url).option("consumer", "etl")
    writing = read.option("withReceipts", "true").load("emails").writeStream.foreachBatch(keep)
    query = writing.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    with holdfast.sync.connect(url) as broker:
        stats = broker.queue("emails").stats()
    assert (stats.dead, stats.completed, stats.processing) == (1, 9, 0)
