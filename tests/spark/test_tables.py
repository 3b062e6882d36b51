"""`table_sink` under `foreachBatch`: each message one row, also when a checkpoint is lost; and from a batch read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest
from pyspark.sql import DataFrame, SparkSession

import holdfast
from holdfast.spark import jobs, table_sink
from holdfast.spark.tables import TableSink
from tests.spark.jobs.table_types import Order
from tests.spark.jobs.test_table import send
from tests.spark.test_streaming import stats

pytestmark = pytest.mark.timeout(240)


class _Stopped(Exception):
    pass


def run(spark: SparkSession, url: str, folder: Path, each: Callable[[DataFrame, int], None]) -> None:
    stream = spark.readStream.format("holdfast").option("url", url).option("consumer", "etl")
    stream = stream.option("withReceipts", "true").option("maxMessagesPerTrigger", "30").load("orders").writeStream
    query = stream.foreachBatch(each).trigger(availableNow=True).option("checkpointLocation", f"{folder}/checkpoint")
    assert query.start().awaitTermination(200)


def numbers(table: Path) -> list[int]:
    return sorted(polars.read_delta(str(table))["n"])


def test_a_stream_that_loses_its_checkpoint_after_a_commit(spark: SparkSession, tmp_path: Path) -> None:
    url, table = f"file://{tmp_path}/store", tmp_path / "table"
    send(url, 40, bad=("nonsense", {"n": None}))
    sink = table_sink(table, Order, url=url)

    def stop(rows: DataFrame, number: int) -> None:
        sink(rows, number)
        sink(rows, number)  # as a retried batch
        raise _Stopped

    with pytest.raises(Exception, match="_Stopped"):
        run(spark, url, tmp_path, stop)
    assert numbers(table) == list(range(30))
    shutil.rmtree(tmp_path / "checkpoint")
    run(spark, url, tmp_path, sink)
    assert numbers(table) == list(range(40))
    left = stats(url, "orders")
    assert (left.completed, left.dead, left.pending, left.processing) == (40, 2, 0, 0)
    with holdfast.sync.connect(url) as broker:
        errors = [letter.error or "" for letter in broker.queue("orders").dead.list()]
    assert all(error.startswith("it cannot be read as Order: ") for error in errors)
    # the archive has nothing that the table has not
    done = spark.read.format("holdfast").option("url", url).option("view", "archive").load("orders")
    assert sink.write(done, key="archive").rows == 0
    other = table_sink(tmp_path / "other", Order, url=url, format="parquet")
    assert (other.write(done, key="archive").rows, other.write(done, key="again").known) == (40, 40)
    # and the job goes on where the stream has left off
    send(url, 5, first=40)
    assert jobs.table(spark, "orders", table, Order, url=url).rows == 5
    assert numbers(table) == list(range(45))


def test_a_batch_with_a_message_that_cannot_be_read_fails(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    send(url, 3, bad=("nonsense",))
    ready: Any = spark.read.format("holdfast").option("url", url).load("orders")
    with pytest.raises(holdfast.CodecError, match=r"message [0-9a-f-]{36}: it cannot be read as Order"):
        table_sink(tmp_path / "table", Order, url=url).write(ready, key="k")
    assert not (tmp_path / "table" / "_delta_log").exists()


def test_bad_input_is_told(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([("i", b"{}", "application/json")], "id string, value binary, content_type string")
    sink = table_sink(tmp_path / "table", Order)
    with pytest.raises(holdfast.ConfigError, match="no column 'enqueued_at'"):
        sink.write(rows, key="k")
    plain = table_sink(tmp_path / "table", Order, keep=())
    assert isinstance(plain, TableSink)
    with pytest.raises(holdfast.ConfigError, match="withReceipts"):
        plain(rows, 0)
    with pytest.raises(holdfast.ConfigError, match="bad key"):
        plain.write(rows, key="")
    with pytest.raises(holdfast.ConfigError, match="has a secret in it"):
        table_sink(tmp_path / "table", Order, url="s3://bucket/x?secret_access_key=x")
