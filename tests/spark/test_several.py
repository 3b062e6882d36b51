"""One stream of several queues."""

from __future__ import annotations

import json
import pickle

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadMaxRows

import holdfast
from holdfast.errors import StoreError
from holdfast.spark import HoldfastSource
from holdfast.spark.link import link

pytestmark = pytest.mark.timeout(180)
CONSUMER = "etl"


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"


def fill(url, **counts):
    with holdfast.sync.connect(url) as broker:
        for name, count in counts.items():
            broker.queue(name).enqueue_many([{"of": name, "n": n} for n in range(count)])


def streamed(url, queues="orders,emails", **options):
    made = HoldfastSource(CaseInsensitiveDict({"url": url, "path": queues, "consumer": CONSUMER, **options}))
    return pickle.loads(pickle.dumps(made.streamReader(made.schema())))


def passed_on(offset):
    """As it comes back from Spark."""
    return json.loads(json.dumps(offset))


def rows_of(url, reader, start, end):
    found = []
    for partition in reader.partitions(start, end):
        for batch in streamed(url).read(pickle.loads(pickle.dumps(partition))):
            for row in batch.to_pylist():
                assert json.loads(row["value"])["of"] == row["queue"]
                found.append((row["queue"], json.loads(row["value"])["n"]))
    return sorted(found)


def counts(url, of):
    with holdfast.sync.connect(url) as broker:
        return {name: getattr(broker.queue(name).stats(), of) for name in ("emails", "orders")}


def test_batches_of_all_queues_an_equal_share_each(url):
    fill(url, emails=30, orders=5)
    reader = streamed(url)
    start = passed_on(reader.initialOffset())
    assert start == {"c": CONSUMER, "n": 0, "q": {"emails": [1, 0, 0], "orders": [1, 0, 0]}, "v": 2}
    first = passed_on(reader.latestOffset(start, ReadMaxRows(20)))
    assert (first["n"], first["q"]) == (15, {"emails": [1, 10, 1], "orders": [1, 5, 1]})
    assert rows_of(url, reader, start, first) == [("emails", n) for n in range(10)] + [("orders", n) for n in range(5)]
    assert counts(url, "processing") == {"emails": 10, "orders": 5}
    second = passed_on(reader.latestOffset(first, ReadMaxRows(1000)))
    assert counts(url, "completed") == {"emails": 10, "orders": 5}
    assert second["q"] == {"emails": [1, 30, 2], "orders": [1, 5, 1]}
    assert rows_of(url, reader, first, second) == [("emails", n) for n in range(10, 30)]
    fill(url, orders=1)
    third = passed_on(reader.latestOffset(second, ReadMaxRows(1000)))
    assert third["q"] == {"emails": [1, 30, 2], "orders": [1, 6, 2]}, "found while others are waited for"
    rows_of(url, reader, second, third)
    assert reader.latestOffset(third, ReadMaxRows(1000)) == third
    assert json.dumps(reader.latestOffset(third, ReadMaxRows(1000))) == json.dumps(third)
    assert counts(url, "completed") == {"emails": 30, "orders": 6}
    assert reader.reportLatestOffset()["n"] == 36
    reader.stop()


def test_what_a_crash_left_of_some_queues_is_found_again(url):
    fill(url, emails=10, orders=10)
    reader = streamed(url)
    start = passed_on(reader.initialOffset())
    found = reader.latestOffset(start, ReadMaxRows(8))
    reader.stop()
    fill(url, emails=10, orders=10)
    again = streamed(url)
    assert again.latestOffset(start, ReadMaxRows(100)) == found
    assert rows_of(url, again, start, found) == [(name, n) for name in ("emails", "orders") for n in range(4)]
    again.stop()


def test_a_checkpoint_of_other_queues_is_refused(url):
    fill(url, emails=1, orders=1, bills=1)
    reader = streamed(url)
    start = passed_on(reader.initialOffset())
    reader.stop()
    with pytest.raises(StoreError, match="the checkpoint is of emails, orders, this query reads bills, emails"):
        streamed(url, "emails,bills").partitions(start, start)
    one = {"c": CONSUMER, "g": 1, "n": 0, "seq": 0, "v": 1}
    with pytest.raises(StoreError, match="the checkpoint is of one queue, this query reads emails, orders"):
        streamed(url).latestOffset(one, ReadMaxRows(1))
    single = streamed(url, "emails")
    with pytest.raises(StoreError, match="version 2"):
        single.latestOffset(start, ReadMaxRows(1))


def test_through_spark(spark, url, tmp_path):
    fill(url, emails=300, orders=120)
    read = spark.readStream.format("holdfast").option("url", url).option("consumer", CONSUMER)

    def run():
        writing = read.option("maxMessagesPerTrigger", 200).load("emails,orders").writeStream.format("holdfast")
        writing = writing.option("url", url).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writing.trigger(availableNow=True).start("copies")
        assert query.awaitTermination(120)

    run()
    assert counts(url, "completed") == {"emails": 300, "orders": 120}
    fill(url, orders=7)
    run()
    assert counts(url, "completed") == {"emails": 300, "orders": 127}
    at = link(url)
    assert at.run(at.store.stats("copies")).pending == 427
    assert [each.claimed for name in ("emails", "orders") for each in at.run(at.batches.consumers(name))] == [0, 0]
