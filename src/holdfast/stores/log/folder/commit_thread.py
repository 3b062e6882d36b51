"""One thread that takes everything that waits for it at once, and how callers on any loop or thread wait for it."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from ....errors import Unavailable
from ..topics import call
from .faults import caused, translated

T = TypeVar("T")
CLOSED = "the store is closed"


_EXIT_PATIENCE_S = 5.0  # for threads that are at something when the interpreter ends


class Work:
    """A step with somebody waiting for it: a future of an event loop, or a thread at a gate."""

    __slots__ = ("_turn", "before", "error", "future", "gate", "lasting", "result", "step", "timer")

    def __init__(
        self,
        step: Callable[[Any], Any],
        future: asyncio.Future[Any] | None = None,
        before: Callable[[], None] | None = None,
        *,
        lasting: bool = True,
    ) -> None:
        self.step = step
        self.before = before
        self.lasting = lasting  # must be on the disk when it is answered
        self.future = future
        self.timer: asyncio.TimerHandle | None = None
        self.gate: threading.Lock | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self._turn = [None]  # one item: whoever pops it decides, and popping is atomic without a lock

    def begin(self) -> bool:
        """True for the first who asks: the thread that runs the step, or the caller who gives up before that."""
        if self.future is not None and self.future.cancelled():
            return False
        try:
            self._turn.pop()
        except IndexError:
            return False
        return True

    def prepare(self) -> None:
        """Do what comes before the step, if somebody still waits for it."""
        before, self.before = self.before, None
        if before is None or (self.future is not None and self.future.cancelled()):
            return
        try:
            before()
        except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
            self.fail(translated(error))

    def fail(self, error: BaseException) -> None:
        self.result, self.error = None, error

    def tell(self) -> None:
        """In the event loop of its future."""
        if self.timer is not None:
            self.timer.cancel()
        if self.future is None or self.future.done():  # cancelled, or past its deadline
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class Lane:
    """The thread. `run` gets all that waits and sets results or errors; what it answers is called afterwards."""

    def __init__(
        self,
        name: str,
        run: Callable[[list[Work]], Callable[[], None] | None],
        *,
        finish: Callable[[], None],
        here: Callable[[Work], Callable[[], None] | None] | None = None,  # `run` for one, in the thread of its caller
        gather: Callable[[], None] | None = None,  # may wait for more to come before a group is taken
        elsewhere: Executor | None = None,  # prepares steps that are not alone
        why: Callable[[], str] | None = None,  # what may be keeping it, for those who give up; "": nothing known
    ) -> None:
        self._run = run
        self._finish = finish
        self._here = here
        self._gather = gather
        self._elsewhere = elsewhere
        self._why = why
        self._waiting: SimpleQueue[Work | Callable[[], None] | None] = SimpleQueue()
        self._away: set[Work] = set()  # being prepared elsewhere
        self._ended = False
        self._turn = threading.Lock()  # whoever has it may run a group
        # A daemon: stuck behind another process's lock, it must not keep the interpreter from exiting.
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._ending = False
        _alive[self] = None
        self._thread.start()

    def submit(
        self,
        step: Callable[[Any], T],
        *,
        deadline: float,
        before: Callable[[], None] | None = None,
        lasting: bool = True,
    ) -> asyncio.Future[T]:
        """The step's result, or after `deadline` seconds Unavailable; cancelled in time, it does not run.

        `before` comes before the step, and outside of its group.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        work = Work(step, future, before, lasting=lasting)
        work.timer = loop.call_later(deadline, self._expire, work, deadline)
        self._put(work)
        return future

    def submit_from_thread(self, step: Callable[[Any], T], *, deadline: float) -> T:
        """The same, blocking."""
        work = Work(step)
        work.gate = gate = threading.Lock()
        gate.acquire()
        self._put(work)
        if not gate.acquire(timeout=deadline):
            raise self._too_late(work, deadline)
        if work.error is not None:
            raise work.error
        return cast(T, work.result)

    def ran_here(self, work: Work) -> bool:
        """Run a step in this very thread; False: something is before it, or it might have taken long."""
        if self._here is None or self._waiting.qsize() or not self._turn.acquire(blocking=False):
            return False
        try:
            after = None if self._ended else self._here(work)
            if after is None:
                return False
            after()
        finally:
            self._turn.release()
        return True

    def stop(self, timeout: float) -> None:
        """Finish what waits, then end; a thread that is stuck for longer than `timeout` is left behind."""
        self.end_soon()
        self._thread.join(timeout)

    def end_soon(self) -> None:
        """The same without waiting; it takes no lock, so that the end of an object may call it."""
        self._ending = True
        self._waiting.put(None)

    def rest(self, timeout: float) -> None:
        """Let it finish what it is at, and begin nothing more; only for an interpreter that ends."""
        if self._ending:
            self._thread.join(timeout)
        elif self._thread.is_alive():  # not so in the child of a fork
            self._turn.acquire(timeout=timeout)

    def call_soon(self, errand: Callable[[], None]) -> None:
        """Run something between two groups, without a lock too."""
        self._waiting.put(errand)

    def _put(self, work: Work) -> None:
        self._waiting.put(work)
        if self._ended and work.begin():
            if work.timer is not None:
                work.timer.cancel()
            raise Unavailable(CLOSED)

    def _loop(self) -> None:
        while self._round():
            pass
        self._ended = True
        late = self._take()
        for work in late:
            work.fail(Unavailable(CLOSED))
        _answer([work for work in late if work.begin()])
        with self._turn:
            self._finish()
        _alive.pop(self, None)

    def _round(self) -> bool:
        """One group; a function of its own so that nothing of it is kept alive while the thread waits for the next."""
        first = self._waiting.get()
        if self._gather is not None and first is not None:
            self._gather()
        with self._turn:
            works = self._prepared(self._take(first))
            after = None
            if works:
                try:
                    after = self._run(works)
                except BaseException as error:  # noqa: BLE001 - it is the callers', and the thread must live on
                    for work in works:
                        work.fail(translated(error))
                _answer(works)
            if after is not None:
                after()
        return not self._ended or bool(self._away)

    def _prepared(self, works: list[Work]) -> list[Work]:
        """Those whose step can run. A lone one is prepared here, without a hand-over; others would have to wait."""
        if len(works) == 1:
            works[0].prepare()
        ready: list[Work] = []
        failed: list[Work] = []
        for work in works:
            if work.before is not None:
                self._away.add(work)
                cast(Executor, self._elsewhere).submit(self._prepare, work)
                continue
            self._away.discard(work)
            (ready if work.error is None else failed).append(work)
        if failed:
            _answer(failed)
        return ready

    def _prepare(self, work: Work) -> None:
        work.prepare()
        self._waiting.put(work)

    def _expire(self, work: Work, deadline: float) -> None:
        if work.future is not None and not work.future.done():
            work.future.set_exception(self._too_late(work, deadline))

    def _too_late(self, work: Work, deadline: float) -> Unavailable:
        reason = self._why() if self._why is not None else ""
        because = f" ({reason})" if reason else ""
        if work.begin():
            return Unavailable(f"the store had no turn for the step within {deadline:g} s; nothing was done{because}")
        unknown = "whether it took effect is unknown"
        return Unavailable(f"the store did not finish the step within {deadline:g} s; {unknown}{because}")

    def _take(self, *first: Work | Callable[[], None] | None) -> list[Work]:
        works: list[Work] = []
        for item in (*first, *(self._waiting.get() for _ in range(self._waiting.qsize()))):
            if isinstance(item, Work):
                works.append(item)
            elif item is not None:
                item()
            else:
                self._ended = True
        return works


