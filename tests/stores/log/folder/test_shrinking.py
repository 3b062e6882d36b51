"""What was deleted gives its space back to the disk."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import holdfast
from holdfast.queue import Queue

MESSAGE = 10_000  # bytes
MESSAGES = 2_000
FILLED, SMALL = 20_000_000, 3_000_000


def size(folder: Path) -> int:
    found = [os.path.join(above, name) for above, _, names in os.walk(folder) for name in names]
    return sum(os.path.getsize(path) for path in found)


async def fill(queue: Queue[bytes]) -> None:
    for _ in range(MESSAGES // 20):  # small enough to be in the database
        await queue.enqueue_many([os.urandom(MESSAGE) for _ in range(20)])


@pytest.fixture
async def broker(tmp_path: Path):
    async with holdfast.connect(tmp_path.as_uri()) as broker:
        kept = await broker.queue("kept")
        await kept.enqueue_many(range(100))
        await fill(await broker.queue("q", bytes))
        assert size(tmp_path) > FILLED
        yield broker
        assert (await kept.stats()).pending == 100
        assert sorted([each.value for each in await kept.dequeue_many(100)]) == list(range(100))


async def test_a_purged_queue(broker: holdfast.Broker, tmp_path: Path):
    assert await (await broker.queue("q", bytes)).purge() == MESSAGES
    assert size(tmp_path) < SMALL


async def test_a_deleted_queue(broker: holdfast.Broker, tmp_path: Path):
    await broker.delete_queue("q", force=True)
    assert size(tmp_path) < SMALL


async def test_while_others_read_and_write(broker: holdfast.Broker, tmp_path: Path):
    """Nobody is refused; whoever still reads an old state puts it off until the next time."""
    async with holdfast.connect(tmp_path.as_uri()) as other:
        busy = await other.queue("busy")
        purging = asyncio.create_task((await broker.queue("q", bytes)).purge())
        sent = 0
        while not purging.done():
            await busy.enqueue(sent)
            await other.stats()
            sent += 1
        await purging
        assert (await busy.stats()).pending == sent
    await broker.store.space.shrink()
    assert size(tmp_path) < SMALL


async def test_maintenance_of_a_folder_that_was_purged_by_an_earlier_version(tmp_path: Path):
    async with holdfast.connect(tmp_path.as_uri()) as broker:
        await fill(await broker.queue("q", bytes))
        space = broker.store.space
        for key in await space.read(lambda view: view.list("q@")):
            if key.endswith("/head"):
                continue
            await space.transact(lambda tx, key=key: tx.delete(key))
        assert size(tmp_path) > FILLED / 2
    async with holdfast.connect(tmp_path.as_uri()) as broker:
        await broker.maintain()
        assert size(tmp_path) < SMALL
