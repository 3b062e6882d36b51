"""Processes: eight of them on one store. Only for stores that give a `shared_url`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ...broker import connect
from ...errors import HoldfastError
from .base import LONG, PATIENCE, StoreContract, eventually

PROCESSES = 8
MESSAGES = 1000


class Processes(StoreContract):
    """What one process is told holds for all."""

    async def spawn(self, role: str, *arguments: Any) -> asyncio.subprocess.Process:
        """A child process that plays a role of this module on the shared store."""
        if self.shared_url is None:
            pytest.skip("this store belongs to one process")
        words = [role, self.shared_url, *map(str, arguments)]
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast.testing.contract.processes", *words),
            stdout=asyncio.subprocess.PIPE,
        )

    async def told(self, process: asyncio.subprocess.Process) -> Any:
        """What the child printed at its end."""
        out, _ = await process.communicate()
        assert process.returncode == 0
        return json.loads(out)

    @pytest.mark.timeout(120)
    async def test_eight_processes_complete_a_thousand_messages_once(self) -> None:
        queue = await self.queue()
        children = [await self.spawn("consume") for _ in range(PROCESSES)]
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

    async def test_waiting_claim_hears_of_another_process(self) -> None:
        queue = await self.queue()
        waiting = asyncio.create_task(queue.dequeue(lease=LONG, wait=2 * PATIENCE))
        [id] = await self.told(await self.spawn("produce", 1))
        delivery = await asyncio.wait_for(waiting, PATIENCE)
        assert delivery is not None
        assert delivery.id == id

    async def test_message_of_a_killed_process_comes_back(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue("survivor")
        child = await self.spawn("hold", 1.0)
        await eventually(lambda: self.is_now(queue, id, "processing"), "the child's claim")
        child.kill()
        await child.wait()
        delivery = await self.take(queue)
        assert (delivery.id, delivery.attempt) == (id, 2)


async def consume(url: str) -> list[int]:
    """Complete what comes, until everything is done."""
    done: list[int] = []
    async with connect(url) as broker:
        queue = await broker.queue("jobs")
        while (await queue.stats()).completed < MESSAGES:
            for delivery in await queue.dequeue_many(7, lease=LONG, wait=0.2):
                await delivery.complete()
                done.append(delivery.value)
    return done


async def produce(url: str, count: str) -> list[str]:
    async with connect(url) as broker:
        queue = await broker.queue("jobs")
        return [await queue.enqueue(n) for n in range(int(count))]


async def hold(url: str, lease: str) -> None:
    """Claim one message and never settle it."""
    async with connect(url) as broker:
        queue = await broker.queue("jobs")
        if await queue.dequeue(lease=float(lease), wait=PATIENCE) is None:
            raise HoldfastError("nothing to hold")
        await asyncio.Event().wait()


ROLES: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {"consume": consume, "produce": produce, "hold": hold}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(ROLES[sys.argv[1]](*sys.argv[2:]))))
