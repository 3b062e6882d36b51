"""An event loop in a thread of its own, and the way into it for threads that block."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import threading
from collections.abc import Coroutine
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from .errors import ConfigError

T = TypeVar("T")

_LISTEN = 0.1  # seconds for which a signal may go unheard
_LAST_WORDS = 1.0  # seconds the loop gets to end when the interpreter does


class Portal:
    """One event loop for everything that blocks in this process; its thread starts when first needed."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the coroutine, run in the loop."""
        try:
            loop = self.loop()
        except ConfigError:
            work.close()  # or it would be said that nobody ever awaited it
            raise
        return _wait_for(work, loop)

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop; ConfigError where waiting for it would be for ever."""
        if self._process != os.getpid():
            raise ConfigError("this was opened before a fork; open it again in the child process")
        with self._starting:
            if self._loop is None:
                self._loop = self._start()
        if self._thread is threading.current_thread():
            raise ConfigError("a blocking call inside the event loop would wait for itself; use the async API there")
        return self._loop

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="holdfast-sync", daemon=True)
        self._thread.start()
        atexit.register(self._end)
        return loop

    def _end(self) -> None:
        """Stop before the interpreter takes things away under a running loop."""
        if self._process == os.getpid() and self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_LAST_WORDS)


class Visit:
    """The same for an event loop that somebody else runs, in another thread than ours."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return _wait_for(work, self._loop)

    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop


def _wait_for(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """A leaner `run_coroutine_threadsafe`; an interrupted wait cancels the work."""
    answer: SimpleQueue[asyncio.Task[T]] = SimpleQueue()
    started: list[asyncio.Task[T]] = []

    def start() -> None:
        task = loop.create_task(work)
        started.append(task)
        task.add_done_callback(answer.put)

    def give_up() -> None:
        if started:
            started[0].cancel()
        else:
            work.close()

    try:
        loop.call_soon_threadsafe(start, context=contextvars.copy_context())
        task = _got(answer)
    except BaseException:  # KeyboardInterrupt, or whatever else a signal handler raises
        loop.call_soon_threadsafe(give_up)
        raise
    return task.result()


def _got(answer: SimpleQueue[T]) -> T:
    """The answer, once it is there.

    Python calls signal handlers in the main thread, when that runs. A signal that comes just before the wait begins, or
    that the system gives to another thread, does not end the wait; so it is begun anew now and then.
    """
    if threading.current_thread() is not threading.main_thread():
        return answer.get()
    while True:
        try:
            return answer.get(timeout=_LISTEN)
        except Empty:
            continue


# One per process, as its thread is: a child of a fork finds its parent's here, and makes its own.
_portals: dict[int, Portal] = {}


def portal() -> Portal:
    """The portal of this process."""
    process = os.getpid()
    return _portals.get(process) or _portals.setdefault(process, Portal())
