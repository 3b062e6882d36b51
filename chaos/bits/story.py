"""What is in the store before something is spoiled, and what is found of it afterwards."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime
from typing import Any

import msgspec

import holdfast
from holdfast import admin
from holdfast.errors import HoldfastError
from holdfast.stores.base import DEAD

QUEUE = "jobs"
_LARGE = 9_000  # bytes of a message: forty of them make a file
_RESULT = 6_000  # bytes: an object of its own
_SOON = 0.05  # seconds
_LONG = 86400.0  # seconds: not while the run lasts
_TRIES = 3  # of a call that is refused: on a bucket the second look decides
_LEASE_S = 30.0  # of whoever works everything off
_CHILD_S = 60.0
_FAR = datetime(2100, 1, 1, tzinfo=UTC)
_PATIENCE_S = 45.0  # longer than a lease: what could not be ended in the first try is given out again after it


class Kept(msgspec.Struct):
    """What there is: values by id of what waits, is finished and is dead; results of what is finished."""

    waiting: dict[str, str] = {}
    finished: dict[str, str] = {}
    dead: dict[str, str] = {}
    results: dict[str, Any] = {}
    remembered: str = ""  # the id behind the dedup key
    schedules: list[str] = []


class Found(msgspec.Struct):
    """What came of it, and what anybody said."""

    delivered: list[tuple[str, str]] = []
    dead: dict[str, tuple[Any, str]] = {}  # value and error
    archived: dict[str, tuple[Any, Any, str]] = {}  # value, result and error
    errors: list[str] = []
    scrubbed: list[str] = []
    remembered: str = ""
    schedules: list[str] = []
    goes_on: bool = False


def value(name: str, number: int, size: int = 0) -> str:
    return f"{name}-{number}-" + "abcdefghij"[number % 10] * size


async def make(url: str) -> Kept:
    """Messages in every state, in every kind of object."""
    kept = Kept()
    async with holdfast.connect(url) as broker:
        queue: Any = await broker.queue(QUEUE, max_attempts=9, retry=holdfast.Fixed(_SOON))
        store = broker.store

        async def sent(name: str, count: int, size: int = 0, **how: Any) -> dict[str, str]:
            values = [value(name, n, size) for n in range(count)]
            return dict(zip(await queue.enqueue_many(values, **how), values, strict=True))

        kept.finished |= await sent("done", 40)
        for each in await queue.dequeue_many(40):
            kept.results[each.id] = each.value * 2
            await each.complete(kept.results[each.id])
        kept.dead |= await sent("dead", 20)
        for each in await queue.dequeue_many(20):
            await each.kill("enough")
        await store.discard(QUEUE, "archive", [])  # flushes
        kept.waiting |= await sent("again", 310)
        for each in await queue.dequeue_many(310):
            await each.fail("once more")
        await store.discard(QUEUE, "archive", [])
        kept.waiting |= await sent("few", 3, priority=9)
        kept.waiting |= await sent("expiring", 10, expires=_LONG)
        kept.waiting |= await sent("large", 40, _LARGE)
        kept.waiting |= await sent("some", 60, 100)
        kept.waiting |= await sent("more", 60, 100)
        kept.waiting |= await sent("later", 10, delay=_SOON)
        kept.waiting |= await sent("later", 10, delay=2 * _SOON)
        await queue.dequeue_many(5, lease=1.0)  # of the few, and some retries
        kept.finished |= await sent("result", 3, priority=255)
        for each in await queue.dequeue_many(3, lease=60.0):
            kept.results[each.id] = each.value + "r" * _RESULT
            await each.complete(kept.results[each.id])
        kept.remembered = await queue.enqueue(value("once", 0), dedup_key="key")
        await queue.enqueue(value("once", 1), dedup_key="other")
        kept.waiting[kept.remembered] = value("once", 0)
        kept.waiting |= {each: value("once", 1) for each in [await queue.enqueue("?", dedup_key="other")]}
        for name in ("daily", "weekly"):
            await broker.schedules.put(holdfast.Schedule(name=name, queue=QUEUE, value=name, every=_LONG, start=_FAR))
            kept.schedules.append(f"{name} {name}")
        for gone in list(kept.finished)[:2]:
            assert await queue.archive.delete([gone]) == 1
            del kept.finished[gone], kept.results[gone]
    return kept


async def add_more(url: str) -> Kept:
    """Ten more, in the log of a process that is killed: only what it had synced is left, and nobody has tidied up."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "chaos.bits.killed", url, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await asyncio.wait_for(child.communicate(), _CHILD_S)
    return msgspec.json.decode(told, type=Kept)


async def look(url: str) -> Found:
    """Work everything off, list what has ended, and read everything again."""
    found = Found()
    try:
        async with holdfast.connect(f"{url}{'&' if '?' in url else '?'}operation_timeout=10") as broker:
            for part in (_drained, _listed, _repeated, _planned, _scrubbed):
                await _trying(part, broker, found)
    except HoldfastError as error:
        found.errors.append(f"{type(error).__name__}: {error}")
    return found


async def _trying(part: Any, broker: holdfast.Broker, found: Found) -> None:
    for _ in range(_TRIES):
        try:
            await part(broker, found)
            return
        except HoldfastError as error:
            found.errors.append(f"{type(error).__name__}: {error}")


async def _drained(broker: holdfast.Broker, found: Found) -> None:
    queue: Any = await broker.queue(QUEUE)
    fresh = await queue.enqueue("fresh")
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        messages = await queue.dequeue_many(1000, lease=_LEASE_S)
        await queue.complete_many(messages)
        found.delivered += [(each.id, each.value) for each in messages if each.id != fresh]
        found.goes_on = found.goes_on or any(each.id == fresh for each in messages)
        if not messages:
            if await _is_empty(broker, found):
                return
            await asyncio.sleep(_SOON)


async def _is_empty(broker: holdfast.Broker, found: Found) -> bool:
    try:
        stats = await broker.store.stats(QUEUE)
    except HoldfastError as error:  # claims may go on all the same
        found.errors.append(f"{type(error).__name__}: {error}")
        return found.goes_on
    return not stats.pending + stats.delayed + stats.processing + stats.retry


async def _listed(broker: holdfast.Broker, found: Found) -> None:
    decode = msgspec.json.decode
    for view in ("dead", "archive"):
        after: str | None = None
        while page := await broker.store.scan(QUEUE, view, after=after, limit=1000):
            after = page[-1].id
            for each in page:
                told = decode(each.payload) if each.payload else None
                if view == "dead":
                    found.dead[each.id] = (told, each.error or "")
                else:
                    found.archived[each.id] = (told, decode(each.result) if each.result else None, each.error or "")


async def _repeated(broker: holdfast.Broker, found: Found) -> None:
    queue: Any = await broker.queue(QUEUE)
    found.remembered = await queue.enqueue("?", dedup_key="key")
    await broker.store.claim(QUEUE + DEAD, 0, 1.0)


async def _planned(broker: holdfast.Broker, found: Found) -> None:
    found.schedules = []
    for each in await broker.schedules.list():
        found.schedules.append(f"{each.schedule.name} {each.schedule.value}")


async def _scrubbed(broker: holdfast.Broker, found: Found) -> None:
    report = await admin.scrub(broker)
    found.scrubbed += [f"{each.key}: {each.problem}" for each in report.wrong]
    found.scrubbed += [f"doctor: {each.detail}" for each in await broker.check() if each.state == "fail"]
