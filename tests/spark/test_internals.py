"""What we lean on in Spark without being promised it: a new version that changes any of this fails here, by name."""

from __future__ import annotations

import gc
import importlib.util
import inspect
from pathlib import Path

import pytest
from pyspark import daemon
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.datasource_internal import ReadLimitRegistry
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.worker import plan_data_source_read

import holdfast
from holdfast.spark import HoldfastSource, options, pushdown
from holdfast.spark.link import link
from holdfast.spark.streaming import StreamReader
from holdfast.spark.writing import BATCH_ID, QUERY_ID

pytestmark = pytest.mark.timeout(180)


def test_filters_are_planned_by_a_program_of_their_own():
    """By its name we know that Spark asks for them; and the other program refuses a reader that offers to."""
    assert importlib.util.find_spec(pushdown.ASKING) is not None
    told = inspect.getsource(plan_data_source_read)
    assert pushdown.ASKING.rpartition(".")[2] not in told
    assert "DATA_SOURCE_PUSHDOWN_DISABLED" in told


def test_the_planner_of_streams_hands_over_start_and_limit():
    assert "reader.latestOffset(start_offset_dict, limit_obj)" in inspect.getsource(runner)
    assert ReadLimitRegistry().get({"_type": "ReadMaxRows", "max_rows": 7}).max_rows == 7
    assert "timezone" in inspect.signature(to_arrow_schema).parameters


def test_a_task_takes_what_is_imported_out_of_the_collections_that_spark_makes_after_it(spark, tmp_path):
    """They took longer than many a task. Nobody asks the planner's or the user's own process for them."""
    assert "gc.collect()" in inspect.getsource(daemon)
    url = f"file://{tmp_path}"

    def frozen(_):
        before = gc.get_freeze_count()
        link(url)
        return before, gc.get_freeze_count()

    before, after = spark.sparkContext.parallelize([0], 1).map(frozen).collect()[0]
    assert after > max(before, 10_000)
    before, after = frozen(0)
    assert after <= before  # what the test run has frozen may end, and nothing is added


class WatchingSource(HoldfastSource):
    """Notes what Spark does around our calls: options `notes` (a file) and `checkpoint`."""

    @classmethod
    def name(cls):
        return "watching"

    def _parted(self):
        own = CaseInsensitiveDict(dict(self.options))
        return own, Path(own.pop("notes")), Path(own.pop("checkpoint"))

    def schema(self):
        return HoldfastSource(self._parted()[0]).schema()

    def streamReader(self, schema):
        own, notes, checkpoint = self._parted()
        return WatchingReader(options.streaming(own), schema, notes, checkpoint)


class WatchingReader(StreamReader):
    def __init__(self, options, wanted, notes, checkpoint):
        super().__init__(options, wanted)
        self.notes, self.checkpoint = notes, checkpoint

    def note(self, *words):
        with self.notes.open("a") as file:
            print(*words, file=file)

    def latestOffset(self, start, limit):
        committed = (self.checkpoint / "commits" / str(start["seq"] - 1)).exists()
        self.note("latest", start["seq"], committed)
        return super().latestOffset(start, limit)

    def partitions(self, start, end):
        logged = (self.checkpoint / "offsets" / str(end["seq"] - 1)).exists()
        self.note("partitions", end["seq"], logged)
        return super().partitions(start, end)


def test_the_logs_of_spark_are_ahead_of_us(spark, tmp_path):
    """We settle what `latestOffset` starts from: it must be in the commit log by then; a batch, in the offset log."""
    url = f"file://{tmp_path}/store"
    with holdfast.sync.connect(url) as broker:
        broker.queue("emails").enqueue_many(list(range(30)))
    spark.dataSource.register(WatchingSource)
    checkpoint, notes = tmp_path / "checkpoint", tmp_path / "notes"
    read = spark.readStream.format("watching").option("url", url).option("consumer", "etl").option("notes", str(notes))
    frame = read.option("checkpoint", str(checkpoint)).option("maxMessagesPerTrigger", 10).load("emails")

    def told(batches):
        import pyarrow as pa
        from pyspark import TaskContext

        for batch in batches:
            if batch.num_rows:
                names = [TaskContext.get().getLocalProperty(name) for name in (QUERY_ID, BATCH_ID)]
                yield pa.RecordBatch.from_pydict({"query": names[:1], "batch": names[1:]})

    shown = frame.mapInArrow(told, "query string, batch string").writeStream.format("memory").queryName("told")
    query = shown.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    lines = [line.split() for line in notes.read_text().splitlines()]
    assert [line[1:] for line in lines if line[0] == "partitions"] == [[str(n), "True"] for n in (1, 2, 3)]
    later = [line[1:] for line in lines if line[0] == "latest" and line[1] != "0"]
    assert {line[0] for line in later} == {"1", "2", "3"}, "also after the last batch: that is when it is settled"
    assert {line[1] for line in later} == {"True"}
    ids = {(row.query, row.batch) for row in spark.table("told").collect()}
    assert {batch for _, batch in ids} == {"0", "1", "2"}
    assert {name for name, _ in ids} == {query.id}
