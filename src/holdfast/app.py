"""An app: handlers declared where their functions are, on one store that opens on first use."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from . import config
from .broker import Broker, connect
from .codecs import Codec, Format, codec_for
from .config import QueueOptions, StoreOptions, WorkerOptions
from .errors import ConfigError
from .messages import Message
from .queue import Queue
from .schedules import Schedule, check
from .scheduling import from_mapping
from .stores.records import Enqueued
from .worker import Worker, signals
from .worker.choice import Wanted, checked, is_pattern
from .worker.handler import Handler

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F")

_CALLBACKS = ("on_error", "on_complete", "worker_id")
_WORKER_KEYS = (*WorkerOptions.__struct_fields__, *_CALLBACKS)
_QUEUE_KEYS = QueueOptions.__struct_fields__


class AppHandler(Generic[T, P, R]):
    """A function that handles the messages of a queue: call it as before, or `enqueue` what it will be called with.

    One of several queues enqueues to the first.
    """

    def __init__(
        self,
        app: App,
        function: Callable[P, R],
        queues: str | Wanted,
        *,
        type: Any,
        codec: str | Format | None,
        options: Mapping[str, Any],
    ) -> None:
        self.app = app
        self.function = function
        self.wanted = None if isinstance(queues, str) else checked(queues)  # None: it is of one queue
        self.queue_names = [config.queue_name(queues)] if isinstance(queues, str) else list(checked(queues))
        self.queue_name = self.queue_names[0]
        self.queue_options, self.worker_options = _split(", ".join(self.queue_names), options)
        self._type = type
        self._codec = codec
        Codec(type, codec)  # a bad type is said where it was written
        Handler(function, batch=self.worker_options.get("batch") is not None)
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    async def queue(self) -> Queue[T]:
        """The queue of this handler, opened."""
        opened: Queue[T] = await self.app.queue(self.queue_name, self._type, codec=self._codec, **self.queue_options)
        return opened

    @overload
    async def enqueue(self, value: T | Message[T], *, report: Literal[False] = False, **terms: Any) -> str: ...
    @overload
    async def enqueue(self, value: T | Message[T], *, report: Literal[True], **terms: Any) -> Enqueued: ...
    async def enqueue(self, value: T | Message[T], *, report: bool = False, **terms: Any) -> str | Enqueued:
        """As `Queue.enqueue`."""
        made: str | Enqueued = await (await self.queue()).enqueue(value, report=report, **terms)
        await self.app._enqueued(self, _ids([made]))
        return made

    @overload
    async def enqueue_many(
        self, values: Iterable[T | Message[T]], *, report: Literal[False] = False, **terms: Any
    ) -> list[str]: ...
    @overload
    async def enqueue_many(
        self, values: Iterable[T | Message[T]], *, report: Literal[True], **terms: Any
    ) -> list[Enqueued]: ...
    async def enqueue_many(
        self, values: Iterable[T | Message[T]], *, report: bool = False, **terms: Any
    ) -> list[str] | list[Enqueued]:
        """As `Queue.enqueue_many`."""
        made: list[str] | list[Enqueued] = await (await self.queue()).enqueue_many(values, report=report, **terms)
        await self.app._enqueued(self, _ids(made))
        return made

    async def worker(self, **options: Any) -> Worker:
        """A worker of this handler; options win over those of the decorator."""
        given = {key: value for key, value in options.items() if value is not None}
        options = {**self.worker_options, **given}
        if self.wanted is None:
            return (await self.queue()).worker(self.function, **options)
        for name in self.queue_names:
            if not is_pattern(name):
                await self.app.queue(name, self._type, codec=self._codec, **self.queue_options)
        return (await self.app.broker()).worker(self.function, self.wanted, self._type, codec=self._codec, **options)

    def __repr__(self) -> str:
        return f"<handler {self.function.__qualname__} of {', '.join(map(repr, self.queue_names))}>"


Opener = Callable[[], Awaitable[Broker]]
Observer = Callable[[AppHandler[Any, Any, Any], list[str]], Awaitable[None]]


class App:
    """Handlers and the store they share. The options are those of the store."""

    def __init__(self, url: str | os.PathLike[str] | None = None, **options: Any) -> None:
        config.options(StoreOptions, options, where="App")
        self.url = url
        self.handlers: dict[str, AppHandler[Any, Any, Any]] = {}
        self.schedules: dict[str, Schedule] = {}
        self._options = options
        self._broker: Broker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Lock | None = None
        self._opener: Opener = self._connect  # testing.inline puts another store here
        self._observer: Observer | None = None  # and looks on through this
        self._on_open: list[Callable[[Broker], object]] = []

    # ------------------------------------------------------------------ handlers

    @overload
    def handler(
        self, name: str | Wanted, type: type[T], *, codec: str | Format | None = None, **options: Any
    ) -> Callable[[Callable[P, R]], AppHandler[T, P, R]]: ...

    @overload
    def handler(
        self, name: str | Wanted, type: Any = None, *, codec: str | Format | None = None, **options: Any
    ) -> Callable[[Callable[P, R]], AppHandler[Any, P, R]]: ...

    def handler(
        self, name: str | Wanted, type: Any = None, *, codec: str | Format | None = None, **options: Any
    ) -> Callable[[Callable[P, R]], AppHandler[Any, P, R]]:
        """Declare the function below as the handler of a queue, with options of the queue and of its worker.

        Of several queues: names and patterns as `Broker.worker` takes them, with one worker for all of them.
        """

        def declare(function: Callable[P, R]) -> AppHandler[Any, P, R]:
            declared: AppHandler[Any, P, R] = AppHandler(self, function, name, type=type, codec=codec, options=options)
            for each in declared.queue_names:
                if each in self.handlers:
                    raise ConfigError(f"queue {each!r} has a handler already: {self.handlers[each]!r}")
            self.handlers |= dict.fromkeys(declared.queue_names, declared)
            return declared

        return declare

    def schedule(
        self, queue: str, cron: str | None = None, *, name: str | None = None, **said: Any
    ) -> Callable[[F], F]:
        """Declare a schedule, by itself or above a handler; it is applied when the app's workers start.

        `said` are the fields of `Schedule`; without a `name` it is the queue's.
        """
        schedule = from_mapping(
            name or queue, {"queue": queue, "cron": cron, **said}, where=f"schedule {name or queue}"
        )
        check(schedule)
        if schedule.name in self.schedules:
            raise ConfigError(f"there is a schedule {schedule.name!r} already; give this one a name of its own")
        self.schedules[schedule.name] = schedule
        return lambda function: function

    async def _declare(self, queues: Iterable[str]) -> None:
        """Apply the schedules of this app and of holdfast.yaml; those that are gone from both are orphans."""
        book = (await self.broker()).schedules
        written = [(schedule, codec_for(None, None)) for schedule in book.written()]
        if twice := {schedule.name for schedule, _ in written} & set(self.schedules):
            raise ConfigError(f"schedule {min(twice)!r} is declared both in {config.FILE} and in the app")
        declared = [(schedule, self._codec(schedule.queue)) for schedule in self.schedules.values()]
        await book.declare([*declared, *written], queues)

    def _codec(self, queue: str) -> Codec[Any]:
        handler = self.handlers.get(queue)
        return codec_for(None, None) if handler is None else Codec(handler._type, handler._codec)

    # ------------------------------------------------------------------ the store

    async def broker(self) -> Broker:
        """The broker, opened when it is not yet."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._enter(loop)
        if self._broker is None:
            assert self._opening is not None
            async with self._opening:
                if self._broker is None:
                    self._broker = await self._opener()
                    for ready in self._on_open:
                        ready(self._broker)
        return self._broker

    @overload
    async def queue(
        self, name: str, type: None = None, *, codec: str | Format | None = None, **options: Any
    ) -> Queue[Any]: ...

    @overload
    async def queue(
        self, name: str, type: type[T], *, codec: str | Format | None = None, **options: Any
    ) -> Queue[T]: ...

    @overload
    async def queue(self, name: str, type: Any, *, codec: str | Format | None = None, **options: Any) -> Queue[Any]: ...

    async def queue(
        self, name: str, type: Any = None, *, codec: str | Format | None = None, **options: Any
    ) -> Queue[Any]:
        """Any queue of the app's store."""
        return await (await self.broker()).queue(name, type, codec=codec, **options)

    def on_open(self, callback: Callable[[Broker], object]) -> None:
        """Call back with the broker whenever it was opened, before anything uses it: for events, or to trace."""
        self._on_open.append(callback)

    async def open(self) -> App:
        """Open the store now rather than on first use."""
        await self.broker()
        return self

    async def close(self) -> None:
        """Close the store; the next use opens it again. Calling it twice is harmless."""
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.close()

    async def __aenter__(self) -> App:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        """A broker lives in one event loop. One that was left behind in a loop that has ended is forgotten."""
        if self._broker is not None and self._loop is not None and not self._loop.is_closed():
            raise ConfigError("this app is open in another event loop; close it there, or use an app of your own")
        self._broker, self._loop, self._opening = None, loop, asyncio.Lock()

    async def _connect(self) -> Broker:
        return await connect(self.url, **self._options)

    async def _enqueued(self, handler: AppHandler[Any, Any, Any], ids: list[str]) -> None:
        if self._observer is not None:
            await self._observer(handler, ids)

    # ------------------------------------------------------------------ workers

    async def workers(self, queues: Iterable[str] | None = None, **options: Any) -> list[Worker]:
        """A worker for each handler, or for those of these queues; nothing runs yet."""
        chosen = self.choose(queues)
        workers = [await handler.worker(**options) for handler in chosen]
        if (await self.broker()).store.schedules is not None:
            await self._declare([name for handler in chosen for name in handler.queue_names])
        return workers

    async def run(self, queues: Iterable[str] | None = None, **options: Any) -> None:
        """Run the workers until SIGTERM or SIGINT; a second signal stops at once. Options win over the decorators'."""
        was_open = self._broker is not None
        try:
            await run_all(await self.workers(queues, **options))
        finally:
            if not was_open:
                await self.close()

    def choose(self, queues: Iterable[str] | None = None) -> list[AppHandler[Any, Any, Any]]:
        """The handlers of these queues, or all; ConfigError."""
        if not self.handlers:
            raise ConfigError("this app has no handlers; declare one with @app.handler(queue)")
        names = list(queues or self.handlers)
        for name in names:
            if name not in self.handlers:
                raise ConfigError(config.unknown("no handler for queue", name, self.handlers))
        return list(dict.fromkeys(self.handlers[name] for name in names))

    def __repr__(self) -> str:
        return f"App({', '.join(map(repr, self.handlers))})"


