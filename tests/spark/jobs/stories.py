"""Queues with a past: messages that were completed, retried, failed and buried."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import holdfast

TRIES = 3


async def handle(value: dict[str, Any], context: holdfast.Context) -> dict[str, int]:
    number = value["n"]
    if number % 50 == 7:
        raise ValueError(f"order {number} has no street")
    if number % 50 == 8:
        raise holdfast.Dead(f"order '{number}' is a duplicate")
    if number % 10 == 3 and context.attempt == 1:
        raise holdfast.Retry(0.05)
    await asyncio.sleep(0.001 * (number % 5))
    return {"done": number}


async def tell(url: str, name: str, count: int, *, first: int = 0) -> None:
    """Send so many messages and work until all have ended."""
    async with holdfast.connect(url) as broker:
        queue = await broker.queue(name, max_attempts=TRIES, retry=holdfast.Fixed(0.05))
        before = await queue.stats()
        await queue.enqueue_many([{"n": number} for number in range(first, first + count)], headers={"of": name})
        async with queue.worker(handle, concurrency=50):
            async with asyncio.timeout(60):
                while (now := await queue.stats()).completed + now.dead < before.completed + before.dead + count:
                    await asyncio.sleep(0.02)


def story(folder: Path, name: str = "emails", count: int = 300, *, first: int = 0) -> str:
    """The URL of a store with such a queue."""
    url = (folder / "store").as_uri()
    asyncio.run(tell(url, name, count, first=first))
    return url


def dead_of(count: int, first: int = 0) -> int:
    return sum(number % 50 in (7, 8) for number in range(first, first + count))
