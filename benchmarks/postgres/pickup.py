"""Pick-up: from the call of enqueue to the start of the handler in an idle worker of another process."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median

import asyncpg
import msgspec

import holdfast

EVERY = 0.02  # seconds between two messages
_SETTLING = 0.3  # seconds after which a consumer that says it is ready has done what it does at its start


class Pickup(msgspec.Struct, frozen=True):
    """Milliseconds."""

    p50: float
    p99: float
    count: int
    rounds: list[float]  # the p50 of each
    firsts: list[float] = []  # the first message of each; they count like all others
    slowest: list[float] = []  # of them all, slowest first


class Pickups(msgspec.Struct, frozen=True):
    """In turn: ours, and the least that can be done with the same parts."""

    ours: Pickup
    bare: Pickup


def pickups(url: str, *, count: int, rounds: int = 4) -> Pickups:
    """The sides take turns, so that what else the machine does hits both."""
    ours: list[list[float]] = []
    barely: list[list[float]] = []
    for _ in range(rounds):
        barely.append(asyncio.run(bare(url, count=max(1, count // rounds), every=EVERY)))
        ours.append(asyncio.run(pickup(url, count=max(1, count // rounds), every=EVERY)))
    return Pickups(_summed(ours), _summed(barely))


def _summed(rounds: list[list[float]]) -> Pickup:
    every = sorted(wait * 1000 for waits in rounds for wait in waits)
    middles = [median(waits) * 1000 for waits in rounds]
    firsts = [waits[0] * 1000 for waits in rounds]
    return Pickup(median(every), every[int(len(every) * 0.99)], len(every), middles, firsts, every[:-11:-1])


async def pickup(url: str, *, count: int, every: float) -> list[float]:
    """Ours: a worker in the other process."""
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("pickup", archive=False)
        times = await _timed("work", url, queue.enqueue, count=count, every=every)
        await broker.delete_queue("pickup", force=True)
    return times


async def bare(url: str, *, count: int, every: float) -> list[float]:
    """The least that can be done with the same parts: insert and notify, listen and delete."""
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE IF NOT EXISTS bare (at float8)")

    async def send(sent: float) -> None:
        await connection.execute("INSERT INTO bare VALUES ($1)", sent)
        await connection.execute("NOTIFY bare")

    times = await _timed("listen", url, send, count=count, every=every)
    await connection.execute("DROP TABLE bare")
    await connection.close()
    return times


async def _timed(
    role: str, url: str, send: Callable[[float], Awaitable[object]], *, count: int, every: float
) -> list[float]:
    """The other process prints when it began; both clocks are the machine's monotonic one."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, role, url, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    waits: list[float] = []
    try:
        await child.stdout.readline()
        await asyncio.sleep(_SETTLING)
        for _ in range(count):
            sent = time.monotonic()
            await send(sent)
            waits.append(float(await child.stdout.readline()) - sent)
            await asyncio.sleep(every)
    finally:
        child.terminate()
        await child.wait()
    return waits


async def listen(url: str) -> None:
    """Until terminated."""
    connection = await asyncpg.connect(url)
    heard = asyncio.Event()
    await connection.add_listener("bare", lambda *_: heard.set())
    _say("ready")
    while True:
        await heard.wait()
        heard.clear()
        for _ in await connection.fetch("DELETE FROM bare RETURNING at"):
            _say(time.monotonic())


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


async def work(url: str) -> None:
    """Until terminated."""
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("pickup", archive=False)

        async def handle(_: float) -> None:
            _say(time.monotonic())

        worker = queue.worker(handle, concurrency=1)
        await worker.start()
        await broker.store.watch("pickup", 1.0)
        _say("ready")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run({"work": work, "listen": listen}[sys.argv[1]](sys.argv[2]))
