"""One lake, five readers, one number. Run: python examples/spark/read_the_lake.py [FOLDER]"""

import sys
import tempfile
import time
from pathlib import Path

import duckdb
import polars
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import holdfast
import holdfast.spark
from holdfast.spark import jobs


def with_spark(spark: SparkSession, lake: str) -> int:
    messages = spark.read.format("holdfast").option("lake", lake).load("messages")  # no jar
    return messages.where("status = 'completed'").count()


def with_polars(lake: str) -> int:
    messages = polars.scan_delta(f"{lake}/messages")
    return int(messages.filter(polars.col("status") == "completed").select(polars.len()).collect().item())


def with_pyarrow(lake: str) -> int:
    messages = DeltaTable(f"{lake}/messages").to_pyarrow_dataset()
    return int(messages.to_table(columns=["status"]).column("status").to_pylist().count("completed"))


def with_duckdb(lake: str) -> int:
    messages = DeltaTable(f"{lake}/messages").to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("messages", messages)
        [(count,)] = connection.execute("select count(*) from messages where status = 'completed'").fetchall()
    return int(count)


def with_pandas(lake: str) -> int:
    dataset = DeltaTable(f"{lake}/messages").to_pyarrow_dataset()
    messages = dataset.to_table(columns=["queue", "status", "attempts", "finished_at"]).to_pandas()
    return int((messages.status == "completed").sum())


def main(spark: SparkSession, folder: Path) -> None:
    url, lake = (folder / "store").as_uri(), str(folder / "lake")
    with holdfast.sync.connect(url) as broker:
        queue = broker.queue("emails")
        queue.enqueue_many([{"to": f"{number}@example.com"} for number in range(120)])
        with queue.worker(lambda value: None):
            while queue.stats().completed < 120:
                time.sleep(0.02)
    holdfast.spark.register(spark)
    jobs.lake(spark, "emails", lake, url=url)
    print(f"Spark {with_spark(spark, lake)}, polars {with_polars(lake)}, pyarrow {with_pyarrow(lake)}")
    print(f"DuckDB {with_duckdb(lake)}, pandas {with_pandas(lake)}")
    jobs.compact(spark, lake)
    print(f"after compact: Spark {with_spark(spark, lake)}, DuckDB {with_duckdb(lake)}")


if __name__ == "__main__":
    main(jobs.session("local[2]"), Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
