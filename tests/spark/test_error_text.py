"""Errors of the data source: our sentence first, about four lines; what is no error of ours keeps its frames."""

from __future__ import annotations

import os

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

import holdfast
from holdfast.spark import HoldfastSource
from holdfast.spark.error_text import HIDE, plain

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def url(tmp_path):
    url = f"file://{tmp_path}/store"
    with holdfast.sync.connect(url) as broker:
        broker.queue("emails").enqueue_many([{"n": n} for n in range(10)])
        broker.queue("full", max_messages=1)
    return url


def batch(spark, url, **options):
    return spark.read.format("holdfast").option("url", url).options(**options)


def written(spark, url, columns, queue):
    frame = spark.range(3).selectExpr(*columns)
    return frame.write.format("holdfast").option("url", url).mode("append").save(queue)


FAULTS = {
    "option": lambda spark, url: batch(spark, url, vieww="dead").load("emails"),
    "queue": lambda spark, url: batch(spark, url).load("emailz"),
    "column": lambda spark, url: written(spark, url, ["id as number"], "copies"),
    "row": lambda spark, url: written(spark, url, ["'x' as value", "300 as priority"], "copies"),
    "commit": lambda spark, url: written(spark, url, ["'x' as value"], "full"),
}
SENTENCES = {
    "option": "did you mean 'view'",
    "queue": "there is no queue 'emailz' to read",
    "column": "a message needs a column `value`",
    "row": "a priority is a whole number from 0 to 255, not 300",
    "commit": "room for 1",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_four_lines(spark, url, fault):
    with pytest.raises(Exception, match=SENTENCES[fault]) as raised:
        FAULTS[fault](spark, url)
    text = str(raised.value)
    assert len(text.splitlines()) <= 4, text
    assert SENTENCES[fault] in "\n".join(text.splitlines()[:2]), text
    assert "Traceback" not in text


def test_a_stream_says_it_in_its_first_line(spark, url, tmp_path):
    frame = spark.readStream.format("holdfast").option("url", url).load("emails")
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp")).start()
    with pytest.raises(Exception, match="a stream needs option") as raised:
        query.awaitTermination(60)
    text = str(raised.value)
    assert "a stream needs option" in text.splitlines()[0]
    assert "Traceback" not in text
    assert "File " not in text


def test_only_errors_of_ours_and_only_in_processes_of_spark(monkeypatch):
    monkeypatch.delenv(HIDE, raising=False)
    with pytest.raises(holdfast.ConfigError):
        HoldfastSource(CaseInsensitiveDict({"vieww": "x"})).schema()
    assert HIDE not in os.environ
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "x")

    @plain
    def broken():
        raise ZeroDivisionError

    @plain
    def each():
        yield 1
        raise holdfast.StoreError("no")

    with pytest.raises(ZeroDivisionError):
        broken()
    assert HIDE not in os.environ
    items = each()
    assert next(items) == 1
    with pytest.raises(holdfast.StoreError):
        next(items)
    assert os.environ[HIDE] == "1"
    monkeypatch.delenv(HIDE)
