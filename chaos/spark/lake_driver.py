"""`python -m chaos.spark.lake_driver`: two tables and a lake are filled from queues, while two compactions run.

Started again it goes on where it was killed: no checkpoint, only what the store and the tables know. While a job runs a
file of its name is there, so that a kill knows what it hit.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from holdfast import ConfigError
from holdfast.spark import jobs, register
from holdfast.spark.lake import Lake, LakeConflict
from holdfast.spark.lake.place import open_place
from tests.spark.lake.engines import counts_of

from .driver import session

ORDERS, PARCELS = "orders", "parcels"
TABLE, PARQUET, LAKE = "table", "parquet", "lake"
ENOUGH_VERSIONS_S = 3600.0  # the files of the last hour stay: readers of the run may lag
_STUCK_S = 300.0  # longer than any step should take: the log then says where it is
_PAUSE_S = 0.2  # between two rounds of a job that repeats


class Order(msgspec.Struct):
    n: int
    to: str
    tags: list[str] = []


class Jobs:
    """The jobs of one driver, each in a thread."""

    def __init__(self, spark: SparkSession, url: str, place: str, asked: argparse.Namespace) -> None:
        self._spark, self._url, self._place, self._asked = spark, url, place, asked
        self._over = threading.Event()
        self.failures: list[str] = []

    def below(self, name: str) -> str:
        return below(self._place, name)

    def table(self, queue: str, name: str, **more: Any) -> None:
        with self._doing(f"table-{more.get('consumer', name)}"):
            jobs.table(self._spark, queue, self.below(name), Order, url=self._url, batch=self._asked.limit, **more)

    def lake(self) -> None:
        """What ended meanwhile, again and again, and all of it at the end."""
        while True:
            last = self._over.is_set()
            with self._doing("lake"):
                jobs.lake(self._spark, [ORDERS], self.below(LAKE), url=self._url)
            if last:
                return
            time.sleep(_PAUSE_S)

    def compact(self, name: str) -> None:
        while not self._over.wait(_PAUSE_S):
            try:
                with self._doing(f"compact-{name}"):
                    jobs.compact(self._spark, self.below(name), keep_versions=ENOUGH_VERSIONS_S)
            except (LakeConflict, ConfigError):
                continue  # one of two at once gave up after some times; or nobody has begun the table

    @contextmanager
    def _doing(self, what: str) -> Iterator[None]:
        mark = Path(self._asked.doing) / what
        mark.touch()
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)

    def run(self) -> None:
        writers = [
            self._thread(lambda: self.table(ORDERS, TABLE, consumer="one")),
            self._thread(lambda: self.table(ORDERS, TABLE, consumer="two")),
            self._thread(lambda: self.table(PARCELS, PARQUET, format="parquet")),
        ]
        others = [self._thread(partial(self.compact, name)) for name in (TABLE, LAKE, TABLE, LAKE)]
        others.append(self._thread(self.lake))
        for thread in writers:
            thread.join()
        self._over.set()
        for thread in others:
            thread.join()

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - the driver says it at its end
                self.failures.append(f"{type(error).__name__}: {error}")
                self._over.set()

        thread = threading.Thread(target=run)
        thread.start()
        return thread


def below(place: str, name: str) -> str:
    """A table's place below the place of all."""
    path, question, query = place.partition("?")
    return f"{path}/{name}{question}{query}"


def counted(spark: SparkSession, place: str) -> dict[str, dict[str, tuple[int, int]]]:
    """Rows and different messages, by table and engine."""
    from pyspark.sql import functions as F

    register(spark)
    reader = spark.read.format("holdfast")
    lake, table = Lake(below(place, LAKE)), open_place(below(place, TABLE))
    found = {LAKE: counts_of(lake.messages.place, "id"), TABLE: counts_of(table, "message_id")}
    frames = {
        TABLE: (reader.option("table", table.text).load(), "message_id"),
        LAKE: (spark.read.format("holdfast").option("lake", lake.text).load(), "id"),
    }
    for name, (frame, id) in frames.items():
        row = frame.agg(F.count("*"), F.countDistinct(id)).collect()[0]
        found[name]["spark"] = (row[0], row[1])
    return found


def maintain(spark: SparkSession, place: str) -> dict[str, Any]:
    """Count, merge and vacuum by two jobs at once for each table, count again."""
    before, done, failed = counted(spark, place), [], []

    def compact(name: str) -> None:
        try:
            done.append(jobs.compact(spark, below(place, name), keep_versions=0.0))
        except LakeConflict:
            failed.append(name)

    for _ in range(2):  # the second round finds what the first has merged
        threads = [threading.Thread(target=compact, args=(name,)) for name in (TABLE, LAKE, TABLE, LAKE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    told = {name: sum(getattr(each, name) for each in done) for name in ("merged", "into", "swept")}
    return {"before": before, "after": counted(spark, place), **told, "conflicts": len(failed)}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m chaos.spark.lake_driver", description=__doc__)
    for name in ("url", "place", "scratch", "doing"):
        made.add_argument(f"--{name}", required=True)
    made.add_argument("--master", default="local[2,4]")
    made.add_argument("--limit", type=int, default=10_000, help="messages of one commit")
    made.add_argument("--told", required=True, help="the file for what was counted at the end")
    return made


def main() -> int:
    asked = parser().parse_args()
    faulthandler.dump_traceback_later(_STUCK_S, repeat=True)
    spark = session(asked.master, Path(asked.scratch))
    made = Jobs(spark, asked.url, asked.place, asked)
    made.run()
    if not made.failures:
        Path(asked.told).write_bytes(msgspec.json.encode(maintain(spark, asked.place)))
    print("\n".join(made.failures), file=sys.stderr)
    sys.stderr.flush()
    os._exit(1 if made.failures else 0)  # threads of Spark may hang on


if __name__ == "__main__":
    sys.exit(main())
