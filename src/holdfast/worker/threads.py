"""Threads for sync handlers. Daemons: a handler that never returns must not keep the process from ending."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class Threads:
    """At most `limit` threads of one event loop, started when needed."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._started = 0
        self._running = 0
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """The result of the call, made in a thread; cancelling the future does not stop the thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        self._running += 1

        def work() -> None:
            try:
                result, error = context.run(function, *args), None
            except BaseException as raised:  # noqa: BLE001 - raised again in the waiting caller
                result, error = None, raised
            try:
                loop.call_soon_threadsafe(self._hand_over, future, result, error)
            except RuntimeError:  # the loop is closed: nobody waits any more
                pass

        self._work.put(work)
        if self._running > self._started and self._started < self._limit:
            self._started += 1
            threading.Thread(target=self._run, name=f"{self._name}-{self._started}", daemon=True).start()
        return future

    def close(self) -> None:
        """Idle threads end at once, busy ones when their call returns."""
        for _ in range(self._started):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # or an idle thread would keep the last message alive

    def _hand_over(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._running -= 1
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration | GeneratorExit):  # a future refuses it; a slot would end by it
            future.set_exception(RuntimeError(f"the handler raised {type(error).__name__}: {error}"))
        else:
            future.set_exception(error)
