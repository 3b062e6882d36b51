"""The blocking face under the same tests: each of its calls runs in a thread, so that it can be awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, cast

from ...broker import Broker
from ...stores.base import Store
from .base import StoreContract

# What gives its answer at once in both faces.
_PLAIN = frozenset({"worker", "on", "deliveries"})


class Awaited:
    """A blocking object whose methods are awaited. What they give is wrapped too, what they get is unwrapped."""

    def __init__(self, blocking: Any) -> None:
        self._blocking = blocking

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._blocking, name)
        if not callable(found) or isinstance(found, type):
            return wrap(found)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return wrap(
                await asyncio.to_thread(found, *map(unwrap, args), **{key: unwrap(one) for key, one in kwargs.items()})
            )

        def call_now(*args: Any, **kwargs: Any) -> Any:
            return wrap(found(*map(unwrap, args), **{key: unwrap(one) for key, one in kwargs.items()}))

        return call_now if name in _PLAIN else call

    def __repr__(self) -> str:
        return f"Awaited({self._blocking!r})"


def wrap(value: Any) -> Any:
    """Objects of the blocking face become awaited ones, also inside lists."""
    if isinstance(value, list):
        return [wrap(one) for one in value]
    if isinstance(value, Generator):
        return _awaited(value)
    return Awaited(value) if type(value).__module__ == "holdfast.sync" else value


async def _awaited(values: Generator[Any]) -> AsyncIterator[Any]:
    while (found := await asyncio.to_thread(next, values, None)) is not None:
        yield wrap(found)


def unwrap(value: Any) -> Any:
    """Awaited objects become the blocking ones, also in lists; values of the tests stay as they are."""
    if isinstance(value, Awaited):
        return value._blocking
    if isinstance(value, list) and any(isinstance(one, Awaited) for one in value):
        return [unwrap(one) for one in value]
    return value


class SyncFace(StoreContract):
    """Mix in first, and say how a blocking broker is opened: `class TestSync(SyncFace, All)`."""

    def open_blocking(self) -> Any:
        """What `holdfast.sync.connect(url)` gives."""
        raise NotImplementedError

    async def open_broker(self) -> Broker:
        opening: Callable[[], Any] = self.open_blocking
        return cast(Broker, Awaited(await asyncio.to_thread(opening)))

    @property
    def store(self) -> Store:
        raise AssertionError("the seam has no blocking face: leave `Seam` and `Disturbances` out")

    async def clock(self) -> float:
        return time.time()
