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

_SIGNAL_S = 0.1  # for which a signal may go unheard
_NO_MORE = "cannot schedule new futures after"
_EXIT_S = 1.0  # the loop gets so long to end when the interpreter does


class Portal:
    """One event loop for everything that blocks in this process.

    Its thread starts with the first call and ends with the last broker: what is in the loop is counted, calls under
    way and open brokers.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._inside = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._exiting = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the coroutine, run in the loop."""
        try:
            loop = self._enter()
        except ConfigError:
            work.close()  # or it would be said that nobody ever awaited it
            raise
        try:
            return _wait_for(work, loop)
        finally:
            self.leave()

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop, for those who have something open in it; ConfigError where waiting would be for ever."""
        loop = self._enter()
        self._inside -= 1
        return loop

    def serves(self, loop: asyncio.AbstractEventLoop) -> bool:
        """It is the loop of our thread."""
        return loop is self._loop

    def keeps(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Something stays in the loop, if it is ours, until it calls `leave`."""
        with self._lock:
            if loop is not self._loop:
                return False
            self._inside += 1
            return True

    def leave(self) -> None:
        """A call is over, or something that stayed has left; after the last one the loop ends."""
        with self._lock:
            self._inside -= 1
            if self._inside or self._exiting:
                return
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        _stop(loop, thread)

    def _enter(self) -> asyncio.AbstractEventLoop:
        if self._process != os.getpid():
            raise ConfigError("this was opened before a fork; open it again in the child process")
        if self._thread is threading.current_thread():
            raise ConfigError("a blocking call inside the event loop would wait for itself; use the async API there")
        with self._lock:
            if self._loop is None:
                self._loop = self._start()
            self._inside += 1
            return self._loop

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(_complain)
        self._thread = threading.Thread(target=self._serve, args=(loop,), name="holdfast-sync", daemon=True)
        self._thread.start()
        atexit.unregister(self._end)
        atexit.register(self._end)
        return loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.run_forever()
        if not self._exiting:  # an interpreter that ends starts no threads, which this may need
            _wind_up(loop)

    def _end(self) -> None:
        """Stop before the interpreter takes things away under a running loop."""
        if self._process == os.getpid():
            self._exiting = True
            _stop(self._loop, self._thread)


def _complain(loop: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
    """As usual, but for what can no longer be begun: an interpreter that ends takes threads away before the loop."""
    if not (isinstance(error := about.get("exception"), RuntimeError) and _NO_MORE in str(error)):
        loop.default_exception_handler(about)


def _stop(loop: asyncio.AbstractEventLoop | None, thread: threading.Thread | None) -> None:
    if loop is not None and thread is not None:
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(_EXIT_S)


def _wind_up(loop: asyncio.AbstractEventLoop) -> None:
    """As `asyncio.run` ends: nothing is left of it."""
    try:
        loop.run_until_complete(_cancel_all(asyncio.all_tasks(loop)))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


async def _cancel_all(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


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
    that the system gives to another thread, does not end the wait; so it is restarted now and then.
    """
    if threading.current_thread() is not threading.main_thread():
        return answer.get()
    while True:
        try:
            return answer.get(timeout=_SIGNAL_S)
        except Empty:
            continue


# One per process, as its thread is: a child of a fork finds its parent's here, and makes its own.
_portals: dict[int, Portal] = {}


def portal() -> Portal:
    """The portal of this process."""
    process = os.getpid()
    return _portals.get(process) or _portals.setdefault(process, Portal())


def may_wait(loop: asyncio.AbstractEventLoop) -> bool:
    """The loop serves callers that block: it may wait for a disk as they do."""
    ours = _portals.get(os.getpid())
    return ours is not None and ours.serves(loop)


def kept(loop: asyncio.AbstractEventLoop) -> Portal | None:
    """The portal whose loop this is, which stays until its `leave` is called; None: the loop is somebody else's."""
    ours = _portals.get(os.getpid())
    return ours if ours is not None and ours.keeps(loop) else None
