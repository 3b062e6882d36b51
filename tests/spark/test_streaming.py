"""Stream source and sink through `format("holdfast")`: direct calls, then a session."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import time
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import holdfast
from holdfast.errors import CodecError, ConfigError, Fenced, InvalidPriority, MessageTooLarge, StoreError
from holdfast.spark import HoldfastSource, sinking
from holdfast.spark.link import link
from holdfast.spark.options import writing
from holdfast.spark.sinking import RAW
from holdfast.stores.records import JSON

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def url(request, tmp_path):
    """A folder, or what `everywhere` says."""
    kind = getattr(request, "param", "file")
    if kind == "file":
        return f"file://{tmp_path}/store"
    return without_keys(request.getfixturevalue(kind).url)


# The suite in tests/stores/batches runs on every store; these show that Spark's processes find each of them.
everywhere = pytest.mark.parametrize("url", ["file", "postgres", "s3"], indirect=True)


def without_keys(url):
    """As Spark takes it: the keys are in the environment."""
    parts = urlsplit(url)
    query = [(name, value) for name, value in parse_qsl(parts.query) if not name.endswith(("_key", "_key_id"))]
    return urlunsplit(parts._replace(query=urlencode(query)))


def fill(url, count, name="emails", **terms):
    with holdfast.sync.connect(url) as broker:
        broker.queue(name).enqueue_many([{"n": n} for n in range(count)], **terms)


def stats(url, name="emails"):
    with holdfast.sync.connect(url) as broker:
        return broker.queue(name).stats()


def source(at, **options):
    given = {"url": at, "path": "emails", "consumer": "etl", **options}
    return pickle.loads(
        pickle.dumps(HoldfastSource(CaseInsensitiveDict({k: v for k, v in given.items() if v is not None})))
    )


def streamed(at, **options):
    made = source(at, **options)
    return made.streamReader(made.schema())


def passed_on(offset):
    """As it comes back from Spark."""
    return json.loads(json.dumps(offset))


def numbers(url, name="emails", view="ready"):
    with holdfast.sync.connect(url) as broker:
        letters = broker.queue(name).archive if view == "archive" else None
        assert letters is not None
        return sorted(record.value["n"] for record in letters.list(100_000))


def rows_of(reader, start, end):
    other = streamed(reader._options.place.url)  # executors have a reader of their own
    found = []
    for partition in reader.partitions(start, end):
        for batch in other.read(pickle.loads(pickle.dumps(partition))):
            found += [json.loads(value)["n"] for value in batch.column("value").to_pylist()]
    return sorted(found)


@everywhere
def test_direct_calls(url):
    fill(url, 300)
    reader = streamed(url, maxMessagesPerTrigger="200")
    assert reader.getDefaultReadLimit() == ReadMaxRows(200)
    start = passed_on(reader.initialOffset())
    assert start == {"c": "etl", "g": 1, "n": 0, "seq": 0, "v": 1}
    end = passed_on(reader.latestOffset(start, ReadMaxRows(200)))
    assert end == {"c": "etl", "g": 1, "n": 200, "seq": 1, "v": 1}
    assert list(end) == sorted(end), "Spark compares text"
    assert rows_of(reader, start, end) == list(range(200))
    assert rows_of(reader, start, end) == list(range(200)), "a retried task reads the same"
    assert reader.reportLatestOffset()["n"] == 300
    last = passed_on(reader.latestOffset(end, ReadMaxRows(200)))
    assert rows_of(reader, end, last) == list(range(200, 300))
    assert reader.latestOffset(last, ReadMaxRows(200)) == last
    assert reader.partitions(last, last) == []
    assert (stats(url).completed, stats(url).processing) == (300, 0)
    reader.commit(last)
    reader.stop()


def test_a_restart_replays_the_open_batch(url):
    fill(url, 100)
    reader = streamed(url)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(40))
    reader.stop()
    again = streamed(url)
    assert rows_of(again, start, end) == list(range(40)), "from the offset log, before anything is claimed"
    again.stop()
    lost = streamed(url)
    assert lost.latestOffset(start, ReadMaxRows(10)) == end, "claimed, and never written to the offset log"
    fresh = lost.initialOffset()
    assert fresh["seq"] == 0
    lost.stop()


def test_available_now_ends(url):
    fill(url, 50)
    reader = streamed(url)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(30))
    rows_of(reader, start, first)
    fill(url, 50)
    second = reader.latestOffset(first, ReadMaxRows(30))
    assert second["n"] == 50
    rows_of(reader, first, second)
    assert reader.latestOffset(second, ReadMaxRows(30)) == second
    assert stats(url).pending == 50
    reader.stop()


@pytest.mark.parametrize("planned", [False, True], ids=["claimed", "planned"])
def test_available_now_after_a_crash_reads_everything_that_was_there(url, planned):
    """What the crash left is read as well as all that was ready, not instead of a part of it."""
    fill(url, 50)
    reader = streamed(url)
    start = reader.initialOffset()
    lost = reader.latestOffset(start, ReadMaxRows(20))
    if planned:
        rows_of(reader, start, lost)
    reader.stop()
    again = streamed(url)
    again.prepareForTriggerAvailableNow()
    found, place = [], start
    while (end := again.latestOffset(place, ReadMaxRows(20))) != place:
        found += rows_of(again, place, end)
        place = end
    assert sorted(found) == list(range(50))
    assert (stats(url).pending, stats(url).completed) == (0, 50)
    again.stop()


def test_available_now_ends_with_everything_archived(url, tmp_path):
    """The process of the source ends with the run: what it settled last must be in files by then."""
    fill(url, 30)
    reader = streamed(url)
    reader.prepareForTriggerAvailableNow()
    place = reader.initialOffset()
    while (end := reader.latestOffset(place, ReadMaxRows(20))) != place:
        rows_of(reader, place, end)
        place = end
    assert archived_rows(tmp_path) == 30
    reader.stop()


def test_a_stream_that_is_stopped_archives_what_it_settled(url, tmp_path):
    fill(url, 30)
    reader = streamed(url)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(30))
    rows_of(reader, start, end)
    reader.commit(end)
    reader.stop()
    assert archived_rows(tmp_path) == 30


def archived_rows(folder):
    return sum(pq.read_metadata(path).num_rows for path in (folder / "store").glob("*/archive/*/*.parquet"))


def test_a_new_checkpoint_for_a_consumer_that_settled_is_refused(url):
    fill(url, 30)
    reader = streamed(url)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(10))
    reader.stop()
    adopting = streamed(url)
    assert adopting.initialOffset() == start, "nothing is settled: a new checkpoint begins with the same batch"
    rows_of(adopting, start, first)
    adopting.commit(first)
    adopting.stop()
    lost = streamed(url)
    with pytest.raises(StoreError, match=r"'etl' of queue 'emails' stands at batch 1 \(10.*file sink.*newCheckpoint"):
        lost.initialOffset()
    lost.stop()
    knowing = streamed(url, newCheckpoint="true")
    assert knowing.initialOffset() == first
    knowing.stop()


def test_no_error_sends_people_to_a_new_checkpoint_without_naming_the_trap(url):
    fill(url, 30)
    reader = streamed(url, maxBatchAttempts="1")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(10))
    told = []

    def tell(call):
        with pytest.raises(StoreError) as raised:
            call()
        told.append(str(raised.value))

    tell(lambda: reader.latestOffset(first, ReadMaxRows(10)))
    reader.partitions(start, first)
    reader.stop()
    reader = streamed(url, maxBatchAttempts="1")
    tell(lambda: reader.partitions(start, first))
    reader.latestOffset(first, ReadMaxRows(10))
    reader.stop()
    reader = streamed(url, maxBatchAttempts="1")
    tell(reader.initialOffset)
    tell(lambda: reader.latestOffset(start, ReadMaxRows(10)))
    tell(lambda: reader.partitions(start, first))
    tell(lambda: reader.latestOffset({**first, "c": "other"}, ReadMaxRows(10)))
    reader.stop()
    at = link(url)
    at.run(at.batches.release("emails", "etl"))
    reader = streamed(url)
    tell(lambda: reader.latestOffset(first, ReadMaxRows(10)))
    reader.stop()
    for text in told:
        assert "new checkpoint" not in text.lower() or "file sink" in text, text


def test_read_all_available(url):
    fill(url, 50)
    reader = streamed(url, maxMessagesPerTrigger="1000")
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["n"] == 50
    reader.stop()


def test_nothing_there_gives_the_start_after_a_while(url):
    fill(url, 0)
    reader = streamed(url)
    start = reader.initialOffset()
    begun = time.monotonic()
    assert reader.latestOffset(start, ReadMaxRows(30)) == start
    assert 0.5 < time.monotonic() - begun < 10
    reader.stop()


def test_two_queries_cannot_share_a_consumer(url, monkeypatch):
    from holdfast.spark import holder, owning

    fill(url, 10)
    first = streamed(url)
    first.initialOffset()
    monkeypatch.setattr(holder, "myself", lambda: "elsewhere:1:x-1")
    monkeypatch.setattr(owning, "_OWNER_GRACE_S", -29.5)
    with pytest.raises(Fenced, match="'etl' is in use by another query"):
        streamed(url).initialOffset()
    first.stop()
    second = streamed(url)
    start = second.initialOffset()
    with pytest.raises(Fenced, match="taken over"):
        first.latestOffset(start, ReadMaxRows(10))
    second.stop()


def test_an_owner_that_is_gone_is_replaced_at_once(url):
    from holdfast.spark import holder

    fill(url, 10)
    told = subprocess.run(
        [sys.executable, "-c", "from holdfast.spark import holder; print(holder.myself())"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert holder.is_gone(told)
    assert not holder.is_gone(holder.myself())
    assert not holder.is_gone("another-host:1:00000000-1")
    at = link(url)
    at.run(at.batches.own("emails", "etl", holder=told, lease=3600.0))
    reader = streamed(url)
    begun = time.monotonic()
    reader.initialOffset()
    assert time.monotonic() - begun < 10
    reader.stop()


def test_the_owner_stays_alive(url):
    fill(url, 1)
    reader = streamed(url, ownerLease="0.9")
    reader.initialOffset()
    at = link(url)
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        (info,) = at.run(at.batches.consumers("emails"))
        assert info.holder
        time.sleep(0.1)
    reader.stop()
    (info,) = at.run(at.batches.consumers("emails"))
    assert info.holder == ""


TERMINATED = """
import sys
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadMaxRows
from holdfast.spark import HoldfastSource
source = HoldfastSource(CaseInsensitiveDict({"url": sys.argv[1], "path": "emails", "consumer": "etl"}))
reader = source.streamReader(source.schema())
start = reader.initialOffset()
print("owned", flush=True)
while True:
    reader.latestOffset(start, ReadMaxRows(10))
