"""How far a job is, told about once a second while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ...stores.base import LOOK_AGAIN_S
from ..cluster import is_remote
from .faults import in_plain_words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Progress(msgspec.Struct, frozen=True):
    """What a job says of itself: `done` of `total` things (rows, tasks, messages), by the second, and what waits."""

    doing: str
    done: int
    total: int | None = None
    rate: float | None = None
    lag: float | None = None  # seconds the oldest message has waited


Tell: TypeAlias = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """For those who do not want to know."""


@contextmanager
def every_second(look: Callable[[], None]) -> Iterator[None]:
    """Call it about once a second in a thread, and a last time at the end; what it raises is not felt by the job."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(LOOK_AGAIN_S):
            try:
                look()
            except Exception:  # noqa: BLE001 - a look at a job must not end it
                continue

    thread = threading.Thread(target=run, name="holdfast-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(2 * LOOK_AGAIN_S)


@contextmanager
def tasks(spark: SparkSession, doing: str, tell: Tell) -> Iterator[None]:
    """Tell how many tasks of the Spark jobs that start in here are done; what goes wrong is said in plain words."""
    if is_remote(spark):
        with _told_by_the_server(spark, doing, tell), in_plain_words():
            yield
        return
    tracker, started = spark.sparkContext.statusTracker(), time.monotonic()

    def look() -> None:
        done = total = 0
        for job in tracker.getActiveJobsIds():
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                seen = tracker.getStageInfo(stage)
                if seen is not None:
                    done, total = done + seen.numCompletedTasks, total + seen.numTasks
        if total:
            tell(Progress(doing, done, total, done / (time.monotonic() - started)))

    with every_second(look), in_plain_words():
        yield


@contextmanager
def _told_by_the_server(spark: Any, doing: str, tell: Tell) -> Iterator[None]:
    """The same with Spark Connect, which says it while it waits for the answer to a query."""
    started = time.monotonic()

    def look(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        tasks = [(stage.num_completed_tasks, stage.num_tasks) for stage in stages or ()]
        if tasks:
            ready = sum(each for each, _ in tasks)
            rate = ready / max(1e-3, time.monotonic() - started)
            tell(Progress(doing, ready, sum(each for _, each in tasks), rate))

    spark.registerProgressHandler(look)
    try:
        yield
    finally:
        spark.removeProgressHandler(look)
