"""The sides of the comparison: each moves the same rows with the same session."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq

from holdfast import sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILL = 1000
_VALUE = "value binary"  # the columns that the Parquet files have


class Round(msgspec.Struct):
    """Rows a second of one round."""

    stream: float  # values of a queue, streamed to nowhere in claim batches, each settled
    stream_at_once: float  # the same in a single batch
    stream_rows: float  # the same with all columns of a message
    stream_archived: float  # values, with everything kept in the archive
    archived_at_end: float  # which part of it was in the archive's files when that query ended
    batch: float  # values of a queue, read at once
    batch_rows: float  # the same with all columns
    sink: float  # written to a queue
    parquet_stream: float  # Parquet files of the same values, streamed to nowhere in as many batches
    parquet_batch: float  # Parquet files, read at once
    parquet_sink: float  # written as Parquet


class Bench:
    """One folder, one session."""

    def __init__(self, spark: SparkSession, folder: Path, *, count: int, size: int, trigger: int) -> None:
        self.spark = spark
        self.folder = folder
        self.count = count
        self.size = size
        self.trigger = trigger
        self._store = folder / "store"
        self._parquet = str(folder / "rows.parquet")
        self._files = 0

    def prepare(self) -> None:
        """The rows as Parquet, about one file for each trigger."""
        self._files = max(1, self.count // self.trigger)
        self.rows().repartition(self._files).write.mode("overwrite").parquet(self._parquet)

    def rows(self) -> DataFrame:
        """Hexadecimal digits of hashes, which compress to half; both sinks write these, and the queue holds them."""
        parts = ", ".join(f"hex(xxhash64(id, {place}))" for place in range(max(1, self.size // 16)))
        return self.spark.range(self.count).selectExpr(f"cast(concat({parts}) as binary) as value")

    def round(self) -> Round:
        archived = self._streamed(_VALUE, archive=True)
        at_end = self._archived() / self.count
        return Round(
            parquet_batch=self._timed(lambda: _nowhere(self.spark.read.parquet(self._parquet))),
            stream_at_once=self._streamed(_VALUE, trigger=self.count),
            batch=self._batch(_VALUE),
            batch_rows=self._batch(None, again=True),
            parquet_stream=self._timed(self._stream_parquet),
            stream=self._streamed(_VALUE),
            stream_rows=self._streamed(None),
            stream_archived=archived,
            archived_at_end=at_end,
            parquet_sink=self._timed(lambda: self.rows().write.mode("overwrite").parquet(str(self.folder / "out"))),
            sink=self._sink(),
        )

    def _timed(self, work: object) -> float:
        started = time.perf_counter()
        work()  # type: ignore[operator]  # a function without arguments
        return self.count / (time.perf_counter() - started)

    def _fill(self, *, archive: bool) -> None:
        self._renew()
        with sync.connect(self.url) as broker:
            queue = broker.queue("bench", archive=archive)
            for path in sorted(Path(self._parquet).glob("*.parquet")):
                for batch in pq.ParquetFile(path).iter_batches(_FILL):
                    queue.enqueue_many(batch.column("value").to_pylist())

    def _renew(self) -> None:
        """Another store: Spark's processes keep the old one open."""
        shutil.rmtree(self._store, ignore_errors=True)
        self._store = self.folder / f"store-{os.urandom(4).hex()}"

    @property
    def url(self) -> str:
        return f"file://{self._store}"

    def _streamed(self, columns: str | None, *, archive: bool = False, trigger: int | None = None) -> float:
        self._fill(archive=archive)
        rate = self._timed(lambda: self._run(self._stream(columns, trigger or self.trigger)))
        with sync.connect(self.url) as broker:
            stats = broker.queue("bench").stats()
        if (stats.completed, stats.pending, stats.processing) != (self.count, 0, 0):
            raise RuntimeError(f"{self.count} messages were streamed, the queue says {stats}")
        return rate

    def _stream(self, columns: str | None, trigger: int) -> DataFrame:
        read = self.spark.readStream.format("holdfast").option("url", self.url).option("consumer", "bench")
        read = read.option("maxMessagesPerTrigger", trigger)
        return (read if columns is None else read.schema(columns)).load("bench")

    def _archived(self) -> int:
        """Rows in files: what ended last is still being written."""
        return sum(pq.read_metadata(path).num_rows for path in self._store.glob("*/archive/*/*.parquet"))

    def _batch(self, columns: str | None, *, again: bool = False) -> float:
        if not again:  # reading takes nothing away
            self._fill(archive=False)
        read = self.spark.read.format("holdfast").option("url", self.url)
        return self._timed(lambda: _nowhere((read if columns is None else read.schema(columns)).load("bench")))

    def _sink(self) -> float:
        self._renew()
        write = self.rows().write.format("holdfast").option("url", self.url).mode("append")
        rate = self._timed(lambda: write.save("bench"))
        with sync.connect(self.url) as broker:
            stats = broker.queue("bench").stats()
        if stats.pending != self.count:
            raise RuntimeError(f"{self.count} messages were written, the queue says {stats}")
        return rate

    def _stream_parquet(self) -> None:
        schema = self.spark.read.parquet(self._parquet).schema
        self._run(self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(self._parquet))

    def _run(self, frame: DataFrame) -> None:
        checkpoint = self.folder / f"checkpoint-{os.urandom(4).hex()}"
        writing = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writing.trigger(availableNow=True).start()
        query.awaitTermination()


def _nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
