"""Processes: eight of them on one store. Only for stores that give a `shared_url`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import Any

import pytest

from .base import LONG_S, PATIENCE_S, StoreContract, eventually

PROCESSES = 8  # that compete
MESSAGES = 300  # every one is completed by itself, by somebody who competes with seven others


class Processes(StoreContract):
    """What one process hears is true for all."""

    async def spawn(self, role: str, *arguments: Any) -> asyncio.subprocess.Process:
        """A child process that plays a role on the shared store."""
        if self.shared_url is None:
            pytest.skip("this store belongs to one process")
        words = [role, self.shared_url, *map(str, arguments)]
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast.testing.roles", *words),
            stdout=asyncio.subprocess.PIPE,
        )

    async def all_here(self) -> None:
        """Every consuming child has opened the store."""
        queue, count = await self.queue("here"), 0
        while count < PROCESSES:
            found = await queue.dequeue_many(PROCESSES, lease=LONG_S, wait=LONG_S)
            assert found, f"only {count} of {PROCESSES} processes came"
            count += len(found)

    async def told(self, process: asyncio.subprocess.Process) -> Any:
        """What the child printed at its end."""
        out, _ = await process.communicate()
        assert process.returncode == 0
        return json.loads(out)

    @pytest.mark.timeout(120)
    async def test_eight_processes_complete_every_message_once(self) -> None:
        queue = await self.queue()
        children = [await self.spawn("consume", MESSAGES) for _ in range(PROCESSES)]
        await self.all_here()  # else the first would be done before the last has started
        await queue.enqueue_many(range(MESSAGES))
        done = [await self.told(child) for child in children]
        assert Counter(n for numbers in done for n in numbers) == Counter(range(MESSAGES))
        stats = await queue.stats()
        assert (stats.completed, stats.archived, stats.pending, stats.processing) == (MESSAGES, MESSAGES, 0, 0)

    @pytest.mark.timeout(120)
    async def test_eight_producing_processes_are_all_counted(self) -> None:
        queue = await self.queue()
        children = [await self.spawn("produce", 25) for _ in range(PROCESSES)]
        ids = [id for child in children for id in await self.told(child)]
        assert len(set(ids)) == PROCESSES * 25
        assert sorted(delivery.id for delivery in await self.take_all(queue, len(ids))) == sorted(ids)

    @pytest.mark.timeout(120)
    async def test_waiting_claim_hears_of_another_process(self) -> None:
        queue = await self.queue()
        waiting = asyncio.create_task(queue.dequeue(lease=LONG_S, wait=2 * LONG_S))
        [id] = await self.told(await self.spawn("produce", 1))
        delivery = await asyncio.wait_for(waiting, PATIENCE_S)
        assert delivery is not None
        assert delivery.id == id

    @pytest.mark.timeout(120)
    async def test_message_of_a_killed_process_comes_back(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue("survivor")
        child = await self.spawn("hold", 1.0, LONG_S)
        await eventually(lambda: self.is_now(queue, id, "processing"), "the child's claim", within=LONG_S)
        child.kill()
        await child.wait()
        delivery = await self.take(queue)
        assert (delivery.id, delivery.attempt) == (id, 2)
