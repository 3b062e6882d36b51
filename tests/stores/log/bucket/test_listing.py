"""Lists of a bucket: what a head may absorb from them, in which order, and what happens when a block is not there."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.config import QueueOptions
from holdfast.errors import Damaged
from holdfast.stores.base import DEAD
from holdfast.stores.log.bucket.store import LateStore
from holdfast.stores.records import Envelope, Settlement
from tests.stores.log.bucket.far_bucket import Door, FarBucket, process
from tests.stores.log.bucket.test_repeat_schedules import SHORT, WINDOW

DEADLINE = 20.0


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SHORT.items():
        if not name.startswith("head.machine."):
            monkeypatch.setattr(f"holdfast.stores.log.{name}", value)


@pytest.fixture
def bucket() -> FarBucket:
    return FarBucket(time.time, resolution=0.001)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.01)


async def take(store: LateStore, limit: int = 1) -> list[str]:
    return [each.payload.decode() for each in (await store.claim("q", limit, 600.0)).messages]


async def complete_one(store: LateStore) -> str:
    (held,) = (await store.claim("q", 1, 600.0)).messages
    assert await store.settle("q", [Settlement(held.id, held.token, "complete", keep=False)]) == ["ok"]
    return held.payload.decode()


class SlowList(Door):
    """The next answer to a list of the inbox is held back until `go` is set."""

    def list(self, prefix: str | None = None, *, offset: str | None = None, chunk_size: int = 50) -> Any:
        pages = list(super().list(prefix, offset=offset, chunk_size=chunk_size))
        if not self.listed.is_set() and any("/inbox/" in each["path"] for page in pages for each in page):
            self.listed.set()
            self.go.wait(DEADLINE)
        return iter(pages)

    listed: threading.Event
    go: threading.Event


def hold_back_lists(door: Door) -> SlowList:
    door.__class__ = SlowList
    assert isinstance(door, SlowList)
    door.listed, door.go = threading.Event(), threading.Event()
    return door


async def test_a_block_that_was_forgotten_while_a_list_was_under_way_does_not_come_back(bucket: FarBucket) -> None:
    (a, _), (b, door) = await process(bucket), await process(bucket)
    await a.create_queue("q", QueueOptions())
    await a.append("q", [Envelope(b"finished")])
    assert await complete_one(b) == "finished"
    (finished,) = bucket.named("/inbox/")
    await a.append("q", [Envelope(b"other")])
    assert await take(a) == ["other"], "so the head is another than B knows"
    slow = hold_back_lists(door)
    claiming = asyncio.create_task(take(b, 3))
    await until(slow.listed.is_set)
    for number in range(5):  # the head holds more blocks than B knew
        await a.append("q", [Envelope(str(number).encode())])
        await take(a)
    async with asyncio.timeout(DEADLINE):
        while finished in bucket.objects:
            await asyncio.sleep(WINDOW / 5)
    for number in range(5, 7):  # the next commit forgets it
        await a.append("q", [Envelope(str(number).encode())])
        await take(a)
    slow.go.set()
    assert "finished" not in await claiming
    assert (await a.stats("q")).processing == 8, "what A holds; nothing came back"
    await a.close()
    await b.close()


async def test_claims_that_follow_each_other_keep_priorities(bucket: FarBucket) -> None:
    """Blocks are absorbed ahead: later ones that are more urgent go first all the same."""
    store, _ = await process(bucket)
    await store.create_queue("q", QueueOptions())
    for number in range(10):
        await store.append("q", [Envelope(f"low{number}".encode())])
    assert await take(store) == ["low0"]
    other, _ = await process(bucket)
    for number in range(8):
        await other.append("q", [Envelope(f"high{number}".encode(), priority=5)])
    await asyncio.sleep(0.7)  # every list is old
    got = [(await take(store))[0] for _ in range(17)]
    assert got == [f"high{number}" for number in range(8)] + [f"low{number}" for number in range(1, 10)]
    await store.close()
    await other.close()


async def test_a_block_that_is_missing_holds_up_nobody(bucket: FarBucket) -> None:
    """Whatever took it: its messages end as dead letters, the others are delivered."""
    store, _ = await process(bucket)
    await store.create_queue("q", QueueOptions())
    await store.append("q", [Envelope(b"lost"), Envelope(b"lost too")])
    (lost,) = bucket.named("/inbox/")
    await store.append("q", [Envelope(b"sound")])
    assert await take(store) == ["lost"], "absorbed"
    del bucket.objects[lost]
    fresh, _ = await process(bucket)
    got: list[str] = []
    async with asyncio.timeout(DEADLINE):
        while not got:
            try:
                got = await take(fresh, 5)
            except Damaged as error:
                assert lost in str(error)
    assert got == ["sound"]
    await until_dead(fresh, 1)
    await store.close()
    await fresh.close()


async def test_a_flush_whose_block_is_missing_ends(bucket: FarBucket) -> None:
    store, _ = await process(bucket)
    await store.create_queue("q", QueueOptions())
    await store.append("q", [Envelope(b"lost")])
    (lost,) = bucket.named("/inbox/")
    (held,) = (await store.claim("q", 1, 600.0)).messages
    fresh, _ = await process(bucket)
    del bucket.objects[lost]
    assert await fresh.settle("q", [Settlement(held.id, held.token, "dead", error="killed")]) == ["ok"]
    await until_dead(fresh, 1)
    await store.close()
    await fresh.close()


async def until_dead(store: LateStore, count: int) -> None:
    async with asyncio.timeout(DEADLINE):
        while True:
            await store.maintain("q")
            letters = await store.scan("q", "dead", limit=10)
            if len(letters) == count and not (await store._log("q").committer.ask()).head.frozen:
                return
            await asyncio.sleep(0.05)


async def test_a_bundle_does_not_bring_back_what_was_cancelled(bucket: FarBucket) -> None:
    store, _ = await process(bucket)
    await store.create_queue("q", QueueOptions(archive=False))
    ids = await store.append("q", [Envelope(b"cancelled", priority=9), Envelope(b"stays")])  # two blocks, one bundle
    parts = bucket.named("/parts/")
    assert len(parts) == 2
    assert await store.cancel("q", ids[0])
    async with asyncio.timeout(DEADLINE):
        while len(bucket.named("/parts/")) == 2:  # deleted; the next commit forgets it
            await asyncio.sleep(WINDOW / 5)
            await store.maintain("q")
    await store.append("q" + DEAD, [Envelope(b"anything")])
    await store.maintain("q")
    fresh, _ = await process(bucket)
    assert await take(fresh, 5) == ["stays"]
    await store.close()
    await fresh.close()


def test_only_a_head_makes_tickets() -> None:
    """So that a list cannot be judged by a head that was read after it."""
    engine = Path(holdfast.__file__).parent / "stores" / "log"
    made = [path.name for path in engine.rglob("*.py") if re.search(r"(?<!class )\bListTicket\(", path.read_text())]
    assert made == ["state.py"]
