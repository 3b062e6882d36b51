"""`CloudSpace`: a bucket shared by any number of machines, without a broker and without locks."""

from __future__ import annotations

import asyncio
import math
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ....errors import ConfigError, Unavailable
from ... import formats
from ...base import Check
from .. import names
from ..calendar import SAME, Calendar
from ..repeat_window import Home, RepeatWindow
from ..space import Buffer, NewFiles, Reading, Transaction, Unclear, Watched
from ..sums import Sums
from ..topics import Topics, deliver
from . import clock as clocks
from . import doctor
from .faults import Absent, Doubt, Refused, unanswered
from .head_cache import Shelf
from .identity import KEY as IDENTITY
from .identity import IdentityKeeper
from .probe import FOLDER, HASTE, probe
from .repeat_window import Window
from .requests import Wire
from .transaction import WINDOW, Commits
from .usage import Tally
from .view import View

T = TypeVar("T")
_THREADS = 32
_OWN = re.compile(rf"{IDENTITY}|{FOLDER}/[0-9a-f]{{32}}")
_CLOSING = 10.0  # seconds for what is under way when the space is closed
GRACE = 0.5  # seconds beyond its deadline in which a step ends by itself


class CloudSpace:
    """See `Space`. Steps run in threads; those of one lane one after the other, since they replace the same object."""

    file_threshold: int | None = None
    request_costs = True
    window = WINDOW  # R: seconds in which a write may be repeated or arrive late

    def __init__(
        self,
        store: Any,
        place: str,
        *,
        server: str | None = None,
        timeout: float,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.tally = Tally()
        self._wire = Wire(store, place, self.tally, timeout=timeout)
        self._dates = clocks.shared(server or place) if clock is None else None
        self._clock: Callable[[], float] = clock or clocks.shared(server or place)
        self._shelf = Shelf(self._wire, self._dates)
        self._commits = Commits(self._shelf, self._clock)
        self._identity = IdentityKeeper(self._wire, self._clock, has_dates=lambda: self._shelf.clock is not None)
        self._topics = Topics()
        self._lanes: dict[str, threading.Lock] = {}
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="holdfast-cloud")
        self._pid = os.getpid()
        self._closed = False
        on_advance = getattr(clock, "on_advance", None)
        if on_advance is not None:
            on_advance(lambda *_: deliver(self._topics.signal_all()))

    @classmethod
    async def open(
        cls,
        store: Any,
        place: str,
        *,
        server: str | None = None,
        timeout: float,
        connect_timeout: float,
        clock: Callable[[], float] | None = None,
    ) -> CloudSpace:
        """Check that the bucket is there, is ours to use, and keeps its word."""
        space = cls(store, place, server=server, timeout=timeout, clock=clock)
        try:
            until = space._wire.until(HASTE * connect_timeout)
            await asyncio.get_running_loop().run_in_executor(space._threads, space._probe, until, connect_timeout)
        except BaseException:
            space._give_up()
            raise
        return space

    def _probe(self, until: float, seconds: float) -> None:
        try:
            probe(self._wire, self._dates, until)
            self._identity.read(until, opening=True)
        except (Absent, Doubt, Refused) as error:
            raise unanswered(self._wire.place, seconds, error) from None

    @property
    def epoch(self) -> float:
        """When the bucket was last copied or restored as a whole, as far as this process has read; 0: never."""
        return self._identity.epoch

    async def identify(self) -> None:
        """Read the bucket's identity again: it may have been restored or rewritten since."""
        await self._in_thread(lambda: self._identity.read(self._wire.until()), None)

    def repeat_window(self, home: Home) -> RepeatWindow:
        return Window(self, home)

    def clock(self) -> float:
        return self._clock()

    def calendar(self) -> Calendar:
        return SAME

    async def transact(
        self,
        step: Callable[[Transaction], T],
        *,
        deadline: float | None = None,
        lane: str = "",
        files: NewFiles = (),
        lasting: bool = True,
    ) -> T:
        for key, data in files:
            await self.write_file(key, data)
        return await self._in_thread(lambda: self.transact_from_thread(step, deadline=deadline, lane=lane), deadline)

    def at_once(
        self, step: Callable[[Transaction], T], *, files: NewFiles = (), lasting: bool = True
    ) -> tuple[T] | None:
        return None  # a request takes its time

    def transact_from_thread(
        self, step: Callable[[Transaction], T], *, deadline: float | None = None, lane: str = ""
    ) -> T:
        self._usable()
        until = self._wire.until(deadline)
        turn = self._lanes.setdefault(lane, threading.Lock()) if lane else None
        if turn is not None and not turn.acquire(timeout=self._timeout if deadline is None else deadline):
            raise Unavailable(f"{self._wire.place} had no turn for the step in time; nothing was done")
        try:
            result, view = self._commits.run(step, until)
        finally:
            if turn is not None:
                turn.release()
        for call in view.after:
            call()
        if view.topics:
            deliver(self._topics.signal(view.topics))
        return result

    async def read(self, step: Callable[[Reading], T], *, deadline: float | None = None) -> T:
        def run() -> T:
            self._usable()
            until = self._wire.until(deadline)
            return step(View(self._shelf, self._clock, until, fresh=False, snapshot=True))

        return await self._in_thread(run, deadline)

    async def _in_thread(self, call: Callable[[], T], deadline: float | None) -> T:
        self._usable()
        seconds = (self._timeout if deadline is None else deadline) + GRACE
        running = asyncio.get_running_loop().run_in_executor(self._threads, call)
        running.add_done_callback(_read_out)
        try:
            return await asyncio.wait_for(asyncio.shield(running), seconds)
        except TimeoutError:
            text = f"{self._wire.place} did not finish within {seconds:g} s; whether it took effect is unknown"
            raise Unclear(text) from None

    async def write_file(self, key: str, data: Buffer) -> None:
        await self._in_thread(lambda: self._commits.create(key, data, self._wire.until()), None)

    async def remove(self, keys: list[str]) -> None:
        """Delete objects that nobody will write again."""
        await self._in_thread(lambda: self._wire.delete(keys, self._wire.until()), None)

    def ticket(self, topic: str) -> int:
        return self._topics.ticket(topic)

    async def watch(self, topic: str, timeout: float, *, since: int | None = None) -> bool:
        self._usable()
        return await self._topics.wait(topic, timeout, since=self.ticket(topic) if since is None else since)

    def tickets(self, topics: Sequence[str]) -> list[int]:
        return [self._topics.ticket(topic) for topic in topics]

    async def watch_any(self, watched: Sequence[Watched], timeout: float) -> bool:
        self._usable()
        return await self._topics.wait_any({each.topic: each.ticket for each in watched}, timeout)

    async def sweep(self, older_than: float) -> int:
        """Probes that a crash left."""
        if self._dates is None:
            return 0

        def run() -> int:
            until = self._wire.until()
            limit = self._clock() - older_than
            old = [each.key for each in self._wire.page(FOLDER, "", until) if each.made < limit]
            self._wire.delete(old, until)
            return len(old)

        return await self._in_thread(run, None)

    async def check(self) -> list[Check]:
        return doctor.lines(self._wire.place, self._dates, self.tally, self._identity.current)

    async def install(self, *, dry_run: bool) -> list[str]:
        return []

    @property
    def sums(self) -> Sums:
        return self._wire.sums

    @property
    def store_id(self) -> str:
        current = self._identity.current
        return "" if current is None else current.store_id

    @property
    def format(self) -> int:
        current = self._identity.current
        return formats.LOG if current is None else current.format

    async def raise_format(self) -> None:
        await self._in_thread(lambda: self._identity.raise_format(self._wire.until()), None)

    async def uninstall(self) -> list[str]:
        """Every object below the prefix that is ours: queues, their messages, probes."""
        return await self._in_thread(self._remove_all, None)

    def _remove_all(self) -> list[str]:
        return names.told(self._wire.remove("", _is_ours, self._wire.until()), "object")

    def end_soon(self) -> None:
        """The store is about to be closed: after a while nothing is tried again."""
        self._wire.ending.at = min(self._wire.ending.at, time.monotonic() + _CLOSING)

    async def close(self, *, within: float = math.inf) -> None:
        """What is under way is finished first, or given up."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self.end_soon()
        await asyncio.to_thread(self._threads.shutdown)
        self._commits.close()
        deliver(self._topics.signal_all())

    def _give_up(self) -> None:
        """As `close`, without waiting for requests that nobody answers."""
        self._closed = True
        self._wire.ending.at = 0.0
        self._threads.shutdown(wait=False)
        self._commits.close(wait=False)

    def _usable(self) -> None:
        if os.getpid() != self._pid:
            raise ConfigError("this store was opened before a fork; open it again in the child process")
        if self._closed:
            raise Unavailable("the store is closed")


def _is_ours(key: str) -> bool:
    return names.is_ours(key) or _OWN.fullmatch(key) is not None


def _read_out(running: asyncio.Future[Any]) -> None:
    """Whoever waited may be cancelled, or have given up: its error must not be reported as forgotten."""
    if not running.cancelled():
        running.exception()
