"""Real processes, really killed: nothing acknowledged is lost, nothing is archived twice, no late holder succeeds."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

import holdfast
from holdfast.broker import Broker
from holdfast.config import StoreOptions
from holdfast.stores.log import open_folder

CHILD = Path(__file__).with_name("crashing.py")
LATER = 30.0  # seconds by which a later look is later: every flush of the dead counts as abandoned by then
ROWS = 1000  # outcomes that make a flush at once


class Child:
    """A process that plays a role of `crashing.py` until it is killed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[list[str]] = []

    @classmethod
    async def spawn(cls, role: str, *words: object) -> Child:
        command = [sys.executable, str(CHILD), role, *map(str, words)]
        return cls(await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE))

    async def hear(self, count: int, word: str) -> None:
        """Until it has said so many lines that begin with this word."""
        async with asyncio.timeout(30):
            while sum(line[0] == word for line in self.lines) < count:
                await self._line()

    async def kill(self) -> None:
        """SIGKILL, and hear what it still had said."""
        if self.process.returncode is None:
            self.process.kill()
        await self.end()

    async def end(self) -> int:
        """Until it is dead; how it ended."""
        async with asyncio.timeout(60):
            while await self._line():
                pass
            return await self.process.wait()

    async def _line(self) -> bool:
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode()
        if line.endswith("\n"):  # the last one may be torn
            self.lines.append(line.split())
        return bool(line)

    def said(self, word: str) -> list[list[str]]:
        return [line[1:] for line in self.lines if line[0] == word]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
async def broker(folder: Path) -> AsyncIterator[Broker]:
    async with holdfast.connect(folder) as broker:
        yield broker


async def look_later(folder: Path) -> Broker:
    """The store as somebody sees it who comes when everything left behind may be taken over."""
    return Broker(await open_folder(folder, StoreOptions(), clock=lambda: time.time() + LATER))


async def all_of(view: Any) -> list[str]:
    """All ids of the dead letters or the archive, page by page."""
    ids: list[str] = []
    while page := await view.list(limit=500, after=ids[-1] if ids else None):
        ids += [record.id for record in page]
    return ids


def rows_on_disk(folder: Path) -> list[str]:
    """Every id in every archive file, read as anybody with pyarrow would."""
    files = [parquet.ParquetFile(path) for path in folder.rglob("*.parquet")]
    return [id for file in files for id in file.read(columns=["id"]).column("id").to_pylist()]


async def test_message_of_a_worker_killed_in_its_handler_is_redelivered(folder: Path, broker: Broker) -> None:
    queue = await broker.queue("jobs")
    ids = await queue.enqueue_many([1, 2, 3])
    child = await Child.spawn("handle", folder, 1.0)
    await child.hear(2, "started")
    await child.kill()
    assert await queue.status(ids[2]) == "pending"
    taken: dict[str, int] = {}
    while len(taken) < 3:
        delivery = await queue.dequeue(lease=60, wait=10)
        assert delivery is not None
        taken[delivery.id] = delivery.attempt
        await delivery.complete()
    assert taken == dict(zip(ids, [2, 2, 1], strict=True))
    assert await all_of(queue.archive) == ids


async def test_worker_that_always_dies_runs_out_of_attempts(folder: Path, broker: Broker) -> None:
    queue = await broker.queue("jobs", max_attempts=2)
    id = await queue.enqueue("poison")
    for _ in range(2):
        child = await Child.spawn("handle", folder, 0.5)
        await child.hear(1, "started")
        await child.kill()
    innocent = await queue.enqueue("innocent")
    delivery = await queue.dequeue(lease=60, wait=10)
    while delivery is not None and delivery.id != innocent:
        delivery = await queue.dequeue(lease=60, wait=10)
    assert delivery is not None
    record = await queue.wait(id, 10)
    assert (record.status, record.attempts, record.error) == ("dead", 2, "lease expired")


@pytest.mark.parametrize("acknowledged", [1, 40, 150])
async def test_nothing_acknowledged_is_lost_when_a_producer_is_killed(folder: Path, acknowledged: int) -> None:
    child = await Child.spawn("enqueue", folder)
    await child.hear(acknowledged, "acknowledged")
    await child.kill()
    sent = [id for [id] in child.said("acknowledged")]
    async with holdfast.connect(folder) as broker:
        queue = await broker.queue("jobs")
        found = {}
        while deliveries := await queue.dequeue_many(500, lease=60):
            found.update({delivery.id: delivery.value for delivery in deliveries})
            assert all(await queue.complete_many(deliveries))
        assert set(sent) <= set(found)
        assert set(found.values()) <= {value for [value] in child.said("trying")}
        assert max(Counter(found.values()).values()) == 1
        assert (await queue.stats()).completed == len(found)