"""


def test_a_source_that_is_terminated_gives_its_consumer_up(url):
    fill(url, 0)
    process = subprocess.Popen([sys.executable, "-c", TERMINATED, url], stdout=subprocess.PIPE)
    with process:
        assert process.stdout.readline() == b"owned\n"
        process.terminate()
        assert process.wait(20) == -signal.SIGTERM
    at = link(url)
    (info,) = at.run(at.batches.consumers("emails"))
    assert info.holder == ""


def test_a_read_that_ends_early_leaves_nothing_open(url):
    fill(url, 100)
    at = link(url)
    closed = []

    async def numbers():
        try:
            for number in range(100):
                yield number
        finally:
            closed.append(True)

    items = at.each(numbers())
    assert [next(items), next(items)] == [0, 1]
    items.close()
    assert closed == [True]
    assert list(at.each(numbers())) == list(range(100))


def test_a_batch_that_never_succeeds_is_told(url):
    fill(url, 10)
    reader = streamed(url, maxBatchAttempts="2")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(10))
    for _ in range(2):
        reader.partitions(start, end)
        reader.stop()
        reader = streamed(url, maxBatchAttempts="2")
    with pytest.raises(StoreError, match=r"batch 1 of consumer 'etl'.*holdfast pipeline release emails etl"):
        reader.partitions(start, end)
    reader.stop()


def test_data_loss_is_told_or_passed_over(url):
    fill(url, 100)
    reader = streamed(url)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(10))
    rows_of(reader, start, first)
    second = reader.latestOffset(first, ReadMaxRows(10))
    for call in (lambda: reader.latestOffset(start, ReadMaxRows(10)), lambda: reader.partitions(start, first)):
        with pytest.raises(StoreError, match="failOnDataLoss"):
            call()
    reader.stop()
    lenient = streamed(url, failOnDataLoss="false")
    assert lenient.partitions(start, first) == []
    assert lenient.latestOffset(start, ReadMaxRows(10)) == second
    lenient.stop()
    at = link(url)
    assert at.run(at.batches.release("emails", "etl")) == 10
    old = streamed(url)
    with pytest.raises(StoreError, match="were released"):
        old.latestOffset(second, ReadMaxRows(10))
    old.stop()
    lenient = streamed(url, failOnDataLoss="false")
    third = lenient.latestOffset(second, ReadMaxRows(10))
    assert (third["g"], third["seq"]) == (2, 3)
    assert len(rows_of(lenient, second, third)) == 10
    lenient.stop()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"consumer": None}, "needs option"),
        ({"consumer": "a/b"}, "bad name of a consumer"),
        ({"path": None}, "which queue"),
        ({"maxMessagesPerTrigger": "0"}, "at least 1"),
        ({"maxMessagesPerTrigger": "1", "maxOffsetsPerTrigger": "1"}, "another name"),
        ({"maxMessagePerTrigger": "1"}, "did you mean 'maxMessagesPerTrigger'"),
        ({"at": "postgresql://me:hunter2@localhost/db"}, "PGPASSWORD"),
    ],
    ids=str,
)
def test_bad_options(url, options, sentence):
    fill(url, 1)
    with pytest.raises(ConfigError, match=sentence):
        source(**{"at": url, **options}).streamReader(HoldfastSource.streamReader)


def test_a_checkpoint_of_another_consumer(url):
    fill(url, 1)
    reader = streamed(url)
    with pytest.raises(StoreError, match="belongs to 'other'"):
        reader.latestOffset({"c": "other", "g": 1, "n": 0, "seq": 0, "v": 1}, ReadMaxRows(1))
    reader.stop()


# Through Spark.


def live(spark, url, **options):
    read = spark.readStream.format("holdfast").option("url", url).option("consumer", "etl")
    for name, value in options.items():
        read = read.option(name, value)
    return read.load("emails")


def run(frame, url, checkpoint, name="copies"):
    writing = frame.writeStream.format("holdfast").option("url", url).option("checkpointLocation", str(checkpoint))
    query = writing.trigger(availableNow=True).start(name)
    assert query.awaitTermination(120)
    assert query.exception() is None
    return query


@everywhere
def test_from_queue_to_queue(spark, url, tmp_path):
    fill(url, 2500, headers={"a": "b"}, priority=7)
    query = run(live(spark, url, maxMessagesPerTrigger=1000, minPartitions=2), url, tmp_path / "cp")
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [1000, 1000, 500]
    assert json.loads(query.recentProgress[0].sources[0].endOffset)["n"] == 1000
    assert stats(url, "copies").pending == 2500
    assert (stats(url).completed, stats(url).processing) == (2500, 0)
    with holdfast.sync.connect(url) as broker:
        delivery = broker.queue("copies").dequeue()
        assert (delivery.headers, delivery.priority) == ({"a": "b"}, 7)
    run(live(spark, url), url, tmp_path / "cp")
    assert stats(url, "copies").pending == 2499, "nothing is added twice"


def test_a_file_sink_that_skips_a_batch_completes_none_of_its_messages(spark, url, tmp_path):
    """With a new checkpoint the batches count from 0 again, and the sink has seen those numbers."""

    def copy(checkpoint, **options):
        writing = live(spark, url, **options).select("id", "value").writeStream.format("parquet")
        writing = writing.option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / checkpoint))
        query = writing.trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    fill(url, 10)
    copy("first")
    fill(url, 10)
    with pytest.raises(Exception, match=r"the checkpoint is new, and consumer 'etl'.*file sink"):
        copy("second")
    with pytest.raises(Exception, match=r"batch 2 of consumer 'etl' \(10 messages\).*never read"):
        copy("third", newCheckpoint="true")
    assert (stats(url).completed, stats(url).processing) == (10, 10)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 10


def test_a_failing_task_is_tried_again(spark, url, tmp_path):
    """Every first attempt fails after it staged rows: what it left is never seen."""
    fill(url, 500)

    def shaky(batches):
        from pyspark import TaskContext

        for batch in batches:
            yield batch
            if TaskContext.get().attemptNumber() == 0:
                raise RuntimeError("on purpose")

    frame = live(spark, url, minPartitions=2).mapInArrow(shaky, live(spark, url).schema)
    run(frame, url, tmp_path / "cp")
    assert stats(url, "copies").pending == 500


@everywhere
def test_batch_write(spark, url):
    frame = spark.range(2500).selectExpr("cast(id as string) as value", "cast(id % 3 as int) as priority")
    writing = frame.write.format("holdfast").option("url", url).mode("append")
    writing.save("numbers")
    writing.option("idempotencyKey", "monday").save("numbers")
    writing.option("idempotencyKey", "monday").save("numbers")
    assert stats(url, "numbers").pending == 5000
    with holdfast.sync.connect(url) as broker:
        queue = broker.queue("numbers")
        taken = [*queue.dequeue_many(1000), *queue.dequeue_many(1000)]
        assert {each.priority for each in taken} == {2, 1}
        assert taken[0].value.isdigit(), "text is text for workers"
    again = spark.read.format("holdfast").option("url", url).load("numbers")
    again.write.format("holdfast").option("url", url).mode("append").save("others")
    assert stats(url, "others").pending == 3000


def test_columns_of_a_write(spark, url):
    rows = [
        (b"1", "soon", {"k": "v"}, "application/json", "x"),
        (b"2", "soon", None, "text/plain", "x"),
        (b"3", "later", None, None, None),
    ]
    frame = spark.createDataFrame(
        rows, "value binary, queue string, headers map<string,string>, content_type string, dedup_key string"
    )
    frame = frame.selectExpr("*", "if(queue = 'later', timestamp'2100-01-01', null) as deliver_at")
    frame.write.format("holdfast").option("url", url).mode("append").save()
    assert stats(url, "soon").pending == 1, "the second has the key of the first"
    assert (stats(url, "later").pending, stats(url, "later").delayed) == (0, 1)
    frame.write.format("holdfast").option("url", url).mode("append").save("all")
    assert (stats(url, "all").pending, stats(url, "all").delayed) == (1, 1)
    frame.write.format("holdfast").option("url", url).mode("append").save("all")
    assert (stats(url, "all").pending, stats(url, "all").delayed) == (1, 2)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("id as number", "needs a column `value`"),
        ("cast(id as string) as value, id as prioritee", "did you mean 'priority'"),
        ("id as value", "the column 'value' is bigint"),
        ("cast(id as string) as value, map(1, 2) as headers", "the column 'headers' is map<int,int>"),
        ("cast(id as string) as value, current_date() as deliver_at", "the column 'deliver_at' is date"),
    ],
)
def test_bad_columns_are_told_at_planning_time(spark, url, columns, sentence):
    frame = spark.range(3).selectExpr(*columns.split(", ", 1))
    with pytest.raises(Exception, match=sentence):
        frame.write.format("holdfast").option("url", url).mode("append").save("numbers")


@pytest.mark.parametrize(
    ("columns", "error", "sentence"),
    [
        ({"priority": [0, 256]}, InvalidPriority, "0 to 255, not 256"),
        ({"priority": [0, -1]}, InvalidPriority, "0 to 255, not -1"),
        ({"value": [b"x", None]}, CodecError, "null in 1 rows"),
        ({"value": [b"x", b"x" * 101]}, MessageTooLarge, "the limit of the queue is 100"),
        ({"headers": [None, [("k", "v" * 65_536)]]}, MessageTooLarge, "65537 bytes, the limit is 65536"),
        ({"headers": [[("k", "")] * 60_000, [("é", "v" * 30_000)] * 3]}, MessageTooLarge, "90006 bytes"),
        ({"headers": [None, [("k", None)]]}, ConfigError, "values that are null"),
        ({"headers": [None, [("k", "a\0b")]]}, ConfigError, "NUL"),
        ({"dedup_key": [None, "é" * 513]}, MessageTooLarge, "1026 bytes, the limit is 1024"),
        ({"dedup_key": [None, ""]}, ConfigError, "empty"),
        ({"content_type": [None, "x" * 1025]}, ConfigError, "1025 bytes, the limit is 1024"),
        ({"value": ["1", "{"], "content_type": ["application/json"] * 2}, CodecError, "a value is no JSON"),
        ({"value": ["x", None]}, CodecError, "null in 1 rows"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_bad_rows_are_told_before_anything_is_written(columns, error, sentence):
    batch = _batch({"value": [b"x", b"y"], **columns})
    with pytest.raises(error, match=sentence):
        sinking.normal(batch, most=100)


def _batch(columns):
    types = {"headers": pa.map_(pa.string(), pa.string())}
    return pa.RecordBatch.from_pydict({name: pa.array(values, types.get(name)) for name, values in columns.items()})


@pytest.mark.parametrize(
    ("columns", "content_type", "payloads", "kinds"),
    [
        ({"value": ["é", '{"a": 1}']}, None, ['"é"'.encode(), rb'"{\"a\": 1}"'], [JSON, JSON]),
        ({"value": ['{"a": 1.10}', "[2]"]}, JSON, [b'{"a": 1.10}', b"[2]"], [JSON, JSON]),
        ({"value": ["a,b", "c"]}, "text/csv", [b"a,b", b"c"], ["text/csv"] * 2),
        ({"value": ["a", "1"], "content_type": [None, JSON]}, None, [b'"a"', b"1"], [JSON, JSON]),
        ({"value": ["a", "1"], "content_type": ["text/csv", None]}, JSON, [b"a", b"1"], ["text/csv", JSON]),
        ({"value": [b"1", b"2"]}, JSON, [b"1", b"2"], [JSON, JSON]),
        ({"value": [b"1", b"2"], "content_type": [None, JSON]}, None, [b"1", b"2"], [RAW, JSON]),
    ],
)
def test_values_of_text_and_their_content_types(columns, content_type, payloads, kinds):
    made = sinking.normal(_batch(columns), most=100, content_type=content_type)
    assert made.column("value").to_pylist() == payloads
    assert made.column("content_type").to_pylist() == kinds


@pytest.mark.parametrize(
    ("given", "sentence"), [("", "without NUL"), ("x" * 1025, "1025 bytes, the limit is 1024")], ids=["empty", "long"]
)
def test_a_bad_content_type_is_told_at_planning_time(given, sentence):
    for stream in (False, True):
        with pytest.raises(ConfigError, match=sentence):
            writing({"path": "emails", "contentType": given}, stream=stream)


def test_rows_of_json_nested_too_deep_are_told_before_anything_is_written():
    deep = [b"[" * 5000 + b"]" * 5000, b"[]"]
    with pytest.raises(MessageTooLarge, match="levels"):
        sinking.normal(_batch({"value": deep, "content_type": ["application/json", None]}), most=100_000)
    assert sinking.normal(_batch({"value": deep}), most=100_000).num_rows == 2  # bytes are not looked into


def test_rows_at_their_limits_pass_also_from_the_middle_of_a_batch():
    full = [("k", "v" * 65_535)]
    columns = {
        "value": [b"x"] * 4,
        "headers": [full, full, None, full],
        "dedup_key": ["k" * 1024, None, "k", "é" * 512],
    }
    assert sinking.normal(_batch(columns), most=100).num_rows == 4
    assert sinking.normal(_batch(columns)[1:3], most=100).column("headers").to_pylist() == [full, None]


def test_bad_rows_add_nothing(spark, url):
    fill(url, 1, "numbers", priority=1)
    with holdfast.sync.connect(url) as broker:
        broker.configure_queue("numbers", max_messages=50)
    rows = spark.range(100).selectExpr("'x' as value")
    with pytest.raises(Exception, match="room for 49"):
        rows.write.format("holdfast").option("url", url).mode("append").save("numbers")
    assert stats(url, "numbers").total == 1


def test_overwrite_is_refused(spark, url):
    with pytest.raises(Exception, match="never overwritten"):
        spark.range(3).selectExpr("'x' as value").write.format("holdfast").option("url", url).mode("overwrite").save(
            "a"
        )


def test_a_missing_consumer_is_told(spark, url):
    fill(url, 1)
    frame = spark.readStream.format("holdfast").option("url", url).load("emails")
    with pytest.raises(Exception, match="needs option"):
        frame.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(60)
