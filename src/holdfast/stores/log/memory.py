"""The space of `memory://`: a dict under a lock, gone with the process. Tests and examples run on it."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeVar

from ...errors import Unavailable
from .. import formats
from ..base import Check
from .calendar import Calendar, Reckoning
from .repeat_window import Atomic, Home, RepeatWindow
from .space import Buffer, Found, NewFiles, Range, Reading, Survey, Transaction, Watched
from .sums import Sums
from .topics import Topics, deliver

T = TypeVar("T")


class _Objects:
    """Keys in order, their bytes, and files nobody has adopted yet."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.found: dict[str, Found] = {}
        self.files: dict[str, tuple[bytes, float]] = {}
        self.tags = count(1)

    def between(self, start: str, end: str, limit: int) -> list[str]:
        first = bisect_left(self.keys, start)
        return self.keys[first : min(bisect_left(self.keys, end), first + limit)]

    def set(self, key: str, found: Found | None) -> Found | None:
        """Set or (None) remove; what was there before."""
        before = self.found.get(key)
        if found is not None:
            self.found[key] = found
            if before is None:
                insort(self.keys, key)
        elif before is not None:
            del self.found[key]
            del self.keys[bisect_left(self.keys, key)]
        return before


class _View:
    """A step's view, with a list of what it changed so that it can be undone."""

    def __init__(self, objects: _Objects, now: float, calendar: Calendar) -> None:
        self.now, self.calendar = now, calendar
        self.topics: set[str] = set()
        self._objects = objects
        self._undo: list[Callable[[], object]] = []

    def get(self, key: str) -> Found | None:
        return self._objects.found.get(key)

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        keys = self._objects.keys
        start = bisect_right(keys, after) if after >= prefix else bisect_left(keys, prefix)
        page: list[str] = []
        for at in range(start, min(start + limit, len(keys))):
            if not keys[at].startswith(prefix):
                break
            page.append(keys[at])
        return page

    def survey(self, keys: Sequence[str], ranges: Sequence[Range]) -> Survey:
        found = [self.get(key) for key in keys]
        return [each.data if each else None for each in found], [self._objects.between(*each) for each in ranges]

    def made(self, key: str) -> float | None:
        return None

    def create(self, key: str, data: Buffer) -> bool:
        if key in self._objects.found:
            return False
        self.put(key, data)
        return True

    def adopt(self, key: str) -> bool:
        objects = self._objects
        if key in objects.found:
            return False
        file = objects.files.pop(key, None)
        if file is None:
            raise Unavailable(f"the file {key} is gone: it waited too long to become an object; write it again")
        self._undo.append(lambda: objects.files.setdefault(key, file))
        self.put(key, file[0])
        return True

    def put(self, key: str, data: Buffer, *, proof: Callable[[bytes | None], bool] | None = None) -> None:
        self._set(key, Found(bytes(data), next(self._objects.tags)))

    def delete(self, key: str) -> bool:
        there = key in self._objects.found
        if there:
            self._set(key, None)
        return there

    def signal(self, topic: str) -> None:
        self.topics.add(topic)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _set(self, key: str, found: Found | None) -> None:
        before = self._objects.set(key, found)
        self._undo.append(lambda: self._objects.set(key, before))


class MemorySpace:
    """All of `Space` in one process. A clock with `on_advance(callback)` wakes every waiter when it is moved."""

    file_threshold: int | None = None
    request_costs = False

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or _steady()
        self._calendar = Reckoning(self._clock, clock or wall)
        self._lock = threading.Lock()
        self.store_id = ""  # no part of it can lie elsewhere
        self.sums = Sums()  # none are written: memory is gone with the process
        self._objects = _Objects()
        self._topics = Topics()
        on_advance = getattr(clock, "on_advance", None)
        if on_advance is not None:
            on_advance(lambda *_: deliver(self._topics.signal_all()))

    def repeat_window(self, home: Home) -> RepeatWindow:
        return Atomic(self, home)

    def clock(self) -> float:
        return self._clock()

    def calendar(self) -> Calendar:
        return self._calendar()

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
        await asyncio.sleep(0)  # a caller in a tight loop must not keep the event loop to itself
        return self.transact_from_thread(step, deadline=deadline)

    def at_once(
        self, step: Callable[[Transaction], T], *, files: NewFiles = (), lasting: bool = True
    ) -> tuple[T] | None:
        return None  # `transact` is as quick

    def transact_from_thread(
        self, step: Callable[[Transaction], T], *, deadline: float | None = None, lane: str = ""
    ) -> T:
        with self._lock:
            view = _View(self._objects, self._clock(), self._calendar())
            try:
                result = step(view)
            except BaseException:
                view.undo()
                raise
        if view.topics:
            deliver(self._topics.signal(view.topics))
        return result

    async def read(self, step: Callable[[Reading], T], *, deadline: float | None = None) -> T:
        await asyncio.sleep(0)
        with self._lock:
            return step(_View(self._objects, self._clock(), self._calendar()))

    async def write_file(self, key: str, data: Buffer) -> None:
        with self._lock:
            self._objects.files[key] = (bytes(data), time.monotonic())

    async def remove(self, keys: list[str]) -> None:
        self.transact_from_thread(lambda tx: [tx.delete(key) for key in keys])

    def ticket(self, topic: str) -> int:
        return self._topics.ticket(topic)

    async def watch(self, topic: str, timeout: float, *, since: int | None = None) -> bool:
        return await self._topics.wait(topic, timeout, since=self.ticket(topic) if since is None else since)

    def tickets(self, topics: Sequence[str]) -> list[int]:
        return [self._topics.ticket(topic) for topic in topics]

    async def watch_any(self, watched: Sequence[Watched], timeout: float) -> bool:
        return await self._topics.wait_any({each.topic: each.ticket for each in watched}, timeout)

    async def sweep(self, older_than: float) -> int:
        limit = time.monotonic() - older_than
        with self._lock:
            old = [key for key, (_, written) in self._objects.files.items() if written <= limit]
            for key in old:
                del self._objects.files[key]
        return len(old)

    async def check(self) -> list[Check]:
        return [Check("memory", "warn", "everything is gone when this process ends")]

    async def install(self, *, dry_run: bool) -> list[str]:
        return []

    @property
    def format(self) -> int:
        return formats.LOG  # nothing of another version is ever here

    async def raise_format(self) -> None:
        """It is the newest."""

    async def uninstall(self) -> list[str]:
        with self._lock:
            self._objects = _Objects()
        return []

    async def close(self, *, within: float = math.inf) -> None:
        deliver(self._topics.signal_all())


def _steady() -> Callable[[], float]:
    # Wall time once, then the monotonic clock: a step of the wall clock must not move leases.
    offset = wall() - time.monotonic()
    return lambda: offset + time.monotonic()


def wall() -> float:
    """The wall clock, looked up at each call so that a test can set it."""
    return time.time()
