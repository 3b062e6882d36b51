"""`nats://`: its main path beside the bare driver and a peer; off it what is not kept, dead letters, long queues,
many priorities, counts of many queues."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import holdfast
from holdfast.bench.measure import Result, Sample, Side, alternate
from holdfast.errors import ConfigError
from tests.servers.nats import Server

from ..nats import __main__ as program
from ..nats.sides import Figures
from .context import Bench, Line, limit, line

_CLAIM = 100  # messages of one claim where a queue is drained
_SMALL_CLAIM = 10
_SHORT = 1000  # messages that wait in a short queue
_LOOKS = 20
_QUEUES = 21
_REPLAYED = 5000  # a second: the aim
_EMPTY_MS = 10.0
_STATS_MS = 100.0
_BETWEEN = 0.15  # seconds: a claim soon after an enqueue of its own waits for the server's consumers


async def main_path(bench: Bench) -> list[Line]:
    """Rounds of the bare driver, of ours and of taskiq-nats."""
    given = program.parser().parse_args([f"--count={bench.scale.nats}", f"--repeats={bench.scale.repeats}"])
    python = await asyncio.to_thread(program.peers, given)
    with _server() as server:
        found = await asyncio.to_thread(program.rounds, given, server.url, python)
    what = f"{bench.scale.nats:,} × {bench.scale.size} B"
    return [
        line(f"publish {what}, against raw nats-py with a window", _side(found, "Holdfast", "publish"),
             _side(found, "raw nats-py", "publish"), bar=0.7),
        line(f"drain {what}, against raw nats-py that keeps a record", _side(found, "Holdfast", "drain"),
             _side(found, "raw nats-py", "drain"), bar=0.8),
        line(f"drain {what} by a worker, against taskiq-nats", _side(found, "Holdfast", "worker"),
             _side(found, "taskiq-nats", "drain"), bar=2.0),
    ]  # fmt: skip


def _side(found: dict[str, list[Figures]], name: str, figure: str) -> Result:
    return Result.of(f"{name}, {figure}", [getattr(one, figure) for one in found[name]])


async def off_the_main_path(bench: Bench) -> list[Line]:
    """Each against the main path of the same run, or a limit of its own."""
    with _server() as server:
        async with holdfast.connect(server.url, prefix=f"b{os.urandom(4).hex()}") as broker:
            return [*await _drains(bench, broker), *await _long(bench, broker), *await _counts(bench, broker)]


def _server() -> Server:
    try:
        return Server()
    except RuntimeError as error:
        raise ConfigError(f"the bars of nats need a nats-server: {error}") from error


# ---------------------------------------------------------------------- drains


async def _drains(bench: Bench, broker: holdfast.Broker) -> list[Line]:
    s, count = bench.scale, max(bench.scale.drain // 5, 1)
    replayed: list[float] = []

    def side(name: str, priorities: int = 1, **options: Any) -> Side:
        async def turn() -> Sample:
            async with _queue(broker, **options) as queue:
                await _fill(queue, s.size, count, priorities)
                return Sample(count, await _seconds(_drain(queue, count)))

        return Side(name, turn)

    async def buried() -> Sample:
        async with _queue(broker, max_attempts=1) as queue:
            await _fill(queue, s.size, count)
            with _silence():
                seconds = await _seconds(_drain(queue, count, dead=True))
            replayed.append(count / await _seconds(queue.dead.replay()))
            return Sample(count, seconds)

    sides = [
        side("drain, archive on"),
        side("archive off", archive=False),
        Side("all die", buried),
        side("16 priorities", 16),
        side("256 priorities", 256),
    ]
    on, off, dead, some, all_of_them = await alternate(sides, s.repeats, bench.note)
    replay = Result.of("dead.replay()", replayed)
    aim = Result.of("aim", [float(_REPLAYED)] * len(replayed))
    what = f"{count:,} × {s.size} B, claims of {_CLAIM}"
    return [
        line(f"{what}: archive off against on", off, on, bar=0.8),
        line(f"{what}: every message dies, against completed", dead, on, bar=0.5),
        line("dead.replay()", replay, aim, bar=1.0, remark="the other side is the aim"),
        line(f"{what}: 16 priorities in use against one", some, on, bar=0.5),
        line(f"{what}: 256 priorities in use against one", all_of_them, on, bar=None, remark="stated"),
    ]


# ---------------------------------------------------------------------- long and empty queues


async def _long(bench: Bench, broker: holdfast.Broker) -> list[Line]:
    s, waiting = bench.scale, max(bench.scale.waiting // 2, _SHORT)
    async with _queue(broker) as long, _queue(broker) as short:
        bench.note(f"nats: {waiting:,} waiting")
        await _fill(long, 100, waiting)

        def side(name: str, queue: holdfast.Queue[bytes]) -> Side:
            async def turn() -> Sample:
                if queue is short:
                    await _fill(queue, 100, _SHORT)
                seconds = [await _claim_and_complete(queue) for _ in range(_LOOKS)]
                if queue is short:
                    await queue.purge()
                return Sample(1, sorted(seconds)[_LOOKS // 2])

            return Side(name, turn)

        sides = [side(f"{waiting:,} waiting", long), side(f"{_SHORT:,} waiting", short)]
        many, few = await alternate(sides, s.repeats, bench.note)
    return [
        line(
            f"claims of {_SMALL_CLAIM} with {waiting:,} waiting against {_SHORT:,}",
            many,
            few,
            bar=0.5,
            unit="claims/s",
        )
    ]


async def _claim_and_complete(queue: holdfast.Queue[bytes]) -> float:
    started = time.perf_counter()
    taken = await queue.dequeue_many(_SMALL_CLAIM, lease=60)
    seconds = time.perf_counter() - started
    await queue.complete_many(taken)
    return seconds


async def _counts(bench: Bench, broker: holdfast.Broker) -> list[Line]:
    found: list[Line] = []
    for priorities, bar in ((16, True), (256, False)):
        empty = Result.of("empty dequeue", [await _empty(broker, priorities) for _ in range(bench.scale.repeats)])
        name = f"empty dequeue, {priorities} priorities in use"
        if bar:
            found.append(limit(name, empty, _EMPTY_MS, goal=None, unit="ms"))
        else:
            aim = Result.of("for 16", [_EMPTY_MS] * len(empty.samples))
            found.append(line(name, empty, aim, bar=None, better="less", unit="ms", remark="stated"))
    names = [f"s{number}" for number in range(_QUEUES)]
    for name in names:
        await (await broker.queue(name)).enqueue_many([b"x"] * 20)
    times = [1000 * await _seconds(broker.stats()) for _ in range(bench.scale.repeats)]
    stats = Result.of("broker.stats()", times)
    return [*found, limit(f"stats of {_QUEUES} queues", stats, _STATS_MS, goal=None, unit="ms")]


async def _empty(broker: holdfast.Broker, priorities: int) -> float:
    """Milliseconds of a look at a queue that has used so many priorities, and holds nothing."""
    async with _queue(broker) as queue:
        await _fill(queue, 10, priorities, priorities)
        await _drain(queue, priorities)
        seconds: list[float] = []
        for _ in range(5):
            await asyncio.sleep(_BETWEEN)
            seconds.append(await _seconds(queue.dequeue()))
    return 1000 * sorted(seconds)[len(seconds) // 2]


# ---------------------------------------------------------------------- pieces


@contextmanager
def _silence() -> Iterator[None]:
    """No line for each message that dies."""
    logger = logging.getLogger("holdfast.events")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@asynccontextmanager
async def _queue(broker: holdfast.Broker, **options: Any) -> AsyncIterator[holdfast.Queue[bytes]]:
    name = f"q{os.urandom(4).hex()}"
    yield await broker.queue(name, **options)
    await broker.delete_queue(name, force=True)


async def _fill(queue: holdfast.Queue[bytes], size: int, count: int, priorities: int = 1) -> None:
    payload = os.urandom(size)
    messages = [holdfast.Message(payload, priority=number % priorities) for number in range(count)]
    for start in range(0, count, 1000):
        await queue.enqueue_many(messages[start : start + 1000])


async def _drain(queue: holdfast.Queue[bytes], count: int, *, dead: bool = False) -> None:
    done = 0
    while done < count:
        taken = await queue.dequeue_many(_CLAIM, lease=60, wait=5)
        done += sum(await (queue.fail_many(taken, "why") if dead else queue.complete_many(taken)))


async def _seconds(work: Awaitable[object]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started
