"""Group commit: callers queue what they want done, one of them leads and commits for all who wait.

A caller that blocks leads in its own thread, one group, and then passes the lead on: to the first that waits, if it
blocks too, else to the queue's thread. Callers in an event loop never lead, so that no loop waits for a disk. The
thread also leads when the space is not free at once, and clears up after a leader that was interrupted.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from ...errors import ConfigError, Unavailable
from ...escaping import logger_named
from .entries import DONE, GONE, RUNNING, WAITING, Entry, Ready, Work, grouped, safely
from .topics import call

T = TypeVar("T")
CLOSED = "the store is closed"
FORKED = "this store was opened before a fork; open it again in the child process"
INTERRUPTED = "the caller who committed for others was interrupted; whether it took effect is unknown"

_LISTEN_S = 0.1  # for so long a signal may go unheard by a main thread that waits
_EXIT_PATIENCE_S = 5.0  # for threads that are at something when the interpreter ends
_EXIT_LOOK_S = 0.001  # between two looks whether they are
_THREAD = object()  # leads, or is about to
_running_loop = asyncio._get_running_loop  # None instead of an error where there is none
logger = logger_named("holdfast.stores.log")


class CommitQueue:
    """See the module. `run` gets a group and sets errors; what it answers is called when the callers are told."""

    def __init__(
        self,
        name: str,
        run: Callable[[list[Work]], Callable[[], None] | None],
        *,
        finish: Callable[[], None],  # the last act of the thread
        leads_in_caller: bool = True,
        is_free: Callable[[], bool] | None = None,  # takes the space's lock for `run`, if that needs no waiting
        repair: Callable[[], None] | None = None,  # gives the lock back and undoes what an interrupted `run` left
        gather: Callable[[], None] | None = None,  # may wait for more to come before a group is taken
        why: Callable[[], str] | None = None,  # what may be keeping it, for those who give up; "": nothing known
    ) -> None:
        self._run = run
        self._finish = finish
        self._leads_in_caller = leads_in_caller
        self._is_free = is_free
        self._repair = repair
        self._gather = gather
        self._why = why
        # An interrupt may come at any call in a main thread. So what must change together is stored together, behind
        # the calls that prepare it; whoever wakes somebody does so before it passes the lead on, and whoever is woken
        # looks whether the lead is his.
        self._mutex = threading.Lock()
        self._waiting: list[Entry[Any]] = []
        self._running: list[Work] | None = None  # the group of the leader, until all are told
        self._leader: object = None  # an entry whose caller leads, or `_THREAD`
        self._tokens: SimpleQueue[Callable[[], None] | None] = SimpleQueue()  # wake the thread
        self._deadlines: dict[asyncio.AbstractEventLoop, _Deadlines] = {}
        self._process = os.getpid()
        self._ending = False
        self._closed = False
        # A daemon: stuck behind another process's lock, it must not keep the interpreter from exiting.
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        _alive[self] = None
        self._thread.start()

    # Callers.

    def put(self, entry: Entry[T], within: float) -> Awaitable[T]:
        """Its result, or after so many seconds Unavailable. In a thread without an event loop it is there on return."""
        if os.getpid() != self._process:
            raise ConfigError(FORKED)
        entry.within, entry.until = within, time.monotonic() + within
        loop = _running_loop()
        return Ready(self._call(entry)) if loop is None else self._submit(entry, loop)

    def post(self, entry: Entry[Any]) -> None:
        """The same for nobody; from any thread."""
        with self._mutex:
            if not self._closed and os.getpid() == self._process:
                self._add(entry)

    def _submit(self, entry: Entry[T], loop: asyncio.AbstractEventLoop) -> asyncio.Future[T]:
        future = entry.future = loop.create_future()
        with self._mutex:
            self._refuse_closed()
            self._add(entry)
        deadlines = self._deadlines.get(loop) or self._watch(loop)
        deadlines.add(entry)
        return future

    def _call(self, entry: Entry[T]) -> T:
        entry.gate = threading.Lock()
        entry.gate.acquire()
        leads = False
        try:
            with self._mutex:
                self._refuse_closed()
                if self._leads_in_caller and self._leader is None:
                    self._waiting.append(entry)
                    self._leader, leads = entry, True
                else:
                    self._add(entry)
            if leads:
                self._lead(here=True)
            if entry.state is not DONE:
                self._await(entry, entry.gate)
        except BaseException:
            self._leave(entry)
            raise
        return entry.outcome()

    def _refuse_closed(self) -> None:
        if self._ending:
            raise Unavailable(CLOSED)

    def _add(self, entry: Entry[Any]) -> None:
        self._waiting.append(entry)
        if self._leader is None:
            self._tokens.put(None)
            self._leader = _THREAD

    def _await(self, entry: Entry[Any], gate: threading.Lock) -> None:
        """Until it is done; on the way its caller may have to lead."""
        longest = _LISTEN_S if threading.current_thread() is threading.main_thread() else threading.TIMEOUT_MAX
        while True:
            gate.acquire(timeout=max(0.0, min(entry.until - time.monotonic(), longest)))
            with self._mutex:
                if entry.state is DONE:
                    return
                leads = self._leader is entry
                begun = entry.state is RUNNING
                is_late = not leads and time.monotonic() >= entry.until
                if is_late:
                    self._withdraw(entry)
            if is_late:
                raise self._too_late(entry, begun=begun)
            if leads:
                self._lead(here=True)

    def _withdraw(self, entry: Entry[Any]) -> int:
        """Nobody waits for it any more; the state it was in."""
        if entry in self._waiting:
            self._waiting.remove(entry)
        state, entry.state = entry.state, GONE
        return state

    def _leave(self, entry: Entry[Any]) -> None:
        """Its caller gave up or was interrupted, perhaps while it led."""
        with self._mutex:
            if self._leader is entry:
                self._tokens.put(None)
                self._leader = _THREAD
            state = self._withdraw(entry)
        if state is DONE and entry.error is None:
            entry.owner.abandoned(entry)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> _Deadlines:
        for other in [each for each in list(self._deadlines) if each.is_closed()]:
            self._deadlines.pop(other, None)
        deadlines = self._deadlines[loop] = _Deadlines(loop, self._expire)
        return deadlines

    def _expire(self, entry: Entry[Any]) -> None:
        with self._mutex:
            begun = entry.state is not WAITING
            if not begun:
                self._withdraw(entry)
        cast("asyncio.Future[Any]", entry.future).set_exception(self._too_late(entry, begun=begun))

    def _too_late(self, entry: Entry[Any], *, begun: bool) -> Unavailable:
        reason = self._why() if self._why is not None else ""
        because = f" ({reason})" if reason else ""
        within = f"within {entry.within:g} s"
        if not begun:
            return Unavailable(f"the store had no turn for the step {within}; nothing was done{because}")
        return Unavailable(f"the store did not finish the step {within}; whether it took effect is unknown{because}")

    # The leader.

    def _lead(self, *, here: bool) -> None:
        """One group; then the lead is passed on."""
        works = self._take()
        if works:
            after = None
            if self._is_prepared(works):
                if here and self._is_free is not None and not self._is_free():
                    self._put_back(works)
                    return
                after = self._run(works)
            self._answer(works)
            if after is not None:
                safely(after)
        self._pass_on()

    def _take(self) -> list[Work]:
        """All that waits, up to the first that is a group alone."""
        with self._mutex:
            waiting = self._waiting
            alone = next((place for place, each in enumerate(waiting) if each.before is not None), len(waiting))
            taken = waiting[: alone or 1]
            group, rest = grouped(taken, self._mutex), waiting[len(taken) :]
            self._running, self._waiting = group, rest
        return group

    @staticmethod
    def _is_prepared(works: list[Work]) -> bool:
        entry = works[0].entries[0]
        if entry.before is not None and entry.state is WAITING and not entry.is_cancelled:
            try:
                entry.before()
            except Exception as error:  # noqa: BLE001 - it is the caller's, whatever it is
                works[0].fail(error)
                return False
            entry.before = None
        return True

    def _put_back(self, works: list[Work]) -> None:
        """The space is not free: the thread waits for it, since that can be left behind by those who give up."""
        with self._mutex:
            waiting = [entry for work in works for entry in work.entries if entry.state is WAITING] + self._waiting
            self._tokens.put(None)
            self._running, self._waiting, self._leader = None, waiting, _THREAD

    def _answer(self, works: list[Work]) -> None:
        for work in works:
            work.answer()
        _tell(works)
        self._running = None

    def _pass_on(self) -> None:
        with self._mutex:
            first = self._waiting[0] if self._waiting else None
            if first is not None and first.gate is not None and self._leads_in_caller:
                _open(first.gate)
                self._leader = first
            elif first is not None or self._ending:
                self._tokens.put(None)
                self._leader = _THREAD
            else:
                self._leader = None

    # The thread.

    def call_soon(self, errand: Callable[[], None]) -> None:
        """Run something in the thread, between two groups; without a lock, so that the end of an object may ask."""
        self._tokens.put(errand)

    def stop(self, timeout: float) -> None:
        """Finish what waits, then end; a thread that is stuck for longer than `timeout` is left behind."""
        self.end_soon()
        self._thread.join(timeout)

    def end_soon(self) -> None:
        """The same without waiting, and without a lock."""
        self._ending = True
        self._tokens.put(None)

    def rest(self, timeout: float) -> None:
        """Let the leader finish what it is at, and nobody begin more; only for an interpreter that ends."""
        if self._ending:
            self._thread.join(timeout)
            return
        until = time.monotonic() + timeout
        while self._thread.is_alive() and time.monotonic() < until:  # not so in the child of a fork
            with self._mutex:
                if self._leader is None:
                    self._leader = self
                    return
            time.sleep(_EXIT_LOOK_S)

    def _serve(self) -> None:
        while self._round():
            pass
        self._finish()
        _alive.pop(self, None)

    def _round(self) -> bool:
        """One group; a function of its own so that nothing of it is kept alive while the thread waits for the next."""
        errand = self._tokens.get()
        if errand is not None:
            errand()
            return True
        with self._mutex:
            if self._leader is None and (self._waiting or self._ending):
                self._leader = _THREAD
            if self._leader is not _THREAD:
                return True
            if self._ending and not self._waiting and self._running is None:
                self._closed = True
                return False
        try:
            self._mend()
            if self._gather is not None and self._waiting:
                self._gather()
            self._lead(here=False)
        except BaseException as error:  # the thread must live on, and the callers of this group learn of it
            logger.exception("a commit failed")
            self._blame(error)
            self._tokens.put(None)
        return True

    def _blame(self, error: BaseException) -> None:
        for work in self._running or ():
            work.fail(error)

    def _mend(self) -> None:
        """What a leader left behind that was interrupted: what had begun is unknown, the rest waits again."""
        works = self._running
        if works is None:
            return
        if self._repair is not None:
            self._repair()
        with self._mutex:
            entries = [entry for work in works for entry in work.entries]
            for work in works:
                for entry in work.entries:
                    if entry.state is RUNNING or (entry.state is WAITING and work.error is not None):
                        entry.error = work.error or Unavailable(INTERRUPTED)
                        entry.state = DONE
            again = [entry for entry in entries if entry.state is WAITING]
            self._running, self._waiting = None, again + self._waiting
        _tell(works)


class _Deadlines:
    """Of the entries of one event loop: one timer for all of them, since calls are many and few are late."""

    def __init__(self, loop: asyncio.AbstractEventLoop, expire: Callable[[Entry[Any]], None]) -> None:
        self._loop = loop
        self._expire = expire
        self._entries: deque[Entry[Any]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._at = float("inf")

    def add(self, entry: Entry[Any]) -> None:
        entries = self._entries
        while entries and _is_over(entries[0]):
            entries.popleft()
        entries.append(entry)
        if entry.until < self._at:
            self._arm(entry.until)

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = self._loop.call_later(max(0.0, at - time.monotonic()), self._look)

    def _look(self) -> None:
        self._timer, self._at = None, float("inf")
        now = time.monotonic()
        for entry in self._entries:
            if entry.until <= now and not _is_over(entry):
                self._expire(entry)
        self._entries = deque(entry for entry in self._entries if not _is_over(entry))
        if self._entries:
            self._arm(min(entry.until for entry in self._entries))


def _is_over(entry: Entry[Any]) -> bool:
    return entry.future is None or entry.future.done()


def _tell(works: list[Work]) -> None:
    """With one call per event loop: each call is a system call that wakes its loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Entry[Any]]] = {}
    for work in works:
        for entry in work.entries:
            if entry.state is WAITING:
                continue
            if entry.future is not None:
                by_loop.setdefault(entry.future.get_loop(), []).append(entry)
            elif entry.gate is not None:
                _open(entry.gate)
    for loop, mine in by_loop.items():
        call(loop, _tell_all, mine)


def _tell_all(entries: list[Entry[Any]]) -> None:
    for entry in entries:
        entry.tell()


def _open(gate: threading.Lock) -> None:
    """For whoever waits there to look; only leaders open gates, one at a time."""
    if gate.locked():
        gate.release()


_alive: dict[CommitQueue, None] = {}  # a dict, whose single steps need no lock


def _rest() -> None:
    """The interpreter would stop them in the middle of a driver's call, which some drivers answer with an abort."""
    deadline = time.monotonic() + _EXIT_PATIENCE_S
    for each in list(_alive):
        each.rest(max(0.0, deadline - time.monotonic()))


atexit.register(_rest)
