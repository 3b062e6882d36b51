"""Child processes that are killed: each role tells on stdout what was acknowledged, line by line."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import holdfast
from holdfast.broker import Broker
from holdfast.config import StoreOptions
from holdfast.stores.log import open_folder

FOREVER = 3600.0


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def handle(folder: str, lease: str) -> None:
    """A worker whose handlers begin and never end."""

    async def hang(value: Any) -> None:
        tell("started", value)
        await asyncio.sleep(FOREVER)

    async with holdfast.connect(folder) as broker:
        queue = await broker.queue("jobs")
        await queue.worker(hang, concurrency=2, lease=float(lease)).run()


async def enqueue(folder: str) -> None:
    """Several producers, one message at a time."""
    async with holdfast.connect(folder) as broker:
        queue = await broker.queue("jobs")

        async def produce(producer: int) -> None:
            for n in range(1_000_000):
                tell("trying", f"{producer}-{n}")
                tell("acknowledged", await queue.enqueue(f"{producer}-{n}"))

        await asyncio.gather(*[produce(producer) for producer in range(4)])


async def enqueue_batches(folder: str) -> None:
    """Batches that do not fit one block: mixed priorities and delays."""
    async with holdfast.connect(folder) as broker:
        queue = await broker.queue("jobs")
        for n in range(1_000_000):
            batch = [holdfast.Message(n, priority=place % 3, delay=FOREVER * (place % 2)) for place in range(10)]
            tell("acknowledged", n, *await queue.enqueue_many(batch))


async def work(folder: str) -> None:
    """Takes and completes, as fast as it can."""
    async with holdfast.connect(folder) as broker:
        queue = await broker.queue("jobs")
        while True:
            for delivery in await queue.dequeue_many(5, lease=1.0, wait=1):
                tell("started", delivery.id, delivery.receipt)
                await delivery.complete(delivery.value)
                tell("completed", delivery.id)


async def hold(folder: str, lease: str) -> None:
    """Takes everything and settles nothing."""
    async with holdfast.connect(folder) as broker:
        queue = await broker.queue("jobs")
        for delivery in await queue.dequeue_many(100, lease=float(lease), wait=5):
            tell("held", delivery.receipt)
        await asyncio.sleep(FOREVER)


async def die_at(folder: str, step: str, action: str, count: str) -> None:
    """Settles so many messages at once, which makes a flush, and dies at a step of it; or dies in an append."""

    async def steps(name: str) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    broker = Broker(await open_folder(Path(folder), StoreOptions(), steps=steps))
    queue = await broker.queue("jobs")
    if action == "append":
        await queue.enqueue("half acknowledged", dedup_key="k")
        return
    deliveries = await queue.dequeue_many(int(count), lease=60, wait=5)
    if action == "complete":
        await queue.complete_many(deliveries)
    else:
        await asyncio.gather(*[delivery.kill("poison") for delivery in deliveries])
    tell("settled", len(deliveries))
    await asyncio.sleep(FOREVER)


ROLES: dict[str, Callable[..., Awaitable[None]]] = {
    role.__name__: role for role in (handle, enqueue, enqueue_batches, work, hold, die_at)
}

if __name__ == "__main__":
    asyncio.run(ROLES[sys.argv[1]](*sys.argv[2:]))  # type: ignore[arg-type]  # every role is a coroutine function
