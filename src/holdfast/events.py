"""Who logs and counts? Subscribers of what this process did. No subscriber, no cost."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from .config import unknown
from .errors import ConfigError
from .escaping import logger_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .stores.records import Answer, Claimed, Claims, Envelope, Settlement

T = TypeVar("T")
Callback: TypeAlias = "Callable[[Event], Awaitable[object] | object]"

# Every event, and the level at which the log tells it.
LEVELS = {
    "message.enqueued": logging.DEBUG,
    "message.completed": logging.DEBUG,
    "message.retry": logging.WARNING,
    "message.dead": logging.ERROR,
    "message.failed": logging.WARNING,
    "message.recovered": logging.WARNING,
    "lease.lost": logging.WARNING,
    "schedule.fired": logging.DEBUG,
    "schedule.missed": logging.WARNING,
    "workers.started": logging.INFO,
    "workers.stopped": logging.INFO,
}
_UNLOGGED = ("result",)  # a user's data

_LOG = logger_named("holdfast.events")


class Event(dict[str, Any]):
    """Something that happened: its fields as a dict that knows its `name`; `event.id` is `event["id"]`."""

    __slots__ = ("name",)

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.name = name

    def __getattr__(self, field: str) -> Any:
        try:
            return self[field]
        except KeyError:
            raise AttributeError(f"{self.name} has no {field!r}") from None

    def __repr__(self) -> str:
        return f"Event({self.name!r}, {dict.__repr__(self)})"


class Tracer(Protocol):
    """Stands around what a broker asks its store, and around handlers: see `otel.py`. Each answers what is asked."""

    async def send(
        self, queue: str, messages: Sequence[Envelope], append: Callable[[Sequence[Envelope]], Awaitable[list[str]]]
    ) -> list[str]:
        """Append these, or the same with further headers."""

    async def receive(self, queue: str, claiming: Awaitable[Claims]) -> Claims: ...

    async def process(self, queue: str, messages: Sequence[Claimed], run: Callable[[], Awaitable[T]]) -> T: ...

    async def settle(
        self, queue: str, settlements: Sequence[Settlement], settling: Awaitable[list[Answer]]
    ) -> list[Answer]: ...


class Emitter:
    """Tells subscribers and the log. Ask `wants` before collecting what an event says."""

    def __init__(self) -> None:
        self._callbacks: dict[str, tuple[Callback, ...]] = {}
        self.tracer: Tracer | None = None
        self.changes = 0  # of who listens
        self._running: set[asyncio.Future[object]] = set()
        self.ends: set[Callable[[], None]] = set()  # to be called when nothing more will be told

    def on(self, event: str, callback: Callback) -> Callable[[], None]:
        """Call back for every event of this name, from now until the returned function is called."""
        if not isinstance(event, str) or event not in LEVELS:
            raise ConfigError(unknown("unknown event", event, LEVELS))
        if not callable(callback):
            raise ConfigError(f"{event}: a callback is a function, not {callback!r}")
        # A fresh tuple each time, so that an emit in another thread never sees a half-changed one.
        self._callbacks[event] = (*self._callbacks.get(event, ()), callback)
        self.changes += 1

        def off() -> None:
            left = list(self._callbacks.get(event, ()))
            if callback in left:
                left.remove(callback)
            self._callbacks[event] = tuple(left)
            self.changes += 1

        return off

    def trace_with(self, tracer: Tracer) -> None:
        """From now on; workers that run already go on without."""
        self.tracer = tracer
        self.changes += 1

    def wants(self, event: str) -> bool:
        """Whether anybody listens, the log included."""
        return bool(self._callbacks.get(event)) or _LOG.isEnabledFor(LEVELS[event])

    def emit(self, event: Event) -> None:
        """Tell everybody who listens; what they raise is logged, never felt."""
        name = event.name
        if _LOG.isEnabledFor(LEVELS[name]):
            _tell_log(event)
        for callback in self._callbacks.get(name, ()):
            try:
                answer = callback(Event(name, event))  # each has its own: a callback may change it
                if inspect.isawaitable(answer):
                    self._follow(name, answer)
            except Exception:  # noqa: BLE001 - the user's callback
                _LOG.exception("a callback of %s failed", name)

    def _follow(self, event: str, answer: Awaitable[object]) -> None:
        """Run an async callback concurrently, and note its end."""
        running = asyncio.ensure_future(answer)
        self._running.add(running)

        def done(future: asyncio.Future[object]) -> None:
            self._running.discard(future)
            if not future.cancelled() and (error := future.exception()) is not None:
                _LOG.error("a callback of %s failed", event, exc_info=error)

        running.add_done_callback(done)

    async def drain(self, timeout: float, *, besides: Collection[object] = ()) -> None:
        """The end: running callbacks may finish, those that take longer are cancelled; `besides` wait for this end."""
        running = {future for future in self._running if future not in besides}
        if running:
            _, late = await asyncio.wait(running, timeout=timeout)
            for future in late:
                future.cancel()
        while self.ends:
            self.ends.pop()()


def _tell_log(event: Event) -> None:
    told = sorted(event.items(), key=lambda field: field[0] == "error")  # it may be long, so it is the last
    said = " ".join(f"{key}={_written(value)}" for key, value in told if key not in _UNLOGGED)
    _LOG.log(LEVELS[event.name], "%s %s", event.name, said)


def _written(value: object) -> object:
    """Seconds to the millisecond."""
    return f"{value:.3f}" if isinstance(value, float) else value
