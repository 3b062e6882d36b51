"""`python -m chaos.spark_job URL FOLDER`: the driver of the run `spark-process`, and the handler its executors run."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import holdfast

QUEUE = "chaos-spark"
app = holdfast.App()


@app.handler(QUEUE)
def ship(order: dict[str, str | int], context: holdfast.Context) -> int:
    """1 % fail always, 5 % fail once, poison kills its process."""
    number = int(order["n"])
    time.sleep(float(os.environ.get("CHAOS_WORK", "0.002")))
    if order["kind"] == "poison":
        os._exit(9)
    if number % 100 == 5:
        raise ValueError(f"order {number} cannot be shipped")
    if number % 20 == 6 and context.attempt == 1:
        raise holdfast.Retry(0.1)
    return number


def main(url: str, folder: str) -> None:
    from holdfast.spark import jobs
    from tests.servers.spark import local_cluster

    here = Path(__file__).resolve().parent.parent
    spark = local_cluster(Path(folder), paths=[str(here / "src"), str(here)])
    print("ready", flush=True)
    done = jobs.process(spark, QUEUE, "chaos.spark_job:ship", url=url, tasks=2, concurrency=8)
    print(f"done {done.completed} {done.dead} {done.left} {done.fleet['restarts']}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
