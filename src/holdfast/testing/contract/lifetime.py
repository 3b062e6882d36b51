"""How long a store stays open, and where: one event loop, dropped brokers, brokers closed under their workers."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ...broker import Broker
from ...errors import ConfigError
from ...queue import Queue
from .base import PATIENCE_S, Gate, StoreContract, eventually

_DESCRIPTORS = "/dev/fd"
_DROPPED = 4  # brokers


class Lifetime(StoreContract):
    """Nothing is left of a broker that nobody has, and it never waits in a loop that is not its own."""

    async def test_every_verb_in_another_event_loop_is_refused_in_a_sentence(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1)
        held = await self.take(queue)
        verbs: list[Callable[[], Coroutine[Any, Any, object]]] = [
            *(lambda: queue.enqueue(2), lambda: queue.enqueue_many([2, 3]), lambda: queue.dequeue(wait=1)),
            *(lambda: held.complete(), lambda: held.fail("no"), lambda: held.release(), lambda: held.extend(60)),
            *(lambda: queue.get(id), lambda: queue.wait(id, 1), lambda: queue.cancel(id), queue.stats, queue.purge),
            *(queue.pause, queue.refresh, queue.dead.list, queue.archive.count, queue.worker(print).start),
            *(lambda: self.broker.queue("other"), self.broker.queues, self.broker.stats, self.broker.maintain),
            self.broker.close,
        ]
        for verb in verbs:
            with pytest.raises(ConfigError, match="event loop"):
                await asyncio.to_thread(asyncio.run, asyncio.wait_for(verb(), PATIENCE_S))
        stats = await queue.stats()
        assert (stats.processing, stats.total) == (1, 1)
        await held.complete()

    async def test_a_broker_of_a_loop_that_has_ended_says_so(self) -> None:
        broker = await asyncio.to_thread(asyncio.run, self._opened_elsewhere())
        with pytest.raises(ConfigError, match="has ended"):
            await broker.queues()

    async def _opened_elsewhere(self) -> Broker:
        if not self.several_brokers:
            pytest.skip("this store is opened once at a time")
        return await self.open_broker()

    @pytest.mark.parametrize("loop", ["goes on", "has ended"])
    async def test_a_dropped_broker_gives_everything_back(self, loop: str) -> None:
        if not self.several_brokers:
            pytest.skip("this store is opened once at a time")
        await self._used_and_dropped(loop)  # what a process makes once it keeps
        before = _left()
        for _ in range(_DROPPED):
            await self._used_and_dropped(loop)

        def is_as_before() -> bool:
            """Less than one of a kind for each: a thread that brokers share may have been made late, with its loop."""
            gc.collect()
            return all(now < then + _DROPPED for now, then in zip(_left(), before, strict=True))

        await eventually(is_as_before, f"having about as many threads and descriptors as {before}, {_left()} at first,")

    async def _used_and_dropped(self, loop: str) -> None:
        if loop == "goes on":
            await self._use(await self.open_broker())
        else:
            await asyncio.to_thread(asyncio.run, self._open_and_use())
        gc.collect()

    async def _open_and_use(self) -> None:
        await self._use(await self.open_broker())

    async def _use(self, broker: Broker) -> None:
        queue: Queue[int] = await broker.queue("dropped")
        await queue.enqueue_many(range(2))
        held = await queue.dequeue(wait=PATIENCE_S)
        assert held is not None
        await asyncio.to_thread(broker.store.extend_from_thread, queue.name, [(held.id, held.token)], 60)
        await held.complete()

    async def test_a_queue_outlives_its_broker(self) -> None:
        if not self.several_brokers:
            pytest.skip("this store is opened once at a time")
        queue = await (await self.open_broker()).queue("kept")
        gc.collect()
        await asyncio.sleep(0)
        assert await queue.status(await queue.enqueue(1)) == "pending"
        queue = None  # type: ignore[assignment] # dropped

    @pytest.mark.parametrize("kind", ["async", "sync"])
    async def test_closing_under_a_running_worker_releases_its_messages(self, kind: str) -> None:
        if not self.keeps_data:
            pytest.skip("this store forgets when it is closed")
        begun: list[int] = []
        gate = Gate()

        async def wait_async(value: int) -> None:
            begun.append(value)
            await asyncio.Event().wait()

        def wait_sync(value: int) -> None:
            begun.append(value)
            gate.wait_blocking()

        queue = await self.queue(lease=60, max_attempts=2)
        await queue.enqueue_many([1, 2])
        worker = queue.worker(wait_async if kind == "async" else wait_sync, concurrency=2)
        await worker.start()
        try:
            await eventually(lambda: len(begun) == 2, "both handlers run")
            await self.reopen()
        finally:
            gate.open()
        assert not worker.is_running
        await worker.wait()  # it was stopped, nothing failed
        again = await self.take_all(await self.queue(), 2)
        assert [delivery.attempt for delivery in again] == [1, 1]


def _left() -> tuple[int, int]:
    """Threads of ours, and open descriptors."""
    threads = sum(thread.name.startswith("holdfast") for thread in threading.enumerate())
    return threads, len(os.listdir(_DESCRIPTORS))