@pytest.mark.parametrize("acknowledged", [1, 12])
async def test_batches_of_a_killed_producer_are_whole_or_absent(folder: Path, acknowledged: int) -> None:
    child = await Child.spawn("enqueue_batches", folder)
    await child.hear(acknowledged, "acknowledged")
    await child.kill()
    async with holdfast.connect(folder) as broker:
        queue = await broker.queue("jobs")
        statuses = {id: await queue.status(id) for _, *ids in child.said("acknowledged") for id in ids}
        assert set(statuses.values()) == {"pending", "delayed"}
        batches = len(child.said("acknowledged"))
        stats = await queue.stats()
        assert stats.pending + stats.delayed in (10 * batches, 10 * batches + 10)
        assert stats.pending == stats.delayed


async def test_append_that_was_not_acknowledged_is_recognised_when_repeated(folder: Path, broker: Broker) -> None:
    queue = await broker.queue("jobs")
    child = await Child.spawn("die_at", folder, "append.committed", "append", 1)
    assert await child.end() == -9
    again = [await queue.enqueue("half acknowledged", dedup_key="k") for _ in range(2)]
    assert len(set(again)) == 1
    assert (await queue.stats()).total == 1
    delivery = await queue.dequeue(lease=60)
    assert delivery is not None
    assert delivery.id == again[0]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kills", [[1], [30, 3, 55]])
async def test_killed_consumers_complete_everything_once(folder: Path, broker: Broker, kills: list[int]) -> None:
    queue = await broker.queue("jobs", max_attempts=99)
    ids = await queue.enqueue_many(range(200))
    completed: list[str] = []
    receipts: dict[str, str] = {}
    for after in kills:
        child = await Child.spawn("work", folder)
        await child.hear(after, "completed")
        await child.kill()
        receipts |= dict(child.said("started"))
        completed += [id for [id] in child.said("completed")]
    assert len(set(completed)) == len(completed)
    rest = await drain(queue, until=200)
    assert not set(completed) & set(rest)
    assert await all_of(queue.archive) == ids
    late = [receipt for id, receipt in receipts.items() if id in rest]
    assert await queue.complete_many(late) == [False] * len(late)
    later = await look_later(folder)
    await later.maintain()
    assert await all_of((await later.queue("jobs")).archive) == ids
    await later.close()
    assert sorted(rows_on_disk(folder)) == ids


async def drain(queue: Any, *, until: int) -> list[str]:
    """Complete the rest, until so many are completed in all; the ids."""
    done: list[str] = []
    deadline = time.monotonic() + 30
    while (await queue.stats()).completed < until:
        assert time.monotonic() < deadline, "the rest did not come"
        for delivery in await queue.dequeue_many(50, lease=60, wait=1):
            await delivery.complete(delivery.value)
            done.append(delivery.id)
    return done


async def test_holder_that_comes_back_after_its_lease_changes_nothing(folder: Path, broker: Broker) -> None:
    queue = await broker.queue("jobs")
    ids = await queue.enqueue_many(range(3))
    child = await Child.spawn("hold", folder, 0.5)
    await child.hear(3, "held")
    receipts = [receipt for [receipt] in child.said("held")]
    rest = await drain(queue, until=3)
    assert sorted(rest) == ids
    assert await queue.complete_many(receipts, ["late"] * 3) == [False] * 3
    for receipt in receipts:
        with pytest.raises(holdfast.LeaseLost):
            await queue.extend(receipt, 60)
    await child.kill()
    assert [record.result for record in await queue.archive.list()] == [0, 1, 2]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("action", ["complete", "kill"])
@pytest.mark.parametrize("step", ["flush.frozen", "flush.written", "flush.dropped"])
async def test_flush_cut_short_is_finished_by_others(folder: Path, broker: Broker, step: str, action: str) -> None:
    queue = await broker.queue("jobs")
    ids = await queue.enqueue_many(range(ROWS))
    child = await Child.spawn("die_at", folder, step, action, ROWS)
    assert await child.end() == -9
    view = queue.archive if action == "complete" else queue.dead
    assert await all_of(view) == ids
    later = await look_later(folder)
    await later.maintain()
    theirs = await later.queue("jobs")
    assert await all_of(theirs.archive if action == "complete" else theirs.dead) == ids
    stats = await theirs.stats()
    assert (stats.total, stats.pending, stats.processing) == (ROWS, 0, 0)
    assert (stats.archived, stats.dead) == ((ROWS, 0) if action == "complete" else (0, ROWS))
    await later.close()
    assert sorted(rows_on_disk(folder)) == (ids if action == "complete" else [])
    assert await queue.dequeue() is None
