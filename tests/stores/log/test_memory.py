from __future__ import annotations

import asyncio

import pytest

from holdfast.stores.log.memory import MemorySpace
from holdfast.stores.log.space import Space
from tests.stores.log.space_suite import SpaceSuite, keys


class ManualClock:
    def __init__(self):
        self.now = 1000.0
        self.callbacks = []

    def __call__(self):
        return self.now

    def on_advance(self, callback):
        self.callbacks.append(callback)

    def advance(self, seconds: float):
        self.now += seconds
        for callback in self.callbacks:
            callback()


class TestMemorySpace(SpaceSuite):
    @pytest.fixture
    async def space(self):
        space: Space = MemorySpace()
        yield space
        await space.close()


async def test_a_manual_clock_wakes_every_watcher():
    clock = ManualClock()
    space = MemorySpace(clock)
    watching = [asyncio.create_task(space.watch(topic, 10)) for topic in ("a", "a", "b")]
    before = space.ticket("c")
    await asyncio.sleep(0)
    clock.advance(5)
    assert await asyncio.gather(*watching) == [True, True, True]
    assert await space.watch("c", 0, since=before)
    assert space.clock() == 1005.0
    assert await space.transact(lambda tx: tx.now) == 1005.0


async def test_uninstall_forgets_everything():
    space = MemorySpace()
    await space.transact(lambda tx: tx.put("a", b"x"))
    await space.uninstall()
    assert await space.read(keys()) == []
