"""The whole story in half a minute: `holdfast demo`. Each chapter checks what it tells; a wrong claim ends it.

`python -m holdfast.demo QUEUE` is the worker process that one chapter kills.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from .broker import Broker, connect
from .errors import ConfigError, HoldfastError
from .outcome import Retry
from .queue import Queue
from .retry import Fixed
from .stores.opening import locate
from .stores.records import Stats

ORDERS = 300  # enough to see a rate, few enough for a minute
PRIORITIES = (0, 5, 9)
KINDS = {7: "bad", 21: "shaky", 34: "shaky"}  # of every 50 orders
BAD = ORDERS // 50  # fail until "the bug is fixed"
FEW_ORDERS = 5  # orders that are due in 2 s; as many in the hands of the worker that is killed
LEASE_S = 2.0  # short: the demo waits until it is over
STEP_S = 30.0  # for one step; a slow machine takes some

Order = dict[str, Any]

# Everything runs once: what makes long jobs fast would only make these slow.
_SMALL_JOBS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "OFF",
}


class DemoFailed(HoldfastError):
    """Something the demo says did not hold."""


class Story:
    """One telling: a store, a queue of its own, and a voice."""

    def __init__(self, url: str, *, say: Callable[[str], None], pipeline: bool = False) -> None:
        self.url = url
        self.say = say
        self.pipeline = pipeline  # whether it ends with the lake and the report
        self.name = f"demo-{uuid.uuid4().hex[:8]}"
        self.bug_is_fixed = False
        self.met: list[int] = []  # priorities, in the order the worker met them

    async def tell(self) -> Stats:
        """All chapters, and the counts at the end; the queue is gone afterwards, whatever happened."""
        if locate(self.url).kind.owner == "process":
            raise DemoFailed("the demo needs a store that two processes can share; leave --url out for a folder")
        try:
            async with connect(self.url) as broker:
                queue = await self.send(broker)
                await self.work(queue)
                await self.bury_and_replay(queue)
                await self.look_back(queue)
                await self.kill_a_worker(queue)
            async with connect(self.url) as broker:
                stats = await self.reopen(broker)
            if self.pipeline:
                await self.keep_and_measure()
            return stats
        finally:
            await self.clean_up()

    async def clean_up(self) -> None:
        """Leave nothing behind in a store that is not ours; what went wrong before matters more than a failure here."""
        with suppress(HoldfastError):
            async with connect(self.url) as broker:
                await broker.delete_queue(self.name, force=True)

    async def send(self, broker: Broker) -> Queue[Any]:
        self.chapter("Send")
        queue: Queue[Any] = await broker.queue(self.name, lease=LEASE_S, max_attempts=3, retry=Fixed(0.2))
        started = time.monotonic()
        for place, priority in enumerate(PRIORITIES):
            numbers = range(place, ORDERS, len(PRIORITIES))
            await queue.enqueue_many([_order(number, priority) for number in numbers], priority=priority)
        await queue.enqueue_many([_order(ORDERS + number) for number in range(FEW_ORDERS)], delay=2.0)
        took = time.monotonic() - started
        self.say(f"{ORDERS} orders in three priorities, {FEW_ORDERS} due in 2 s; durable after {took * 1000:.0f} ms")
        stats = await queue.stats()
        self.check((stats.pending, stats.delayed) == (ORDERS, FEW_ORDERS), f"stored as sent: {stats}")
        return queue

    async def work(self, queue: Queue[Any]) -> None:
        self.chapter("Work")
        self.say(f"a worker takes 20 at a time; {2 * BAD} orders fail once, {BAD} fail every time")
        worker = queue.worker(self.handle, concurrency=20)
        await worker.start()
        await self.until(lambda: self.finished(queue, ORDERS + FEW_ORDERS))
        await worker.stop()
        stats = await queue.stats()
        urgent = ORDERS // len(PRIORITIES)
        self.check(self.met[:urgent] == [max(PRIORITIES)] * urgent, "the highest priority went first")
        self.check(stats.completed == ORDERS + FEW_ORDERS - BAD, f"{stats.completed} are completed")
        self.say(f"{stats.completed} completed: urgent ones first, delayed ones when due, shaky ones at the second try")

    async def bury_and_replay(self, queue: Queue[Any]) -> None:
        self.chapter("Dead letters")
        dead = await queue.dead.list()
        self.check(len(dead) == BAD, f"{BAD} are dead: {len(dead)}")
        self.say(f"{len(dead)} orders are dead letters after {dead[0].attempts} attempts: {dead[0].error}")
        self.bug_is_fixed = True
        replayed = await queue.dead.replay()
        self.say(f"the bug is fixed; {replayed} replayed")
        worker = queue.worker(self.handle)
        await worker.start()
        await self.until(lambda: self.finished(queue, ORDERS + FEW_ORDERS))
        await worker.stop()
        self.check(await queue.dead.count() == 0, "no dead letter is left")
        self.say("all of them are completed now, nobody typed them in again")

    async def look_back(self, queue: Queue[Any]) -> None:
        self.chapter("Archive")
        count = await queue.archive.count()
        self.check(count == ORDERS + FEW_ORDERS, f"the archive has every order: {count}")
        record = (await queue.archive.list(limit=1))[0]
        self.say(f"{count} finished orders are kept for 7 days, each with its result, such as {record.result}")

    async def kill_a_worker(self, queue: Queue[Any]) -> None:
        self.chapter("Crash")
        await queue.enqueue_many([_order(ORDERS + FEW_ORDERS + number) for number in range(FEW_ORDERS)])
        # The URL may hold a password: in the environment other users cannot read it, on a command line they can.
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast.demo", self.name),
            env={**os.environ, "HOLDFAST_URL": self.url},
            stdout=asyncio.subprocess.PIPE,
        )
        assert child.stdout is not None
        try:
            async with asyncio.timeout(STEP_S):
                lines = [await child.stdout.readline() for _ in range(FEW_ORDERS)]
        except TimeoutError:
            lines = []
        finally:
            with suppress(ProcessLookupError):  # it ended by itself
                child.kill()
            await child.wait()
        self.check(bool(lines) and all(lines), f"another process takes the orders within {STEP_S:.0f} s")
        killed = time.monotonic()
        self.say(f"another process had {FEW_ORDERS} orders in hand; it was killed (SIGKILL), with no chance to say so")
        self.check((await queue.stats()).processing == FEW_ORDERS, "the orders are still leased")
        attempts: list[int] = []
        worker = queue.worker(self.handle, on_complete=lambda delivery, result: attempts.append(delivery.attempt))
        await worker.start()
        await self.until(lambda: self.finished(queue, ORDERS + FEW_ORDERS + FEW_ORDERS))
        await worker.stop()
        self.check(attempts == [2] * FEW_ORDERS, f"each ran a second time: {attempts}")
        took = time.monotonic() - killed
        self.say(f"their leases of {LEASE_S:.0f} s ended, they came back by themselves, done {took:.1f} s later")

    async def reopen(self, broker: Broker) -> Stats:
        self.chapter("Reopen")
        queue: Queue[Any] = await broker.queue(self.name, create=False)
        stats = await queue.stats()
        everything = ORDERS + FEW_ORDERS + FEW_ORDERS
        self.check((stats.completed, stats.archived) == (everything, everything), f"all is there: {stats}")
        self.check(stats.pending + stats.processing + stats.retry + stats.dead == 0, f"nothing is left over: {stats}")
        self.say(f"closed and opened again: {stats.completed} completed, 0 lost, 0 waiting")
        return stats

    async def keep_and_measure(self) -> None:
        self.chapter("Lake and report")
        lacking = _lacking()
        if lacking is not None or not locate(self.url).kind.serves_spark:
            return self.say(f"left out: {lacking or 'Spark works on file, s3 and postgresql stores'}")
        folder = tempfile.mkdtemp(prefix="holdfast-report-")
        started = time.monotonic()
        kept, page = await asyncio.to_thread(_keep_and_measure, self.url, self.name, folder)
        everything = ORDERS + FEW_ORDERS + FEW_ORDERS
        self.check(kept == everything, f"the lake has every order once: {kept}")
        took = time.monotonic() - started
        self.say(f"Spark kept {kept} orders as Parquet and measured them in {took:.0f} s")
        self.say(f"the report, with charts: {page}")

    async def handle(self, order: Order, context: Any) -> Order:
        if context.attempt == 1:
            self.met.append(order["priority"])
        if order["kind"] == "bad" and not self.bug_is_fixed:
            raise ValueError(f"cannot ship order {order['order']}: the address has no street")
        if order["kind"] == "shaky" and context.attempt == 1:
            raise Retry(0.5)
        return {"shipped": order["order"]}

    async def finished(self, queue: Queue[Any], count: int) -> bool:
        stats = await queue.stats()
        return stats.completed + stats.dead == count

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        deadline = time.monotonic() + STEP_S
        while not await holds():
            self.check(time.monotonic() < deadline, f"done within {STEP_S:.0f} s")
            await asyncio.sleep(0.05)

    def chapter(self, title: str) -> None:
        self.say(f"\n{title}")

    def check(self, holds: bool, claim: str) -> None:
        if not holds:
            raise DemoFailed(f"the demo claims: {claim}; it is not so")


def _lacking() -> str | None:
    """What this machine lacks to run Spark, in a sentence."""
    try:
        from .spark.jobs.session import missing
    except ConfigError as error:
        return str(error)
    return missing()


def _keep_and_measure(url: str, queue: str, folder: str) -> tuple[int, str]:
    """The rows of the lake, and the page of the report."""
    from .spark import jobs

    spark = jobs.session("local[2]", _SMALL_JOBS)
    try:
        lake = f"{folder}/lake"
        rows = jobs.lake(spark, queue, lake, url=url).rows
        return rows, jobs.report(spark, lake, folder).page
    finally:
        spark.stop()


def _order(number: int, priority: int = 0) -> Order:
    kind = KINDS.get(number % 50, "fine") if number < ORDERS else "fine"
    return {"order": number, "priority": priority, "kind": kind}


async def hold(name: str) -> None:
    """The worker that is killed: it takes messages, says so, and never finishes one."""

    async def never(order: Order) -> None:
        print(order["order"], flush=True)  # noqa: T201 - the parent process reads it
        await asyncio.sleep(3600)

    async with connect() as broker:
        queue: Queue[Any] = await broker.queue(name, create=False)
        await queue.worker(never, concurrency=FEW_ORDERS).run()


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1]))
