"""Dead letters of one reason go back, slowly. Run: python examples/spark/redrive_dead_letters.py [FOLDER]"""

import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import holdfast
from holdfast.spark import jobs


def bury(url: str) -> None:
    """Some die because a gateway was down, some because they are wrong."""

    def charge(amount: int) -> None:
        raise ConnectionError("the gateway does not answer") if amount else holdfast.Dead("an order needs an amount")

    with holdfast.sync.connect(url) as broker:
        queue = broker.queue("orders", max_attempts=1)
        queue.enqueue_many([number % 4 for number in range(40)])
        with queue.worker(charge):
            while queue.stats().dead < 40:
                time.sleep(0.02)


def main(spark: SparkSession, folder: Path) -> None:
    url = (folder / "store").as_uri()
    bury(url)
    since = datetime.now(UTC) - timedelta(days=1)
    choice: dict[str, Any] = {"dead": "orders", "since": since, "reason": "the gateway does not answer", "url": url}
    print(f"would replay {jobs.replay(spark, **choice, dry_run=True).replayed}")
    print(f"replayed {jobs.replay(spark, **choice, rate=100).replayed}")
    print(f"once more: {jobs.replay(spark, **choice).replayed}")
    with holdfast.sync.connect(url) as broker:
        stats = broker.queue("orders").stats()
        print(f"{stats.pending} wait, {stats.dead} stay dead")


if __name__ == "__main__":
    main(jobs.session("local[2]"), Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
