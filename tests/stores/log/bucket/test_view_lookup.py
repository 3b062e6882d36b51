"""Looks at a bucket are no snapshots: what leaves in the middle of one is found where it went."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.config import QueueOptions
from holdfast.stores.records import Envelope, Settlement
from tests.stores.log.bucket.far_bucket import Door, FarBucket, process
from tests.stores.log.bucket.test_listing import DEADLINE, short_windows, until

__all__ = ["short_windows"]  # a fixture for all tests here


class SlowDoor(Door):
    """The first answer about a key that has `part` in it is held back until `go` is set."""

    part: str
    held: threading.Event
    go: threading.Event

    @classmethod
    def on(cls, door: Door, part: str) -> SlowDoor:
        door.__class__ = cls
        assert isinstance(door, cls)
        door.part, door.held, door.go = part, threading.Event(), threading.Event()
        return door

    def list(self, prefix: str | None = None, *, offset: str | None = None, chunk_size: int = 50) -> Iterator[Any]:
        pages = list(super().list(prefix, offset=offset, chunk_size=chunk_size))
        self._hold(f"{prefix}/")
        return iter(pages)

    def get(self, path: str, *, options: Any = None) -> Any:
        self._hold(path)
        return super().get(path, options=options)

    def _hold(self, key: str) -> None:
        if self.part in key and not self.held.is_set():
            self.held.set()
            self.go.wait(DEADLINE)


@pytest.mark.parametrize("look", ["scan", "get"])
@pytest.mark.parametrize("action", ["complete", "dead"])
async def test_what_is_flushed_during_a_look_is_found(look: str, action: str) -> None:
    """The head that was read has its rows, and its block is gone before it is read."""
    bucket = FarBucket(time.time, resolution=0.001)
    (a, _), (b, door) = await process(bucket), await process(bucket)
    await a.create_queue("q", QueueOptions())
    (id,) = await a.append("q", [Envelope(b"x")])
    (held,) = (await a.claim("q", 1, 600.0)).messages
    assert await a.settle("q", [Settlement(held.id, held.token, action, error="why")]) == ["ok"]  # type: ignore[arg-type]
    (block,) = bucket.named("/inbox/")
    slow = SlowDoor.on(door, "/archive/" if look == "scan" and action == "complete" else "/inbox/")
    kind = "archive" if action == "complete" else "dead"
    looking = asyncio.create_task(b.scan("q", kind) if look == "scan" else b.get("q", [id]))  # type: ignore[arg-type]
    await until(slow.held.is_set)
    await a._log("q").flusher.flush_all()
    await until(lambda: block not in bucket.objects)
    slow.go.set()
    (found,) = await looking
    assert found is not None
    assert (found.id, found.status) == (id, "completed" if action == "complete" else "dead")
    await a.close()
    await b.close()


@pytest.mark.parametrize("action", ["complete", "dead"])
async def test_what_is_flushed_while_a_lost_block_is_looked_for_is_found(action: str) -> None:
    """Its block was deleted by others; when the look makes sure that the head names it, the flush is over."""
    bucket = FarBucket(time.time, resolution=0.001)
    (a, _), (b, _) = await process(bucket), await process(bucket)
    await a.create_queue("q", QueueOptions())
    (id,) = await a.append("q", [Envelope(b"x")])
    (held,) = (await a.claim("q", 1, 600.0)).messages
    assert await a.settle("q", [Settlement(held.id, held.token, action, error="why")]) == ["ok"]  # type: ignore[arg-type]
    bucket.remove(bucket.named("/inbox/"))
    window, loop = b._log("q").window, asyncio.get_running_loop()
    make_sure, asked = window.left, list[str]()

    def left(view: Any, root: str, block: Any) -> None:
        if not asked:
            flushed = asyncio.run_coroutine_threadsafe(a._log("q").flusher.flush_all(), loop)
            flushed.result(DEADLINE)
        asked.append(block.key)
        make_sure(view, root, block)

    window.left = left  # type: ignore[method-assign]  # the moment that the test decides on
    kind: Any = "archive" if action == "complete" else "dead"
    found = await b.scan("q", kind)
    assert [each.id for each in found] == [id], "one who looks at this moment would believe that it is nowhere"
    assert len(asked) == 1, "the next look has a head without it"
    await a.close()
    await b.close()


async def test_what_is_flushed_between_a_list_and_the_head_is_found() -> None:
    """The list shows an old head and no dead letter yet; the head that is read instead has forgotten the message."""
    bucket = FarBucket(time.time, resolution=0.001)
    (a, _), (b, door) = await process(bucket), await process(bucket)
    await a.create_queue("q", QueueOptions())
    (id,) = await a.append("q", [Envelope(b"x")])
    (held,) = (await a.claim("q", 1, 600.0)).messages
    assert await b.get("q", [id])  # knows a head, which the list will show to be an old one
    assert await a.settle("q", [Settlement(held.id, held.token, "dead", error="why")]) == ["ok"]
    slow = SlowDoor.on(door, "q@")
    looking = asyncio.create_task(b.get("q", [id]))
    await until(slow.held.is_set)
    await a._log("q").flusher.flush_all()
    slow.go.set()
    (found,) = await looking
    assert found is not None
    assert (found.id, found.status) == (id, "dead")
    await a.close()
    await b.close()
