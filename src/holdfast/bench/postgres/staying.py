"""Staying fast: the drain after many settled messages, with many waiting, and while a transaction pins xmin."""

from __future__ import annotations

import time
from typing import Any

import asyncpg
import msgspec

import holdfast
from holdfast.messages import Envelope

from .sides import BULK, Timer, bodies, drained


class Staying(msgspec.Struct, frozen=True):
    """Messages a second of the same drain, one after the other in one queue."""

    fresh: float
    after: float
    pinned: float
    waiting: float
    settled: int
    pinned_for: float


async def staying(url: str, *, settled: int, size: int, probe: int) -> Staying:
    """Fresh; after so many settled ones; with as many waiting; and with xmin pinned while half of them are drained."""
    async with holdfast.connect(url, notify=False) as broker:
        store = broker.store
        await broker.queue("bench", archive=False)
        texts = [text.encode() for text in bodies(BULK, size)]
        fresh = await _probe(store, texts, probe)
        for _ in range(0, settled, 10 * BULK):
            await _fill(store, texts, 10 * BULK)
            await drained(store, "bench")
        after = await _probe(store, texts, probe)
        pinned, seconds = await _pinned(url, store, texts, probe, settled // 4)
        await _fill(store, texts, settled // 2)
        with Timer() as timer:
            await drained(store, "bench", probe)
        await broker.delete_queue("bench", force=True)
    return Staying(fresh, after, pinned, probe / timer.seconds, settled, seconds)


async def _pinned(url: str, store: Any, texts: list[bytes], probe: int, litter: int) -> tuple[float, float]:
    pin = await asyncpg.connect(url)
    started = time.monotonic()
    await pin.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
    try:
        await _fill(store, texts, litter + probe)
        await drained(store, "bench", litter)
        with Timer() as timer:
            await drained(store, "bench", probe)
    finally:
        await pin.execute("ROLLBACK")
        await pin.close()
    return probe / timer.seconds, time.monotonic() - started


async def _probe(store: Any, texts: list[bytes], count: int) -> float:
    await _fill(store, texts, count)
    with Timer() as timer:
        await drained(store, "bench")
    return count / timer.seconds


async def _fill(store: Any, texts: list[bytes], count: int) -> None:
    for _ in range(0, count, BULK):
        await store.append("bench", [Envelope(text) for text in texts])
