"""Load a CSV into a queue; bad rows are kept apart. Run: python examples/spark/ingest_csv.py [FOLDER]"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import holdfast
from holdfast.spark import jobs

CSV = """order,amount,urgency,country
1,20.5,9,it
2,7,0,de
3,12,urgent,fr
4,3,300,es
5,8.25,1,it
"""


def main(spark: SparkSession, folder: Path) -> None:
    url = (folder / "store").as_uri()
    (folder / "orders.csv").write_text(CSV)
    with holdfast.sync.connect(url) as broker:
        broker.create_queue("orders")

    load: dict[str, Any] = {
        "url": url,
        "priority": "urgency",
        "headers": {"land": "country"},
        "rejects": folder / "rejected",
    }
    done = jobs.ingest(spark, folder / "orders.csv", "orders", **load)
    print(f"{done.read} rows: {done.added} messages, {done.rejected} rejected")
    assert done.rejects is not None
    for row in spark.read.parquet(done.rejects).orderBy("row").collect():
        print(f"rejected, {row.reason}: {row.row}")
    again = jobs.ingest(spark, folder / "orders.csv", "orders", **load)
    print(f"loaded again: {again.added} messages")

    with holdfast.sync.connect(url) as broker:
        first = broker.queue("orders").dequeue()
        assert first is not None
        print(f"first out: {first.value}, priority {first.priority}, headers {first.headers}")


if __name__ == "__main__":
    main(jobs.session("local[2]"), Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
