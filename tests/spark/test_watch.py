"""What streams report, for Prometheus and in the log."""

from __future__ import annotations

import json
import logging
import time
import urllib.request
from types import SimpleNamespace

import pytest

import holdfast
from holdfast.spark import Watch
from holdfast.spark.several import together
from holdfast.spark.streaming import offset
from holdfast.spark.watch import standings

pytestmark = pytest.mark.timeout(180)


def until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the deadline is over"
        time.sleep(0.05)


def source(end, newest, rows=5):
    texts = [None if each is None else json.dumps(each) for each in (end, newest)]
    return SimpleNamespace(
        endOffset=texts[0], latestOffset=texts[1], numInputRows=rows, inputRowsPerSecond=2.0, processedRowsPerSecond=4.0
    )


def test_sources_of_ours_are_known_by_their_offsets():
    one = source(offset("etl", 1, 10, 2), offset("etl", 1, 17, 2))
    parts = {"a": offset("all", 1, 3, 1), "b": offset("all", 1, 4, 1)}
    several = source(together("all", parts), None)
    others = [source({"logOffset": 3}, {"logOffset": 4}), source(None, None)]
    found = list(standings([one, *others, several]))
    assert [(each.consumer, each.rows, each.lag) for each in found] == [("etl", 5, 7), ("all", 5, None)]
    assert (found[0].arriving, found[0].done) == (2.0, 4.0)


def test_the_end_of_a_query_ends_its_numbers_and_says_why(caplog):
    caplog.set_level(logging.INFO, "holdfast.spark")
    watch = Watch(port=0)
    try:
        progress = SimpleNamespace(
            batchDuration=500, sources=[source(offset("etl", 1, 10, 2), offset("etl", 1, 17, 2))], runId="r"
        )
        watch.onQueryProgress(SimpleNamespace(progress=progress))
        told = metrics_of(watch)
        assert told['holdfast_stream_lag_messages{consumer="etl"}'] == 7
        assert told['holdfast_stream_batch_seconds{consumer="etl"}'] == 0.5
        assert told['holdfast_stream_processed_per_second{consumer="etl"}'] == 4
        assert told['holdfast_stream_arriving_per_second{consumer="etl"}'] == 2
        watch.onQueryTerminated(SimpleNamespace(runId="r", exception="it broke\n  at Frame"))
        told = metrics_of(watch)
        assert told['holdfast_stream_failures_total{consumer="etl"}'] == 1
        assert 'holdfast_stream_lag_messages{consumer="etl"}' not in told
    finally:
        watch.close()
    assert "stream etl: 5 messages in 0.5 s (4/s), 7 behind" in caplog.text
    assert "stream etl has failed: it broke" in caplog.text


def metrics_of(watch):
    with urllib.request.urlopen(f"http://127.0.0.1:{watch.metrics.port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.split() for line in lines if not line.startswith("#"))}


def test_lag_and_rates_of_a_stream(spark, tmp_path, caplog):
    url = f"file://{tmp_path}/store"
    with holdfast.sync.connect(url) as broker:
        broker.queue("emails").enqueue_many(list(range(30)))
    read = spark.readStream.format("holdfast").option("url", url).option("consumer", "etl")
    rows = read.option("maxMessagesPerTrigger", 20).load("emails")
    watch = Watch(port=0)
    spark.streams.addListener(watch)
    caplog.set_level(logging.INFO, "holdfast.spark")
    try:
        query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp"))
        running = query.start()
        done = 'holdfast_stream_messages_total{consumer="etl"}'
        until(lambda: metrics_of(watch).get(done) == 30, 100)
        assert metrics_of(watch)['holdfast_stream_lag_messages{consumer="etl"}'] in (0, 10)  # a count of 5 s ago
        assert metrics_of(watch)['holdfast_stream_batch_seconds{consumer="etl"}'] > 0
        running.stop()
        until(lambda: 'holdfast_stream_lag_messages{consumer="etl"}' not in metrics_of(watch), 60)
        assert metrics_of(watch)[done] == 30
    finally:
        spark.streams.removeListener(watch)
        watch.close()
    assert "stream etl: 20 messages in" in caplog.text
    assert "stream etl has ended" in caplog.text
