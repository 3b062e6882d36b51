"""The store a job works on, looked at from the driver."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ... import config
from ...broker import Broker, connect
from ...errors import QueueNotFound
from ...loop_thread import portal
from ...stores.opening import redact

T = TypeVar("T")


def ask(url: str | None, question: Callable[[Broker], Awaitable[T]]) -> T:
    """Open the store, ask, close it."""

    async def work() -> T:
        async with connect(url) as broker:
            return await question(broker)

    return portal().run(work())


def queues_of(url: str | None, names: Sequence[str]) -> list[str]:
    """These queues, or all when none is named; QueueNotFound."""

    async def look(broker: Broker) -> list[str]:
        return [info.name for info in await broker.store.queues()]

    there = ask(url, look)
    for name in names:
        if config.queue_name(name) not in there:
            raise QueueNotFound(config.unknown("there is no queue", name, there))
    if not (names or there):
        raise QueueNotFound("the store has no queues yet")
    return list(dict.fromkeys(names or there))


def place_of(url: str | None) -> str:
    """The store's name in things that are kept: its URL without secrets."""
    found = url if url is not None else config.load().url or config.DEFAULT_URL
    return redact(found).partition("?")[0]
