"""What the suite's child processes do on a store: `python -m holdfast.testing.roles produce URL 1`.

It stands apart from the suite because a child that imports all of it, and pytest, takes three times as long to start.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from ..broker import connect
from ..errors import HoldfastError


async def consume(url: str, count: str) -> list[int]:
    """Say that it is here, then complete what comes, until so many are done."""
    done: list[int] = []
    async with connect(url) as broker:
        queue = await broker.queue("jobs")
        await (await broker.queue("here")).enqueue("ready")
        while (await queue.stats()).completed < int(count):
            for delivery in await queue.dequeue_many(7, lease=60.0, wait=0.2):
                await delivery.complete()
                done.append(delivery.value)
    return done


async def produce(url: str, count: str) -> list[str]:
    async with connect(url) as broker:
        queue = await broker.queue("jobs")
        return [await queue.enqueue(n) for n in range(int(count))]


async def hold(url: str, lease: str, patience: str) -> None:
    """Claim one message and never settle it."""
    async with connect(url) as broker:
        queue = await broker.queue("jobs")
        if await queue.dequeue(lease=float(lease), wait=float(patience)) is None:
            raise HoldfastError("nothing to hold")
        await asyncio.Event().wait()


ROLES: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {"consume": consume, "produce": produce, "hold": hold}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(ROLES[sys.argv[1]](*sys.argv[2:]))))
