"""The handlers that workers run, on Spark's executors. Run: python examples/spark/handler_fleet.py [FOLDER]"""

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import holdfast
from holdfast.spark import jobs


def resize(picture: dict[str, int], context: holdfast.Context) -> dict[str, int]:
    """Executed wherever Spark has a core; a failure is tried again, as in any worker."""
    if picture["width"] == 0:
        raise holdfast.Dead("a picture needs a width")
    if picture["n"] % 10 == 3 and context.attempt == 1:
        raise ConnectionError("the shop does not answer")
    return {"width": picture["width"] // 2}


def main(spark: SparkSession, folder: Path) -> None:
    url = (folder / "store").as_uri()
    with holdfast.sync.connect(url) as broker:
        pictures = broker.queue("pictures", max_attempts=3, retry=holdfast.Fixed(0.1))
        pictures.enqueue_many([{"n": number, "width": 0 if number == 7 else 640} for number in range(100)])

    done = jobs.process(spark, "pictures", resize, url=url, concurrency=10, timeout=30)
    print(f"{done.completed} completed, {done.dead} dead, {done.left} left")
    print(f"{done.fleet['retried']} were tried again")


if __name__ == "__main__":
    main(jobs.session("local[2]"), Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
