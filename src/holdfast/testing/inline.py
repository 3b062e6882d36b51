"""Handlers that run at once: for the tests of those who use Holdfast."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from .. import config
from ..app import App, AppHandler
from ..broker import Broker
from ..config import StoreOptions
from ..stores import log
from ..stores.records import Stored
from ..worker import Worker
from ..worker.in_flight import Job
from .clock import ManualClock

Key = tuple[str, str]  # queue, id

_WAITING = ("delayed", "retry")
_MISSED_S = 0.05  # until the next look, should a wake-up be missed


def inline(app: Any, *, raise_errors: bool = True, timeout: float = 60.0) -> Inline:
    """Within `with` or `async with`, `enqueue` of the app's handlers returns when the handler has run.

    The app works on a private store in memory. Retries and dead letters really happen, without waiting: time is moved
    by `inline.clock`. When the attempts are used up the handler's last exception is raised by `enqueue`;
    `raise_errors=False` leaves it to the dead letters. What a handler enqueues has run too when the first call returns.
    """
    return Inline(getattr(app, "core", app), raise_errors=raise_errors, timeout=timeout)


class Inline:
    """An app whose messages are handled as soon as they are enqueued."""

    def __init__(self, app: App, *, raise_errors: bool, timeout: float) -> None:
        self.app = app
        self.clock = ManualClock()
        self._raise_errors = raise_errors
        self._timeout = timeout
        self._pending: dict[Key, None] = {}  # in order
        self._errors: dict[Key, BaseException] = {}
        self._changed = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._inside = contextvars.ContextVar("inside", default=False)
        self._before: tuple[Any, ...] | None = None

    # ------------------------------------------------------------------ in and out

    def __enter__(self) -> Inline:
        app = self.app
        if app._observer is not None:
            raise RuntimeError("this app is inline already")
        self._before = (app._broker, app._loop, app._opening, app._opener)
        app._broker, app._loop, app._opening = None, None, None
        app._opener, app._observer = self._open, self._observe
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        broker, loop = self._leave()
        if broker is None or loop is None or loop.is_closed():
            return
        if loop is _running_loop():
            self._closing = loop.create_task(broker.close())
        else:
            asyncio.run_coroutine_threadsafe(broker.close(), loop).result(self._timeout)

    async def __aenter__(self) -> Inline:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        broker, _ = self._leave()
        if broker is not None:
            await broker.close()

    def _leave(self) -> tuple[Broker | None, asyncio.AbstractEventLoop | None]:
        """Put everything back; the broker that was used, and its loop."""
        app, used = self.app, (self.app._broker, self.app._loop)
        assert self._before is not None
        app._broker, app._loop, app._opening, app._opener = self._before
        app._observer = None
        return used

    async def _open(self) -> Broker:
        options = StoreOptions()
        store = await log.open_memory("", options, clock=self.clock)
        return Broker(store, url="memory://", settings=config.load(), options=options)

    # ------------------------------------------------------------------ running

    async def _observe(self, handler: AppHandler[Any, Any, Any], ids: list[str]) -> None:
        keys = [(handler.queue_name, id) for id in ids]
        self._pending.update(dict.fromkeys(keys))
        self._changed.set()
        if self._inside.get():  # a handler enqueues: a caller that waits for the handler waits for this too
            return
        async with self._one_at_a_time:
            async with asyncio.timeout(self._timeout):
                await self._work_off()
        if self._raise_errors:
            self._raise_first(keys)

    async def _work_off(self) -> None:
        self._inside.set(True)  # inherited by the lanes and their threads
        workers = [await self._worker(handler) for handler in self.app.choose()]
        try:
            for worker in workers:
                await worker.start()
            while self._pending:
                self._changed.clear()
                await self._move_on()
        finally:
            self._inside.set(False)
            await asyncio.gather(*(worker.stop(0.0) for worker in workers))

    async def _worker(self, handler: AppHandler[Any, Any, Any]) -> Worker:
        worker = await handler.worker()

        def watch(job: Job) -> None:
            key = (job.queue.name, job.message.id)
            if job.error is not None:
                self._errors[key] = job.error
            else:
                self._errors.pop(key, None)
            self._changed.set()

        worker._watch = watch
        return worker

    async def _move_on(self) -> None:
        """Forget what has ended; when everything else waits for its time, let the time come; else wait for news."""
        known = [(key, await self._look(key)) for key in list(self._pending)]
        for key, stored in known:
            if stored is None or stored.status in ("completed", "failed", "dead"):
                del self._pending[key]
        left = [stored for _, stored in known if stored is not None and _is_live(stored)]
        if left and all(stored.status in _WAITING for stored in left):
            due = min(stored.visible_at or 0.0 for stored in left)
            self.clock.advance(max(0.0, due - self.clock()) + 0.001)
        elif left:
            await self._news()

    async def _look(self, key: Key) -> Stored | None:
        broker = await self.app.broker()
        return (await broker.store.get(key[0], [key[1]]))[0]

    async def _news(self) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), _MISSED_S)
        except TimeoutError:
            pass

    def _raise_first(self, keys: Iterable[Key]) -> None:
        """The error of one of these, or of what they led to."""
        for key in [*keys, *self._errors]:
            if (error := self._errors.get(key)) is not None:
                self._errors.clear()
                raise error


def _is_live(stored: Stored) -> bool:
    return stored.status not in ("completed", "failed", "dead")


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
