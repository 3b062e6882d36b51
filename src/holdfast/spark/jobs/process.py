"""`holdfast pipeline process`: the handlers that workers run, on executors."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from ... import config
from ...broker import Broker, connect
from ...config import WorkerOptions
from ...errors import ConfigError, HoldfastError, QueueNotFound
from ...loop_thread import portal
from ...stores.opening import locate
from ...stores.records import Stats
from ..cluster import cores
from ..options import check_url, check_use
from .faults import in_plain_words
from .fleet import ANSWER, FleetTask, Order, Tally
from .handler import work_of
from .progress import Progress, Tell, every_second, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ProcessSummary(msgspec.Struct, frozen=True):
    """What a run of `process` did. The first counts are the store's, of everybody who worked on the queue meanwhile."""

    queue: str
    completed: int
    failed: int
    dead: int
    left: int  # pending, held or waiting for a retry
    delayed: int
    tasks: int
    fleet: dict[str, int]  # what the tasks say they did; those of a killed executor say nothing
    seconds: float


def process(
    spark: SparkSession,
    queue: str,
    handler: Any,
    *,
    url: str | None = None,
    type: Any = None,
    tasks: int | None = None,
    seconds: float | None = None,
    retries: bool = True,
    forever: bool = False,
    tell: Tell = silent,
    **options: Any,
) -> ProcessSummary:
    """Run a handler for every message of a queue, on executors, until none is left.

    `handler` is `"MODULE:HANDLER"` (a function, a handler of an app, or an app), or such a thing itself; `type` is
    what a plain function wants its values as. `tasks` workers run at once (as many as the cluster has cores);
    `options` are those of a worker: `concurrency`, `timeout`, `batch`, `lease`, `retry`. Waiting retries are waited
    for unless `retries=False`; `seconds` limits the run; with `forever` it ends only by that or by Spark. A store with
    one owner has one task, and nobody else looks meanwhile.
    """
    check_url(url, "work")
    is_shared = _is_shared(url)
    lease, retry = options.pop("lease", None), options.pop("retry", None)
    given = {key: value for key, value in options.items() if value is not None}
    config.options(WorkerOptions, given, where="process")
    given |= {key: value for key, value in (("lease", lease), ("retry", retry)) if value is not None}
    if seconds is not None:
        config.positive("seconds", seconds)
    work_of(handler, queue, type=type)  # what is wrong is said here, not on an executor
    count = _tasks(spark, tasks, is_shared=is_shared)
    order = Order(url, config.queue_name(queue), given, seconds, retries, forever, os.getcwd())
    task = FleetTask(order, handler, type)
    if not is_shared:
        return _run_alone(spark, url, task, queue)
    broker = portal().run(_opened(url, queue))
    try:
        return _run(spark, broker, task, queue, count, tell)
    finally:
        portal().run(broker.close())


def _is_shared(url: str | None) -> bool:
    """Whether several processes may have the store open."""
    kind = locate(url if url is not None else config.load().url or config.DEFAULT_URL).kind
    check_use(kind, "work")
    return kind.owner == "any"


def _tasks(spark: SparkSession, tasks: int | None, *, is_shared: bool) -> int:
    count = None if tasks is None else config.whole("tasks", tasks)
    if is_shared:
        return cores(spark) if count is None else count
    if count not in (None, 1):
        raise ConfigError(
            f"tasks={count}: one process at a time owns this store, so one task works on it; give it more concurrency"
        )
    return 1


def _run(spark: SparkSession, broker: Broker, task: FleetTask, queue: str, count: int, tell: Tell) -> ProcessSummary:
    started, before = time.monotonic(), _stats(broker, queue)

    def look() -> None:
        now = _stats(broker, queue)
        done = now.completed + now.failed + now.dead - before.completed - before.failed - before.dead
        total = done + now.pending + now.processing + now.retry
        tell(Progress(f"process {queue}", done, total, done / (time.monotonic() - started), now.oldest_age))

    with every_second(look):
        sum = _work(spark, task, count)
    return _summary(queue, before, _stats(broker, queue), sum, count, time.monotonic() - started)


def _run_alone(spark: SparkSession, url: str | None, task: FleetTask, queue: str) -> ProcessSummary:
    """The process that opens the store owns it: the driver before and after, and the worker in between."""

    async def look() -> Stats:
        broker = await _opened(url, queue)
        try:
            return await broker.store.stats(queue)
        finally:
            await broker.close()

    started, before = time.monotonic(), portal().run(look())
    sum = _work(spark, task, 1)
    return _summary(queue, before, portal().run(look()), sum, 1, time.monotonic() - started)


def _work(spark: SparkSession, task: FleetTask, count: int) -> Tally:
    with in_plain_words():
        rows = spark.range(0, count, 1, count).mapInArrow(task, ANSWER).collect()
    sum = Tally()
    for row in rows:
        sum.add(Tally(**row.asDict()))
    return sum


def _summary(queue: str, before: Stats, after: Stats, sum: Tally, count: int, seconds: float) -> ProcessSummary:
    return ProcessSummary(
        queue,
        after.completed - before.completed,
        after.failed - before.failed,
        after.dead - before.dead,
        after.pending + after.processing + after.retry,
        after.delayed,
        count,
        msgspec.structs.asdict(sum),
        seconds,
    )


async def _opened(url: str | None, queue: str) -> Broker:
    broker = await connect(url)
    try:
        if await broker.store.queue(queue) is None:
            names = [info.name for info in await broker.store.queues()]
            raise QueueNotFound(config.unknown("there is no queue", queue, names))
    except HoldfastError:
        await broker.close()
        raise
    return broker


def _stats(broker: Broker, queue: str) -> Stats:
    return portal().run(broker.store.stats(queue))
