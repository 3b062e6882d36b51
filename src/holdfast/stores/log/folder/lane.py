"""One thread that takes everything that waits for it at once, and how callers on any loop or thread wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from ....errors import Unavailable
from ..topics import Outcome, deliver
from .faults import caused, translated

T = TypeVar("T")
CLOSED = "the store is closed"


class Work:
    """A step with somebody waiting for it: a future of an event loop, or a thread at a gate."""

    __slots__ = ("_turn", "error", "future", "gate", "result", "step")

    def __init__(self, step: Callable[[Any], Any], future: asyncio.Future[Any] | None) -> None:
        self.step = step
        self.future = future
        self.gate: threading.Lock | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self._turn = [None]  # one item: whoever pops it decides, and popping is atomic without a lock
        if future is None:
            self.gate = threading.Lock()
            self.gate.acquire()

    def begin(self) -> bool:
        """True for the first who asks: the thread that runs the step, or the caller who gives up before that."""
        try:
            self._turn.pop()
        except IndexError:
            return False
        return True

    def fail(self, error: BaseException) -> None:
        self.result, self.error = None, error


class Lane:
    """The thread. `run` gets all that waits, sets results or errors, and may wake others along with its callers."""

    def __init__(self, name: str, run: Callable[[list[Work]], list[Outcome]], *, finish: Callable[[], None]) -> None:
        self._run = run
        self._finish = finish
        self._waiting: SimpleQueue[Work | None] = SimpleQueue()
        self._ended = False
        # A daemon: stuck behind another process's lock, it must not keep the interpreter from exiting.
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    async def submit(self, step: Callable[[Any], T], *, deadline: float) -> T:
        """Wait for the step's result; after `deadline` seconds Unavailable."""
        loop = asyncio.get_running_loop()
        work = Work(step, loop.create_future())
        timer = loop.call_later(deadline, _expire, work, deadline)
        self._put(work)
        try:
            return cast(T, await cast("asyncio.Future[Any]", work.future))
        finally:
            timer.cancel()
            work.begin()  # a cancelled caller's step does not run any more

    def submit_from_thread(self, step: Callable[[Any], T], *, deadline: float) -> T:
        """The same, blocking."""
        work = Work(step, None)
        self._put(work)
        if not cast(threading.Lock, work.gate).acquire(timeout=deadline):
            raise _too_late(work, deadline)
        if work.error is not None:
            raise work.error
        return cast(T, work.result)

    def stop(self, timeout: float) -> None:
        """Finish what waits, then end; a thread that is stuck for longer than `timeout` is left behind."""
        self._waiting.put(None)
        self._thread.join(timeout)

    def _put(self, work: Work) -> None:
        self._waiting.put(work)
        if self._ended and work.begin():
            raise Unavailable(CLOSED)

    def _loop(self) -> None:
        while self._round():
            pass
        self._ended = True
        late = self._take()
        for work in late:
            work.fail(Unavailable(CLOSED))
        _answer([work for work in late if work.begin()], [])
        self._finish()

    def _round(self) -> bool:
        """One group; a function of its own so that nothing of it is kept alive while the thread waits for the next."""
        first = self._waiting.get()
        works = self._take(first)
        woken: list[Outcome] = []
        if works:
            try:
                woken = self._run(works)
            except BaseException as error:  # noqa: BLE001 - it is the callers', and the thread must live on
                for work in works:
                    work.fail(translated(error))
            _answer(works, woken)
        return first is not None and not self._ended

    def _take(self, *first: Work | None) -> list[Work]:
        items = [*first, *(self._waiting.get() for _ in range(self._waiting.qsize()))]
        works = [item for item in items if item is not None]
        if len(works) != len(items):
            self._ended = True
        return works


def fail_all(works: list[Work], error: BaseException) -> None:
    """The same cause for each, but an exception of its own: each is raised elsewhere and grows a traceback."""
    ours = translated(error)
    for work in works:
        work.fail(ours if ours is error else caused(type(ours)(*ours.args), error))


def _answer(works: list[Work], outcomes: list[Outcome]) -> None:
    for work in works:
        if work.future is not None:
            outcomes.append((work.future, work.result, work.error))
        elif work.gate is not None:
            work.gate.release()
    deliver(outcomes)


def _expire(work: Work, deadline: float) -> None:
    if work.future is not None and not work.future.done():
        work.future.set_exception(_too_late(work, deadline))


def _too_late(work: Work, deadline: float) -> Unavailable:
    if work.begin():
        return Unavailable(f"the store had no turn for the step within {deadline:g} s; nothing was done")
    return Unavailable(f"the store did not finish the step within {deadline:g} s; whether it took effect is unknown")
