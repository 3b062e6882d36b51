"""What the tests of workers stand on: real stores, and waiting for a condition with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from inspect import isawaitable
from pathlib import Path
from typing import Any

import holdfast
from holdfast.broker import Broker
from tests.toy_store import ToyStore

KINDS = ("toy", "memory", "file")


@asynccontextmanager
async def broker_on(kind: str, folder: Path) -> AsyncIterator[Broker]:
    """A broker on a fresh store of this kind."""
    if kind == "toy":
        async with Broker(ToyStore()) as broker:
            yield broker
        return
    url = "memory://" if kind == "memory" else (folder / "data").as_uri()
    async with holdfast.connect(url) as broker:
        yield broker


async def until(holds: Callable[[], Any] | Callable[[], Awaitable[Any]], seconds: float = 20.0) -> None:
    """Wait for a condition; an error when it does not come about in time."""
    deadline = time.monotonic() + seconds
    while True:
        answer = holds()
        if await answer if isawaitable(answer) else answer:
            return
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.005)


async def finished(queue: holdfast.Queue[Any], *ids: str, seconds: float = 20.0) -> list[str]:
    """The states of these messages, once they have ended."""
    return [(await queue.wait(id, timeout=seconds)).status for id in ids]
