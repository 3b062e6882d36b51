"""Listing costs a page: blocks that are not shown are not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast

pytestmark = pytest.mark.asyncio


async def blocks_read(broker: holdfast.Broker) -> int:
    store: Any = broker.store
    return len(store._cache._blocks)


@pytest.mark.parametrize("count", [1000, 50_000])
async def test_page_reads_the_blocks_it_shows(tmp_path: Path, count: int) -> None:
    async with holdfast.connect(tmp_path) as broker:
        queue: holdfast.Queue[int] = await broker.queue("jobs")
        ids = await queue.enqueue_many(range(count))
    async with holdfast.connect(tmp_path) as broker:
        queue = await broker.queue("jobs")
        assert [record.value for record in await queue.list("ready", 100)] == list(range(100))
        assert [record.value for record in await queue.peek(100)] == list(range(100))
        assert await blocks_read(broker) == 1
        middle = ids[count // 2 + 10]
        assert [record.value for record in await queue.list("ready", 1, after=middle)] == [count // 2 + 11]
        assert await blocks_read(broker) <= 2


async def test_page_by_due_time_reads_the_blocks_it_shows(tmp_path: Path) -> None:
    async with holdfast.connect(tmp_path) as broker:
        queue: holdfast.Queue[int] = await broker.queue("jobs")
        for n in range(40):
            await queue.enqueue(n, delay=1000 - n)
    async with holdfast.connect(tmp_path) as broker:
        queue = await broker.queue("jobs")
        first = await queue.list("delayed", 3)
        assert [record.value for record in first] == [39, 38, 37]
        assert await blocks_read(broker) <= 4
        assert [record.value for record in await queue.list("delayed", 2, after=first[-1].id)] == [36, 35]
