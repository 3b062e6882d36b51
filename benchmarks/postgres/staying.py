"""Staying fast: the drain after many settled messages, with many waiting, and while a transaction pins xmin."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import asyncpg
import msgspec

import holdfast
from holdfast.stores.records import Envelope

from .sides import BULK, Timer, bodies, drained

_OLD, _NEW = "bench", "bench_new"


class Staying(msgspec.Struct, frozen=True):
    """Messages a second of the same drain: in a new queue, and in the one that has seen so many, in turn."""

    settled: int
    fresh: list[float]
    after: list[float]
    fresh_then: list[float]  # taken again just before xmin is pinned
    pinned: list[float]
    litter: int  # messages finished since then, whose rows nobody may take away
    pinned_for: float
    waiting: float
    waits: int

    @property
    def stays(self) -> float:
        return median(self.after) / median(self.fresh)

    @property
    def pinned_stays(self) -> float:
        return median(self.pinned) / median(self.fresh_then)

    @property
    def waiting_stays(self) -> float:
        return self.waiting / median(self.fresh_then)


async def staying(url: str, *, settled: int, size: int, probe: int, rounds: int = 3) -> Staying:
    """After so many settled ones; with half as many waiting; and with xmin pinned while a quarter is drained."""
    async with holdfast.connect(url, notify=False) as broker:
        store, texts = broker.store, [text.encode() for text in bodies(BULK, size)]
        await broker.queue(_OLD, archive=False)
        for _ in range(0, settled, 10 * BULK):
            await _fill(store, _OLD, texts, 10 * BULK)
            await drained(store, _OLD)
        fresh, after = [], []
        for _ in range(rounds):
            fresh.append(await _fresh(broker, texts, probe))
            after.append(await _probe(store, _OLD, texts, probe))
        fresh_then = [await _fresh(broker, texts, probe) for _ in range(rounds)]
        pinned, seconds = await _pinned(url, store, texts, probe, settled // 4, rounds)
        await _fill(store, _OLD, texts, settled // 2)
        with Timer() as timer:
            await drained(store, _OLD, probe)
        await broker.delete_queue(_OLD, force=True)
    rate = probe / timer.seconds
    return Staying(settled, fresh, after, fresh_then, pinned, settled // 4, seconds, rate, settled // 2)


async def _fresh(broker: holdfast.Broker, texts: list[bytes], count: int) -> float:
    await broker.queue(_NEW, archive=False)
    rate = await _probe(broker.store, _NEW, texts, count)
    await broker.delete_queue(_NEW, force=True)
    return rate


async def _pinned(
    url: str, store: Any, texts: list[bytes], probe: int, litter: int, rounds: int
) -> tuple[list[float], float]:
    pin = await asyncpg.connect(url)
    started = time.monotonic()
    await pin.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
    rates = []
    try:
        await _fill(store, _OLD, texts, litter + rounds * probe)
        await drained(store, _OLD, litter)
        for _ in range(rounds):
            with Timer() as timer:
                await drained(store, _OLD, probe)
            rates.append(probe / timer.seconds)
    finally:
        await pin.execute("ROLLBACK")
        await pin.close()
    return rates, time.monotonic() - started


async def _probe(store: Any, queue: str, texts: list[bytes], count: int) -> float:
    await _fill(store, queue, texts, count)
    with Timer() as timer:
        await drained(store, queue)
    return count / timer.seconds


async def _fill(store: Any, queue: str, texts: list[bytes], count: int) -> None:
    for _ in range(0, count, BULK):
        await store.append(queue, [Envelope(text) for text in texts])
