"""Batch reads through `format("holdfast")`."""

from __future__ import annotations

import pickle
import sys

import pytest
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSourceReader,
    EqualTo,
    GreaterThan,
    In,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import StringType, StructType

import holdfast
from holdfast.errors import ConfigError, QueueNotFound
from holdfast.holders import process_name
from holdfast.spark import HoldfastSource, pushdown
from holdfast.spark.link import link
from holdfast.stores.batches import Filter

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A queue with messages in every state."""
    url = f"file://{tmp_path_factory.mktemp('queue')}"
    with holdfast.sync.connect(url) as broker:
        emails = broker.queue("emails", lease=3600)
        emails.enqueue_many([{"n": n} for n in range(500)], priority=3, headers={"a": "b"})
        emails.enqueue({"n": "later"}, delay=3600)
        emails.dequeue_many(10)  # which this process holds
        taken = emails.dequeue_many(25)
        emails.complete_many(taken[:10], results=[{"r": n} for n in range(10)])
        for delivery in taken[10:15]:
            delivery.kill("bad")
        for delivery in taken[15:]:
            delivery.fail("again", retry_in=3600)
        broker.queue("other").enqueue({"n": 1})
    return url


COUNTS = {"ready": 465, "delayed": 1, "processing": 10, "retry": 10, "dead": 5, "archive": 10}


def source(at, **options):
    """As Spark makes it, pickled as Spark does."""
    return pickle.loads(pickle.dumps(HoldfastSource(CaseInsensitiveDict({"url": at, "path": "emails", **options}))))


def rows_of(reader):
    reader = pickle.loads(pickle.dumps(reader))
    found = []
    for partition in reader.partitions():
        for batch in reader.read(pickle.loads(pickle.dumps(partition))):
            found += batch.to_pylist()
    return found


@pytest.mark.parametrize("view", COUNTS)
def test_direct_calls(url, view):
    made = source(url, view=view)
    assert len(rows_of(made.reader(made.schema()))) == COUNTS[view]


def test_a_schema_of_ones_own_prunes(url):
    made = source(url)
    rows = rows_of(made.reader(StructType().add("id", StringType())))
    assert len(rows) == COUNTS["ready"]
    assert set(rows[0]) == {"id"}


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"view": "archive", "status": "completed"}, 10),
        ({"view": "archive", "status": "failed"}, 0),
        ({"view": "archive", "finishedSince": "2020-01-01"}, 10),
        ({"view": "archive", "finishedUntil": "2020-01-01T00:00:00+00:00"}, 0),
        ({"minPriority": "4"}, 0),
        ({"minPriority": "3", "maxPriority": "3"}, 465),
        ({"enqueuedSince": "2020-01-01", "enqueuedUntil": "2020-01-02"}, 0),
        ({"ids": "nonsense,more"}, 0),
        ({"partitionBytes": "100", "minPartitions": "3"}, 465),
    ],
    ids=str,
)
def test_predicates_as_options(url, options, count):
    made = source(url, **options)
    assert len(rows_of(made.reader(made.schema()))) == count


def test_all_queues(url):
    made = source(url, path="")
    assert {row["queue"] for row in rows_of(made.reader(made.schema()))} == {"emails", "other"}
    stats = source(url, path="", view="stats")
    found = {row["queue"]: row for row in rows_of(stats.reader(stats.schema()))}
    assert found["emails"]["dead"] == 5
    assert found["other"]["pending"] == 1


def test_some_queues(url):
    made = source(url, path="other, emails,other")
    assert len(rows_of(made.reader(made.schema()))) == 466
    with pytest.raises(QueueNotFound, match="there is no queue 'nowhere'"):
        source(url, path="other,nowhere").schema()


def test_processing_says_who_holds_a_message(url):
    made = source(url, view="processing")
    assert {row["worker"] for row in rows_of(made.reader(made.schema()))} == {process_name()}


def test_consumers_are_a_view(url, tmp_path):
    made = source(url, view="consumers")
    assert rows_of(made.reader(made.schema())) == []
    fresh = f"file://{tmp_path}/store"
    with holdfast.sync.connect(fresh) as broker:
        broker.queue("emails").enqueue_many([1, 2, 3])
    at = link(fresh)
    owner = at.run(at.batches.own("emails", "etl", holder="me", lease=60.0))
    at.run(at.batches.claim_batch(owner, after=0, limit=2))
    for path in ("emails", ""):
        made = source(fresh, view="consumers", path=path)
        (row,) = rows_of(made.reader(made.schema()))
        assert row.pop("at").year >= 2026
        assert 0 < row.pop("lease") <= 60
        told = {"owner": "me", "batch": 1, "claimed": 2, "tries": 0, "settled": 0, "lag": 3}
        assert row == {"queue": "emails", "consumer": "etl", **told}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"view": "redy"}, "did you mean 'ready'"),
        ({"veiw": "ready"}, "did you mean 'view'"),
        ({"minPriority": "high"}, "minPriority: a whole number, not 'high'"),
        ({"minPartitions": "0"}, "minPartitions must be at least 1"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"finishedSince": "2020-01-01"}, "only the views dead and archive"),
        ({"view": "archive", "finishedSince": "yesterday"}, "an instant such as"),
        ({"view": "archive", "status": "complete"}, "did you mean 'completed'"),
        ({"path": "../etc"}, "bad queue name"),
        ({"queue": "twice"}, "named twice"),
        ({"path": "emails,"}, "bad queue name ''"),
        ({"url": "memory://x"}, "file://, s3:// and postgresql://"),
        ({"url": "nats://127.0.0.1:1"}, "file://, s3:// and postgresql://"),
        ({"url": "slatedb+file:///tmp/nothing"}, "file://, s3:// and postgresql://"),
        ({"url": "postgresql://me:hunter2@localhost/db"}, "PGPASSWORD"),
        ({"url": "postgresql://me@localhost/db?password=hunter2"}, "PGPASSWORD"),
    ],
    ids=str,
)
def test_bad_options_are_told_before_anything_is_opened(url, options, sentence):
    with pytest.raises(ConfigError, match=sentence) as caught:
        source(url, **options).schema()
    assert "hunter2" not in str(caught.value)


def test_what_is_not_there(url, tmp_path):
    with pytest.raises(QueueNotFound, match="nowhere"):
        rows_of(source(url, path="nowhere").reader(source(url).schema()))
    with pytest.raises(ConfigError, match="no column 'subject'; it has id, queue, value"):
        source(url).reader(StructType().add("subject", StringType()))
    with pytest.raises(ConfigError, match="is binary, not string; cast it after reading"):
        source(url).reader(StructType().add("value", StringType()))


def test_filters_we_take_and_filters_we_hand_back():
    columns = ("id", "queue", "priority", "enqueued_at", "attempt")
    assert pushdown.ours(EqualTo(("priority",), 3), columns) == Filter("priority", "=", 3)
    assert pushdown.ours(In(("id",), ("a", "b")), columns) == Filter("id", "in", ["a", "b"])
    handed_back = [
        EqualTo(("attempt",), 1),
        EqualTo(("status",), "dead"),
        EqualTo(("priority",), None),
        EqualTo(("priority",), "3"),
        EqualTo(("headers", "a"), "b"),
        Not(EqualTo(("priority",), 3)),
        StringStartsWith(("id",), "0"),
        GreaterThan(("enqueued_at",), "2020-01-01"),
    ]
    assert [pushdown.ours(each, columns) for each in handed_back] == [None] * len(handed_back)


def test_a_reader_pushes_only_when_spark_asks(url, monkeypatch):
    made = source(url)
    monkeypatch.delitem(sys.modules, pushdown.ASKING, raising=False)
    quiet = made.reader(made.schema())
    assert type(quiet).pushFilters is DataSourceReader.pushFilters
    monkeypatch.setitem(sys.modules, pushdown.ASKING, object())
    asked = made.reader(made.schema())
    ours, theirs = EqualTo(("priority",), 4), EqualTo(("attempt",), 0)
    assert list(asked.pushFilters([ours, theirs])) == [theirs]
    assert rows_of(asked) == []


# Through Spark.


@pytest.fixture(params=["false", "true"], ids=["pushdown off", "pushdown on"])
def filters(spark, request):
    spark.conf.set("spark.sql.python.filterPushdown.enabled", request.param)
    yield request.param
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_views_through_spark(spark, url, filters):
    read = spark.read.format("holdfast").option("url", url)
    assert read.option("view", "archive").load("emails").count() == 10
    ready = read.option("view", "ready").load("emails")
    first = ready.orderBy("id").first()
    assert (first.queue, first.headers, first.priority, first.attempt) == ("emails", {"a": "b"}, 3, 0)
    assert first.enqueued_at.year >= 2026
    some = ready.filter("priority = 3 and attempt = 0 and enqueued_at > timestamp'2020-01-01' and id like '0%'")
    assert some.count() == 465
    assert ready.filter("priority > 3").count() == 0
    assert ready.filter(ready.id.isin([first.id])).count() == 1
    by_queue = read.option("view", "ready").load().filter("queue = 'other'").groupBy("queue").count().collect()
    assert [tuple(row) for row in by_queue] == [("other", 1)]


def test_spark_pushes_down_what_we_take(spark, url, filters):
    ready = spark.read.format("holdfast").option("url", url).load("emails").filter("priority > 3 and attempt = 0")
    plan = ready._jdf.queryExecution().executedPlan().toString()
    kept = [line for line in plan.splitlines() if "Filter" in line and "RuntimeFilters" not in line]
    assert "attempt" in kept[0]
    assert ("priority#" in kept[0].replace("isnotnull(priority#", "")) == (filters == "false")


def test_errors_come_at_planning_time(spark, url):
    read = spark.read.format("holdfast")
    with pytest.raises(Exception, match="Unavailable"):
        read.option("url", "postgresql://127.0.0.1:1/nothing?connect_timeout=2").load("emails")
    with pytest.raises(Exception, match="no option to read called"):
        read.option("url", url).option("shape", "round").load("emails")
    with pytest.raises(Exception, match="there is no queue 'nowhere'"):
        spark.read.format("holdfast").option("url", url).load("nowhere")