_alive: dict[Lane, None] = {}  # a dict, whose single steps need no lock


def _rest() -> None:
    """The interpreter would stop them in the middle of a driver's call, which some drivers answer with an abort."""
    deadline = time.monotonic() + _EXIT_PATIENCE_S
    for lane in list(_alive):
        lane.rest(max(0.0, deadline - time.monotonic()))


atexit.register(_rest)


_mine = threading.local()  # lanes whose turn this thread has, between the two halves of a fork


def _pause() -> None:
    """Before a fork: no thread of ours is inside SQLite. A child has only the thread that forked; what another had
    locked there would stay locked, and the child would wait for it with the folder's lock in its hand, and everybody
    behind it. Who waits too long forks anyway.
    """
    deadline = time.monotonic() + _EXIT_PATIENCE_S
    _mine.lanes = [each for each in list(_alive) if each._turn.acquire(timeout=max(0.0, deadline - time.monotonic()))]


def _go_on() -> None:
    for lane in _mine.lanes:
        lane._turn.release()


os.register_at_fork(before=_pause, after_in_parent=_go_on)


def fail_all(works: list[Work], error: BaseException) -> None:
    """The same cause for each, but an exception of its own: each is raised elsewhere and grows a traceback."""
    ours = translated(error)
    for work in works:
        work.fail(ours if ours is error else caused(type(ours)(*ours.args), error))


def _answer(works: list[Work]) -> None:
    """With one call per event loop: each call is a system call that wakes its loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Work]] = {}
    for work in works:
        if work.future is not None:
            by_loop.setdefault(work.future.get_loop(), []).append(work)
        elif work.gate is not None:
            work.gate.release()
    for loop, mine in by_loop.items():
        call(loop, _tell_all, mine)


def _tell_all(works: list[Work]) -> None:
    for work in works:
        work.tell()
