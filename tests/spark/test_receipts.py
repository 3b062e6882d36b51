"""Rows of a stream that end by themselves: by the verbs of a queue, and on executors; the rest of the batch goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast
from holdfast.errors import ConfigError, LeaseLost
from holdfast.spark import receipts, settle
from holdfast.spark.link import link
from tests.spark.test_streaming import everywhere, fill, stats, streamed, without_keys

pytestmark = pytest.mark.timeout(180)
LIMIT = 20


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder, or what `everywhere` says."""
    kind = getattr(request, "param", "file")
    return f"file://{tmp_path}/store" if kind == "file" else without_keys(request.getfixturevalue(kind).url)


def first_batch(at: str, **options: str) -> tuple[Any, Any, list[dict[str, Any]]]:
    """A reader, the offset after its first batch, and the rows of that batch."""
    reader = streamed(at, withReceipts="true", **options)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    rows = [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]
    return reader, end, rows


@everywhere
@pytest.mark.parametrize("consumer", ["etl", "etl.orders-2"])  # a name with dots too
def test_every_verb_takes_the_receipt_of_a_row(url: str, consumer: str) -> None:
    fill(url, 12)
    _, end, rows = first_batch(url, consumer=consumer)
    assert len(rows) == 12
    with holdfast.sync.connect(url) as broker:
        queue = broker.queue("emails")
        queue.complete(rows[0]["receipt"], {"by": "hand"})
        queue.kill(rows[1]["receipt"], "no street")
        queue.fail(rows[2]["receipt"], "try again", retry_in=3600)
        queue.release(rows[3]["receipt"], 3600)
        with pytest.raises(LeaseLost):
            queue.kill(rows[0]["receipt"], "too late")
        assert queue.kill_many([rows[4]["receipt"], "nonsense"], "twice") == [True, False]
        found = queue.stats()
        assert (found.completed, found.dead, found.retry, found.delayed, found.processing) == (1, 2, 1, 1, 7)
    # a batch that is planned again has what is left of it
    again, _, left = first_batch(url, consumer=consumer)
    assert sorted(row["id"] for row in left) == sorted(row["id"] for row in rows[5:])
    assert again.latestOffset(end, again.getDefaultReadLimit()) == end  # settles the batch, and there is no other
    found = stats(url)
    assert (found.completed, found.dead, found.retry, found.delayed, found.processing) == (8, 2, 1, 1, 0)
    with holdfast.sync.connect(url) as broker:
        assert {letter.error for letter in broker.queue("emails").dead.list()} == {"no street", "twice"}


@everywhere
@pytest.mark.parametrize("outcome", ["completed", "failed", "dead", "released"])
def test_a_task_settles_and_may_run_twice(url: str, outcome: Any) -> None:
    fill(url, 10, max_attempts=1)
    rows = first_batch(url)[2]
    chosen = [(row["receipt"], row["queue"], f"row {number % 2}") for number, row in enumerate(rows[:6])]
    at = link(url)
    for _ in range(2):
        assert at.run(receipts.settled(at, outcome, chosen)) == 6
    found = stats(url)
    if outcome == "released":
        assert (found.pending, found.processing) == (6, 4)
    else:
        assert (found.completed, found.dead, found.processing) == (6, 0, 4) if outcome == "completed" else (0, 6, 4)
    if outcome in ("failed", "dead"):
        with holdfast.sync.connect(url) as broker:
            errors = [letter.error for letter in broker.queue("emails").dead.list()]
            assert sorted(set(errors)) == ["row 0", "row 1"]


def test_a_bad_row_does_not_hold_up_its_batch(spark: SparkSession, url: str, tmp_path: Path) -> None:
    with holdfast.sync.connect(url) as broker:
        queue = broker.queue("emails")
        queue.enqueue_many([{"n": number} for number in range(LIMIT)])
        queue.enqueue("not a number")
    counted: list[int] = []

    def keep(rows: Any, number: int) -> None:
        read = rows.withColumn("n", F.get_json_object(rows["value"].cast("string"), "$.n").cast("int"))
        counted.append(settle(read.where("n is null"), "dead", F.concat(F.lit("no number in "), "id"), url=url))
        read.where("n is not null").select("n").write.mode("append").json(f"{tmp_path}/out")

    stream = spark.readStream.format("holdfast").option("url", url).option("consumer", "etl")
    query = (
        stream.option("withReceipts", "true").load("emails").writeStream.foreachBatch(keep)
        .trigger(availableNow=True).option("checkpointLocation", f"{tmp_path}/checkpoint").start()
    )  # fmt: skip
    assert query.awaitTermination(150)
    assert sum(counted) == 1
    lines = [json.loads(line)["n"] for path in tmp_path.glob("out/*.json") for line in path.read_text().splitlines()]
    assert sorted(lines) == list(range(LIMIT))
    found = stats(url)
    assert (found.completed, found.dead, found.pending, found.processing) == (LIMIT, 1, 0, 0)
    with holdfast.sync.connect(url) as broker:
        [letter] = broker.queue("emails").dead.list()
        assert letter.error == f"no number in {letter.id}"


def test_bad_input_is_told(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("r", "emails")], "receipt string, queue string")
    for given, sentence in (
        ((rows, "deed", "x"), "did you mean 'dead'"),
        ((rows, "dead"), "dead needs a reason"),
        ((rows, "completed", "x"), "completed takes no reason"),
        ((rows.drop("receipt"), "dead", "x"), "withReceipts"),
        ((rows.drop("queue"), "dead", "x"), "no column 'queue'"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            settle(*given)  # type: ignore[arg-type]  # as wrong as can be
    with pytest.raises(ConfigError, match="has a secret"):
        settle(rows, "dead", "x", url="postgresql://me:secret@host/db")
    live = spark.readStream.format("rate").load().selectExpr("'r' as receipt", "'q' as queue")
    with pytest.raises(ConfigError, match="foreachBatch"):
        settle(live, "dead", "x")
