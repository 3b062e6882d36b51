"""Who joins a commit: not one that outlived its deadline, nor, with what must last, one that does not."""

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
from holdfast.stores.records import Envelope, Settlement


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


class Joined(MemorySpace):
    """Another call comes while a step waits to run."""

    def __init__(self) -> None:
        super().__init__()
        self.lasting: list[bool] = []
        self.comes: Callable[[], Any] | None = None
        self.came: asyncio.Task[Any] | None = None

    async def transact(self, step: Callable[[Any], Any], *, lasting: bool = True, **options: Any) -> Any:
        self.lasting.append(lasting)
        if self.comes is not None:
            self.came, self.comes = asyncio.create_task(self.comes()), None
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return await super().transact(step, lasting=lasting, **options)


async def test_what_must_last_does_not_join_a_commit_that_does_not() -> None:
    """A claim may be lost with the machine; who is told that a message has ended may not lose that."""
    space = Joined()
    store = LogStore(space, StoreOptions())
    await store.create_queue("q", QueueOptions())
    await store.append("q", [Envelope(b"1"), Envelope(b"2")])
    first = (await store.claim("q", 1, 30.0)).messages[0]
    space.lasting.clear()
    space.comes = lambda: store.settle("q", [Settlement(first.id, first.token, "complete")])
    assert len((await store.claim("q", 1, 30.0)).messages) == 1
    assert space.came is not None
    assert await space.came == ["ok"]
    assert space.lasting == [False, True]
    await store.close()
