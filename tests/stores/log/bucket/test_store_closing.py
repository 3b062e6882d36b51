"""Closing a store on a bucket has a deadline, whatever is under way and whatever the bucket does."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast.config import QueueOptions
from holdfast.errors import StoreError
from holdfast.stores.log.bucket import space
from holdfast.stores.log.space import Reading
from holdfast.stores.records import Envelope, Settlement
from tests.stores.log.bucket.far_bucket import FarBucket, process

LONG = 60.0  # seconds an operation may take otherwise


@pytest.mark.parametrize("kind", ["create", "swap"])
async def test_closing_does_not_wait_for_a_bucket_that_does_not_answer(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "_CLOSING", 0.5)
    store, door = await process(FarBucket(time.time, resolution=0.001), timeout=LONG)
    await store.create_queue("q", QueueOptions(archive=False))
    await store.append("q", [Envelope(b"x")])
    (held,) = (await store.claim("q", 1, 30.0)).messages
    door.fate = lambda what, key: "refuse" if what == kind else "ok"
    call = (
        store.append("q", [Envelope(b"y")])
        if kind == "create"
        else store.settle("q", [Settlement(held.id, held.token, "complete")])
    )
    under_way = asyncio.ensure_future(call)
    await asyncio.sleep(0.2)
    assert not under_way.done()
    begun = time.monotonic()
    await store.close()
    assert time.monotonic() - begun < 5.0
    with pytest.raises(StoreError):
        await asyncio.wait_for(under_way, 5.0)


async def test_closing_does_not_wait_for_many_slow_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that goes on asking, as a flush of many blocks does, is given up between two requests."""
    monkeypatch.setattr(space, "_CLOSING", 0.5)
    store, _ = await process(FarBucket(time.time, resolution=0.001), timeout=LONG)
    await store.create_queue("q", QueueOptions(archive=False))

    def slow(view: Reading) -> None:
        for number in range(100):
            time.sleep(0.1)
            view.get(f"absent/{number}")

    under_way = asyncio.ensure_future(store._space.read(slow))
    await asyncio.sleep(0.2)
    begun = time.monotonic()
    await store.close()
    assert time.monotonic() - begun < 5.0
    with pytest.raises(StoreError, match="being closed"):
        await asyncio.wait_for(under_way, 5.0)
