"""An event loop whose time is virtual and whose waiting gives the baton away. Only public hooks of asyncio are used."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from typing import Any

from .baton import Bell, World
from .seams import Executor

_SLOW = 0.02  # how often a busy loop is held up between two rounds


class _Selector(selectors.BaseSelector):
    """Waits for time and for calls from other threads; nothing else is ever ready."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._bell = Bell(world)
        self._called = False
        self._map: dict[Any, selectors.SelectorKey] = {}

    def ring(self) -> None:
        self._called = True
        self._bell.ring()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            if self._world.random.random() < _SLOW:
                self._world.sleep(self._world.jitter())
            elif self._world.current.is_dying:
                self._world.sleep(0.0)  # raises
        elif not self._called:
            self._bell.wait(timeout)
        self._called = False
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._map[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._map.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._map


class VirtualLoop(asyncio.SelectorEventLoop):
    """One per simulated process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._doorbell = _Selector(world)
        self._helpers = Executor()
        super().__init__(self._doorbell)
        self.set_exception_handler(self._failed)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error in a callback of a living process; a killed one leaves tasks behind, which is no error."""
        error = context.get("exception")
        if isinstance(error, Exception) and not self._world.is_over and self._world.failure is None:
            self._world.failure = error

    def time(self) -> float:
        return self._world.monotonic()

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self._doorbell.ring()
        return handle

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        return super().run_in_executor(executor or self._helpers, func, *args)
