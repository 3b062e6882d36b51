"""What a worker needs of the queue it works for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from ..config import QueueOptions
from ..stores.base import DEAD, Store
from ..stores.records import Answer, Settlement
from .in_flight import Job
from .isolation import Gate


class Events(Protocol):
    """The emitter of `events.py`."""

    def wants(self, event: str) -> bool: ...

    def emit(self, event: str, **fields: Any) -> None: ...


class Source:
    """A queue, seen from its worker. Options and lease may change while it runs."""

    def __init__(
        self,
        name: str,
        *,
        store: Callable[[], Store],
        options: Callable[[], QueueOptions],
        settle: Callable[[Sequence[Settlement]], Awaitable[list[Answer]]],
        refresh: Callable[[], Awaitable[object]],
        lease: float | None,
        decode: Callable[[bytes, str], Any],
        delivery: Callable[[Job], Any],
        events: Events,
        gate: Gate,
        maintenance_interval: float,
    ) -> None:
        self.name = name
        self.settle = settle
        self.refresh = refresh
        self.decode = decode
        self.delivery = delivery
        self.events = events
        self.gate = gate
        self.maintenance_interval = maintenance_interval
        self.is_letters = name.endswith(DEAD)
        self._store = store
        self._options = options
        self._lease = lease

    @property
    def store(self) -> Store:
        """Asked for each time: a broker that was closed says so."""
        return self._store()

    @property
    def options(self) -> QueueOptions:
        return self._options()

    @property
    def lease(self) -> float:
        """Seconds: the worker's own, or the queue's."""
        return self._options().lease if self._lease is None else self._lease
