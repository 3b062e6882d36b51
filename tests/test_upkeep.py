"""A broker that only dequeues keeps its queues up."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

import holdfast
from holdfast.testing.contract.base import eventually

KEPT_DAYS = 1e-6  # a tenth of a second


async def kept_after_a_while(url: str, **options: object) -> int:
    """Archived messages of a queue that keeps them for a moment, once there was time for upkeep."""
    async with holdfast.connect(url, maintenance_interval=0.1, **options) as broker:
        queue = await broker.queue("jobs", archive_days=KEPT_DAYS)
        await queue.enqueue(1)
        delivery = await queue.dequeue()
        assert delivery is not None
        await delivery.complete()
        try:
            await eventually(lambda: is_gone(queue), within=1.5)
        except AssertionError:
            pass
        return (await queue.stats()).archived


async def is_gone(queue: holdfast.Queue[int]) -> bool:
    await queue.dequeue()  # as somebody who works goes on to do
    return not await queue.archive.count()


async def test_retention_without_a_worker(tmp_path: Path) -> None:
    assert await kept_after_a_while(f"file://{tmp_path}/store") == 0


async def test_it_can_be_turned_off(tmp_path: Path) -> None:
    assert await kept_after_a_while(f"file://{tmp_path}/store", maintenance=False) == 1


async def test_it_does_not_keep_a_dropped_broker() -> None:
    broker = await holdfast.connect("memory://", maintenance_interval=0.05)
    queue = await broker.queue("jobs")
    await queue.dequeue()
    gone = weakref.ref(broker._life)
    del broker, queue
    await asyncio.sleep(0.2)
    gc.collect()
    await eventually(lambda: gone() is None, "the end of the broker")
