"""A queue as a stream, its values as columns, into Parquet. Run: python examples/spark/stream_to_parquet.py [FOLDER]"""

import sys
import tempfile
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

import holdfast
import holdfast.spark
from holdfast.spark import jobs


class Reading(msgspec.Struct):
    sensor: str
    celsius: float


def main(spark: SparkSession, folder: Path) -> None:
    url = (folder / "store").as_uri()
    with holdfast.sync.connect(url) as broker:
        queue = broker.queue("readings", Reading)
        queue.enqueue_many([Reading(f"s{number % 3}", number / 10) for number in range(300)])

    holdfast.spark.register(spark)
    live = spark.readStream.format("holdfast").option("url", url).option("consumer", "etl").load("readings")
    columns = holdfast.spark.unpack(live, Reading).select("id", "sensor", "celsius", "enqueued_at")
    query = (
        columns.writeStream.format("parquet")
        .option("path", str(folder / "readings"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)  # what is there now; leave it out to go on for ever
        .start()
    )
    query.awaitTermination()
    for row in spark.read.parquet(str(folder / "readings")).groupBy("sensor").count().orderBy("sensor").collect():
        print(f"{row.sensor}: {row['count']} readings")


if __name__ == "__main__":
    main(jobs.session("local[2]"), Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
