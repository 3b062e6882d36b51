"""Processes on slatedb+file:// that are killed: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast
from tests.stores.log.folder.test_crashes import Child

pytest.importorskip("slatedb", reason="the extra slatedb is not installed")


@pytest.mark.parametrize("acknowledged", [20, 200])
async def test_killed_in_mid_enqueue(tmp_path: Path, acknowledged: int) -> None:
    url = f"slatedb+file://{tmp_path}/store"
    ids: list[str] = []
    tried = 0
    for _ in range(2):
        child = await Child.spawn("enqueue", url)
        await child.hear(acknowledged, "acknowledged")
        await child.kill()
        ids += [id for (id,) in child.said("acknowledged")]
        tried += len(child.said("trying"))
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs")
        records = await asyncio.gather(*[queue.get(id) for id in ids])
        assert all(record is not None and record.status == "pending" for record in records)
        assert len(ids) <= (await queue.stats()).pending <= tried


async def test_batches_are_whole_or_absent(tmp_path: Path) -> None:
    url = f"slatedb+file://{tmp_path}/store"
    child = await Child.spawn("enqueue_batches", url)
    await child.hear(10, "acknowledged")
    await child.kill()
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs")
        stats = await queue.stats()
        assert stats.total % 10 == 0
        for _, *ids in child.said("acknowledged"):
            assert None not in [await queue.status(id) for id in ids]


async def test_killed_while_completing(tmp_path: Path) -> None:
    url = f"slatedb+file://{tmp_path}/store"
    async with holdfast.connect(url) as broker:
        ids = await (await broker.queue("jobs")).enqueue_many(range(300))
    child = await Child.spawn("work", url)
    await child.hear(40, "completed")
    await child.kill()
    completed = {id for (id,) in child.said("completed")}
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs")
        for id in completed:
            assert await queue.status(id) == "completed"
        while (await queue.stats()).completed < len(ids):
            deliveries = await queue.dequeue_many(100, wait=10)
            assert deliveries, "a message is missing"
            assert all(await queue.complete_many(deliveries))
        assert sorted(record.id for record in await queue.archive.list(limit=1000)) == sorted(ids)
