"""SIGTERM and SIGINT as a call in the event loop, for as long as somebody runs, and as before afterwards."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stoppable(Protocol):
    """A worker, which stands above this."""

    def stop_soon(self, grace: float | None = None) -> None: ...


def stopping(workers: Iterable[Stoppable]) -> Callable[[], None]:
    """What a signal does to workers: the first lets running handlers finish, a further one ends them at once."""
    heard = 0

    def hear() -> None:
        nonlocal heard
        heard += 1
        for worker in workers:
            worker.stop_soon(None if heard == 1 else 0.0)

    return hear


class Catcher:
    """A signal handler that passes on to an earlier one of ours, so that several workers of one process all hear."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._active = True
        self._previous: dict[int, Any] = {}

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._active and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._callback)
        if isinstance(previous := self._previous.get(number), Catcher):
            previous(number, frame)

    def install(self) -> None:
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self)

    def remove(self) -> None:
        """Restore what was there, past other catchers of ours that are over too."""
        self._active = False
        for number in SIGNALS:
            current = signal.getsignal(number)
            while isinstance(current, Catcher) and not current._active:
                current = current._previous[number]
                signal.signal(number, current if current is not None else signal.SIG_DFL)


@contextmanager
def caught(callback: Callable[[], None]) -> Iterator[None]:
    """Call back in the running event loop for each signal; outside the main thread nothing is caught."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    catcher = Catcher(loop, callback)
    with _waking(loop):
        catcher.install()
        try:
            yield
        finally:
            catcher.remove()


@contextmanager
def _waking(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Every signal wakes the loop, also one that comes just before it waits, or that another thread is given."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        previous = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        if previous != -1:  # somebody sees to it already, such as asyncio for a handler of the user's own
            signal.set_wakeup_fd(previous)
            yield
            return
        loop.add_reader(ours, ours.recv, 4096)
        try:
            yield
        finally:
            loop.remove_reader(ours)
            if (last := signal.set_wakeup_fd(-1)) != theirs.fileno():
                signal.set_wakeup_fd(last)