async def run_all(workers: list[Worker]) -> None:
    """Run these until a signal, or until one of them ends; then all stop."""
    with signals.caught(signals.stopping(workers)):
        running = [asyncio.create_task(_start_and_wait(worker)) for worker in workers]
        try:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await asyncio.gather(*(worker.stop(0.0) for worker in workers))
            raise
        finally:
            await asyncio.gather(*(worker.stop() for worker in workers))
            results = await asyncio.gather(*running, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _start_and_wait(worker: Worker) -> None:
    await worker.start()
    await worker.wait()


def _split(name: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is stored with the queue, and what only its worker knows; a typo is said where it was written."""
    queue: dict[str, Any] = {}
    worker: dict[str, Any] = {}
    for key, value in options.items():
        if key in _WORKER_KEYS:
            worker[key] = value
        elif key not in _QUEUE_KEYS:
            raise ConfigError(config.unknown(f"handler of {name}: unknown key", key, (*_QUEUE_KEYS, *_WORKER_KEYS)))
        elif key == "retry" and callable(value):  # a function cannot be stored
            worker[key] = value
        else:
            queue[key] = value
    config.options(QueueOptions, queue, where=f"handler of {name}")
    own = {key: value for key, value in worker.items() if key in WorkerOptions.__struct_fields__ and value is not None}
    config.options(WorkerOptions, own, where=f"handler of {name}")
    return queue, worker


def _ids(made: Sequence[str | Enqueued]) -> list[str]:
    return [each if isinstance(each, str) else each.id for each in made]
