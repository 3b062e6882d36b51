"""One stream into two queues and a table, each row once. Run: python examples/spark/fan_out.py [FOLDER]"""

import sys
import tempfile
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast
import holdfast.spark
from holdfast.spark import jobs


def start(spark: SparkSession, url: str, folder: Path) -> None:
    """Read what is there now, and stop."""
    run = "orders-2026-11"  # of this checkpoint: another one needs another name, because its batches count from 0 again

    def send(rows: DataFrame, queue: str, number: int) -> None:
        made = rows.select("value", "content_type").write.format("holdfast").option("url", url)
        made.option("idempotencyKey", f"{run}/{queue}/{number}").mode("append").save(queue)

    def fan_out(rows: DataFrame, number: int) -> None:
        rows.persist()  # or each write reads the batch again
        country = F.get_json_object(rows["value"].cast("string"), "$.country")
        send(rows, "mails", number)
        if not (folder / "failed").exists():
            (folder / "failed").touch()
            raise RuntimeError("the first batch fails after its first write")
        send(rows.where(country != "DE"), "customs", number)
        rows.select("id", country.alias("country")).write.mode("overwrite").parquet(f"{folder}/orders/batch={number}")
        rows.unpersist()

    orders = spark.readStream.format("holdfast").option("url", url).option("consumer", run).load("orders")
    query = orders.writeStream.option("checkpointLocation", f"{folder}/{run}").foreachBatch(fan_out)
    query.trigger(availableNow=True).start().awaitTermination()


def main(spark: SparkSession, folder: Path) -> None:
    url = (folder / "store").as_uri()
    with holdfast.sync.connect(url) as broker:
        broker.queue("orders").enqueue_many([{"order": n, "country": "DE" if n % 4 else "FR"} for n in range(100)])
        broker.queue("mails")
        broker.queue("customs")
    holdfast.spark.register(spark)
    try:
        start(spark, url, folder)
    except StreamingQueryException:
        print("failed half way, and started again")
        start(spark, url, folder)
    with holdfast.sync.connect(url) as broker:
        for name in ("mails", "customs"):
            print(f"{name}: {broker.queue(name).stats().pending}")
    print(f"rows of the table: {spark.read.parquet(str(folder / 'orders')).count()}")


if __name__ == "__main__":
    main(jobs.session("local[2]"), Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
