"""A commit that outlives its deadline: its callers have been told, and whoever asks next is not its business."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.config import QueueOptions, StoreOptions
from holdfast.errors import Unavailable
from holdfast.stores.log.memory import MemorySpace
from holdfast.stores.log.space import Unclear
from holdfast.stores.log.store import LogStore
from holdfast.stores.records import Envelope


class Stalling(MemorySpace):
    """One step is given up by its caller while it waits to run, and runs later all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.stalls = False
        self.left: list[Callable[[Any], Any]] = []

    async def transact(self, step: Callable[[Any], Any], **options: Any) -> Any:
        if self.stalls:
            self.stalls = False
            self.left.append(step)
            raise Unclear("no answer in time")
        return await super().transact(step, **options)


async def test_a_step_that_was_given_up_takes_nobody_elses_request() -> None:
    space = Stalling()
    store = LogStore(space, StoreOptions())
    await store.create_queue("q", QueueOptions())
    await store.append("q", [Envelope(b"1")])
    space.stalls = True
    with pytest.raises(Unclear):
        await store.claim("q", 1, 30.0)
    next_claim = asyncio.create_task(store.claim("q", 1, 30.0))
    while not store._log("q").committer._waiting:
        await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        space.transact_from_thread(space.left[0])
    claims = await asyncio.wait_for(next_claim, 10.0)
    assert [each.payload for each in claims.messages] == [b"1"]
    await store.close()
