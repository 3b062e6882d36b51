"""Each night: keep what finished, merge files, report. Run: python examples/spark/nightly_lake.py [FOLDER]"""

import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

import holdfast
from holdfast.spark import jobs


def work(url: str, orders: range) -> None:
    """A day of an ordinary worker."""

    def ship(order: int) -> int:
        if order % 25 == 9:
            raise ValueError(f"order {order} has no address")
        return order

    with holdfast.sync.connect(url) as broker:
        queue = broker.queue("orders", max_attempts=2, retry=holdfast.Fixed(0.0))
        before = queue.stats()
        queue.enqueue_many(orders)
        with queue.worker(ship):
            while (now := queue.stats()).completed + now.dead < before.completed + before.dead + len(orders):
                time.sleep(0.02)


def main(spark: SparkSession, folder: Path) -> None:
    url, lake = (folder / "store").as_uri(), folder / "lake"
    for night in range(2):
        work(url, range(night * 100, night * 100 + 100))
        kept = jobs.lake(spark, ["orders"], lake, url=url, keep_days=90)
        print(f"night {night + 1}: {kept.added} added, {kept.rows} in the lake")
    merged = jobs.compact(spark, lake)
    print(f"compacted: {merged.merged > merged.into}")
    report = jobs.report(spark, lake, folder / "report")
    print(f"report of {report.messages} messages: {Path(report.page).name}")


if __name__ == "__main__":
    main(jobs.session("local[2]"), Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
