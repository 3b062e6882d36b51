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
from typing import Any, TypeVar

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
    """See the module. `run` gets a group and sets errors; what it answers is called before the callers are told."""

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
        self._callers: dict[asyncio.AbstractEventLoop, _Callers] = {}
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

    def gathered(self, loop: asyncio.AbstractEventLoop) -> Entry[Any] | None:
        callers = self._callers.get(loop)
        return callers.gathered[-1] if callers is not None and callers.gathered else None

    def _submit(self, entry: Entry[T], loop: asyncio.AbstractEventLoop) -> asyncio.Future[T]:
        self._refuse_closed()
        future = entry.future = loop.create_future()
        callers = self._callers.get(loop) or self._meet(loop)
        callers.add(entry, is_idle=self._leader is None)
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

    def _meet(self, loop: asyncio.AbstractEventLoop) -> _Callers:
        for other in [each for each in list(self._callers) if each.is_closed()]:
            self._callers.pop(other, None)
        callers = self._callers[loop] = _Callers(loop, self._enter, self._expire)
        return callers

    def _enter(self, entries: list[Entry[Any]]) -> None:
        """Of an event loop, where they gathered; it may have been closed since."""
        with self._mutex:
            if is_open := not self._closed:
                self._waiting += entries
                if self._leader is None:
                    self._tokens.put(None)
                    self._leader = _THREAD
        if not is_open:
            for entry in entries:
                entry.refuse(Unavailable(CLOSED))

    def _expire(self, entry: Entry[Any]) -> None:
        with self._mutex:
            begun = entry.state is RUNNING or entry.state is DONE
            if not begun:
                self._withdraw(entry)
        entry.refuse(self._too_late(entry, begun=begun))

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
            if after is not None:
                safely(after)  # before the answer: callers in a loop would wait for the interpreter meanwhile
            self._answer(works)
        self._pass_on()

    def _take(self) -> list[Work]:
        """All that waits, up to the first that is a group alone."""
        with self._mutex:
            taken, rest = self._waiting, []
            for place, each in enumerate(taken):
                if each.before is not None:
                    taken, rest = taken[: place or 1], taken[place or 1 :]
                    break
            group = grouped(taken, self._mutex)
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
        self._tell(works)
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
            entries = [entry for work in works for entry in work.taken]
            for work in works:
                for entry in work.entries:
                    if entry.state is RUNNING or (entry.state is WAITING and work.error is not None):
                        entry.error = work.error or Unavailable(INTERRUPTED)
                        entry.state = DONE
            again = [entry for entry in entries if entry.state is WAITING]
            self._running, self._waiting = None, again + self._waiting
        self._tell(works)

    def _tell(self, works: list[Work]) -> None:
        """With one call per event loop: each call is a system call that wakes its loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Entry[Any]]] = {}
        for work in works:
            for entry in work.taken:
                if entry.state is WAITING:
                    continue
                if entry.future is not None:
                    by_loop.setdefault(entry.future.get_loop(), []).append(entry)
                elif entry.gate is not None:
                    _open(entry.gate)
        for loop, mine in by_loop.items():
            call(loop, self._callers[loop].tell, mine)


class _Callers:
    """Of one event loop: what they want goes into the queue together, one group at a time.

    While a group is under way the others gather, and so do callers that were answered together, until the end of the
    loop's turn: they begin together again, one commit is for all, and the loop does not fight with its leader for the
    interpreter. A lone caller does not wait. One timer is for all, since few are late.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        enter: Callable[[list[Entry[Any]]], None],
        expire: Callable[[Entry[Any]], None],
    ) -> None:
        self.gathered: list[Entry[Any]] = []
        self._loop = loop
        self._enter = enter
        self._expire = expire
        self._under_way: set[Entry[Any]] = set()
        self._had_company = False
        self._watched: deque[Entry[Any]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._at = float("inf")

    def add(self, entry: Entry[Any], *, is_idle: bool) -> None:
        watched = self._watched
        while watched and watched[0].is_over:
            watched.popleft()
        watched.append(entry)
        if entry.until < self._at:
            self._arm(entry.until)
        self.gathered.append(entry)
        if len(self.gathered) == 1 and not self._under_way:
            if is_idle and not self._had_company:
                self._hand_over()
            else:
                self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        entries, self.gathered = self.gathered, []
        self._under_way.update(entries)
        self._had_company = len(entries) > 1 or entries[0].has_company
        self._enter(entries)

    def tell(self, entries: list[Entry[Any]]) -> None:
        """In the loop: these are over."""
        for entry in entries:
            if entry.state is DONE:
                entry.tell()
        self._ended(entries)

    def _ended(self, entries: list[Entry[Any]]) -> None:
        if self._under_way:
            self._under_way.difference_update(entries)
            if not self._under_way and self.gathered:
                self._loop.call_soon(self._hand_over)  # behind those who were just told

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = self._loop.call_later(max(0.0, at - time.monotonic()), self._look)

    def _look(self) -> None:
        self._timer, self._at = None, float("inf")
        now = time.monotonic()
        late = [entry for entry in self._watched if entry.until <= now and not entry.is_over]
        for entry in late:
            self._expire(entry)
        self._ended(late)
        self._watched = deque(entry for entry in self._watched if not entry.is_over)
        if self._watched:
            self._arm(min(entry.until for entry in self._watched))


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
