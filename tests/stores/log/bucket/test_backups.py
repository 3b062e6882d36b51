"""A backup of a bucket that others work on: each message in one state, and an end in time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from holdfast.config import QueueOptions
from holdfast.stores.log.backups import LogSnapshot
from holdfast.stores.log.bucket.store import LateStore
from holdfast.stores.records import Envelope, Settlement
from tests.stores.log.bucket.far_bucket import FarBucket, process
from tests.stores.log.bucket.test_listing import short_windows, until
from tests.stores.log.bucket.test_view_lookup import SlowDoor

__all__ = ["short_windows"]  # a fixture for all tests here


async def _states(store: LateStore) -> Counter[tuple[str, str]]:
    """How often a backup has each message, by id and section."""
    found: Counter[tuple[str, str]] = Counter()
    async with store.backups.snapshot(["q"]) as snapshot:
        assert isinstance(snapshot, LogSnapshot)
        [queue] = snapshot.queues
        for section in ("open", "dead", "archive"):
            for part in queue.parts[section]:  # type: ignore[index]  # a section
                async for rows in snapshot.read(queue, section, part):  # type: ignore[arg-type]  # a section
                    found.update((id, section) for id in _ids(rows))
    return found


def _ids(rows: object) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(rows)) if isinstance(rows, bytes) else rows
    assert isinstance(table, pa.Table)
    return [str(each) for each in table.column("id").to_pylist()]


@pytest.mark.parametrize("part", ["/archive/", "/inbox/", "/head"])
@pytest.mark.parametrize("action", ["complete", "dead"])
async def test_a_flush_in_the_middle_of_a_look_shows_nothing_twice(action: str, part: str) -> None:
    bucket = FarBucket(time.time, resolution=0.001)
    (a, _), (b, door) = await process(bucket), await process(bucket)
    await a.create_queue("q", QueueOptions())
    ids = await a.append("q", [Envelope(b"x")] * 3)
    await a.append("q", [Envelope(b"y")])
    held = (await a.claim("q", 3, 600.0)).messages
    await b.stats("q")  # it knows the head
    slow = SlowDoor.on(door, part)
    looking = asyncio.create_task(_states(b))
    await until(lambda: slow.held.is_set() or looking.done())
    settled = [Settlement(each.id, each.token, action, error="why") for each in held]  # type: ignore[arg-type]
    assert await a.settle("q", settled) == ["ok"] * 3
    await a._log("q").flusher.flush_all()
    slow.go.set()
    found = await looking
    assert Counter(id for id, _ in found) == dict.fromkeys([*ids, *(id for id, _ in found if id not in ids)], 1)
    assert len(found) == 4
    await a.close()
    await b.close()


async def test_a_backup_ends_while_others_write_and_complete_without_pause() -> None:
    bucket = FarBucket(time.time, resolution=0.001)
    (a, _), (b, _) = await process(bucket), await process(bucket)
    await a.create_queue("q", QueueOptions())
    sent: dict[str, float] = {}
    stop = False

    async def work() -> None:
        while not stop:
            for id in await a.append("q", [Envelope(b"x")] * 2):
                sent[id] = time.monotonic()
            held = (await a.claim("q", 1, 600.0)).messages
            await a.settle("q", [Settlement(each.id, each.token, "complete") for each in held])

    working = asyncio.create_task(work())
    await until(lambda: len(sent) > 50)
    for _ in range(3):
        began = time.monotonic()
        async with asyncio.timeout(20):
            found = await _states(b)
        assert {id for id, at in sent.items() if at < began} <= {id for id, _ in found}
        assert max(Counter(id for id, _ in found).values()) == 1
    stop = True
    await working
    await a.close()
    await b.close()
