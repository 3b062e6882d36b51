"""A simulated transactional space, for the engine's policy where answers are never ambiguous.

As a folder: any number of processes, one lock. Whoever is frozen keeps the lock, whoever is killed gives it back; a
signal to another process may get lost. As SlateDB: one owner, whoever opens fences the one before; a write may be in
doubt, and then the database is opened again. A group of steps happens as a whole or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from holdfast.config import StoreOptions
from holdfast.errors import Fenced, HoldfastError, Unavailable
from holdfast.stores import formats
from holdfast.stores.base import Check
from holdfast.stores.log.calendar import Calendar, Reckoning
from holdfast.stores.log.memory import _Objects, _View
from holdfast.stores.log.repeat_window import Atomic, Home, RepeatWindow
from holdfast.stores.log.space import Found, Watched
from holdfast.stores.log.store import LogStore
from holdfast.stores.log.sums import Sums
from holdfast.stores.log.topics import Topics, deliver

from . import faults
from .baton import EPOCH, Bell, Process, World
from .faults import Dice
from .heads import Heads
from .plan import Plan

Step = Callable[[Any], Any]
_COMMIT_S = 2e-6  # seconds a commit takes at least, so that no two happen at the same time
_LOST_SIGNALS = 0.1
_AT_ONCE = 0.7  # how often a lone step runs in the thread of its caller, where the space can do that


class Rows(_Objects):
    """What is durable, for all processes."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0  # of SlateDB's owner
        self.holder: Process | None = None  # of the folder's lock


class _Transaction(_View):
    """A step's view that notes what it changed."""

    def __init__(self, rows: Rows, now: float, calendar: Calendar) -> None:
        super().__init__(rows, now, calendar)
        self.changes: dict[str, bytes | None] = {}  # what was there before

    def _set(self, key: str, found: Found | None) -> None:
        before = self._objects.found.get(key)
        self.changes.setdefault(key, before.data if before is not None else None)
        super()._set(key, found)


class _Snapshot(_View):
    """What was there when it was taken; the bytes of large objects are files, and those may be gone by now."""

    def __init__(self, rows: Rows, now: float, calendar: Calendar, file_threshold: int) -> None:
        before = _Objects()
        before.keys, before.found = list(rows.keys), dict(rows.found)
        super().__init__(before, now, calendar)
        self._rows = rows
        self._file_threshold = file_threshold

    def get(self, key: str) -> Found | None:
        found = super().get(key)
        is_file = found is not None and len(found.data) >= self._file_threshold
        return None if is_file and key not in self._rows.found else found


class _Work:
    """A step that waits for its group."""

    def __init__(self, step: Step, until: float) -> None:
        self.step = step
        self.until = until
        self.is_given_up = False
        self.is_begun = False
        self.result: Any = None
        self.error: Exception | None = None


class DatabaseSpace:
    """`Space`, of one process."""

    request_costs = False
    format = formats.LOG
    sums = Sums()
    store_id = ""

    def __init__(self, base: OnDatabase, process: Process, options: StoreOptions) -> None:
        self.file_threshold: int | None = base.plan.file_threshold
        self.topics = Topics()
        self._base = base
        self._world = base.world
        self._process = process
        self._timeout = options.operation_timeout
        self._waiting: list[tuple[_Work, Callable[[], object]]] = []
        self._is_running = False
        self._is_closed = False
        self._files = base.files if base.is_folder else {}
        self._epoch = 0
        self._in_doubt = False
        self._reckoning = Reckoning(self.clock, base.world.time)

    # Time and signals.

    def repeat_window(self, home: Home) -> RepeatWindow:
        return Atomic(self, home)

    def clock(self) -> float:
        return EPOCH + self._world.now

    def calendar(self) -> Calendar:
        return self._reckoning()

    def ticket(self, topic: str) -> int:
        return self.topics.ticket(topic)

    async def watch(self, topic: str, timeout: float, *, since: int | None = None) -> bool:
        return await self.topics.wait(topic, timeout, since=self.ticket(topic) if since is None else since)

    def tickets(self, topics: Sequence[str]) -> list[int]:
        return [self.topics.ticket(topic) for topic in topics]

    async def watch_any(self, watched: Sequence[Watched], timeout: float) -> bool:
        return await self.topics.wait_any({each.topic: each.ticket for each in watched}, timeout)

    # Steps.

    def own(self) -> None:
        """Become the owner, where there is one."""
        self._base.rows.epoch += 1
        self._epoch = self._base.rows.epoch

    async def transact(
        self,
        step: Step,
        *,
        deadline: float | None = None,
        lane: str = "",
        files: Sequence[tuple[str, Any]] = (),
        lasting: bool = True,
    ) -> Any:
        for key, data in files:
            await self.write_file(key, data)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        within = self._timeout if deadline is None else deadline
        work = _Work(step, self._world.now + within)

        def answer() -> None:
            if not future.done():
                future.set_result(None)

        self._submit(work, lambda: loop.call_soon_threadsafe(answer))
        try:
            await asyncio.wait_for(future, within)
        except asyncio.CancelledError:
            work.is_given_up = True
            raise
        except TimeoutError:
            work.is_given_up = True
            raise _too_late(work) from None
        return _answer(work)

    def transact_from_thread(self, step: Step, *, deadline: float | None = None, lane: str = "") -> Any:
        within = self._timeout if deadline is None else deadline
        work, bell = _Work(step, self._world.now + within), Bell(self._world)
        is_done: list[bool] = []

        def done() -> None:
            is_done.append(True)
            bell.ring()

        self._submit(work, done)
        if not is_done and not bell.wait(within):
            work.is_given_up = True
            raise _too_late(work)
        return _answer(work)

    def at_once(self, step: Step, *, files: Sequence[tuple[str, Any]] = (), lasting: bool = True) -> tuple[Any] | None:
        self._usable()
        base = self._base
        is_free = base.is_folder and base.rows.holder is None and not self._is_running
        if not is_free or files or base.dice.random.random() > _AT_ONCE:
            return None
        base.count()
        work = _Work(step, self._world.now + self._timeout)
        self._commit([work])
        return (_answer(work),)

    def _submit(self, work: _Work, done: Callable[[], object]) -> None:
        self._usable()
        self._waiting.append((work, done))
        if not self._is_running:
            self._is_running = True
            self._world.spawn(self._process, self._run)

    def _run(self) -> None:
        """The committing thread, as long as something waits."""
        while self._waiting:
            base, world = self._base, self._world
            base.count()
            fault, much = base.dice.draw(faults.SPACE), base.dice.random.random()
            self._lock()
            world.sleep(base.plan.trip * (0.5 + much) + (much * 1.3 * self._timeout if fault == "slow" else 0.0))
            group, self._waiting = self._waiting, []
            works = [work for work, _ in group if not work.is_given_up and work.until > world.now]
            self._commit(works, fault, much)
            world.sleep(base.plan.trip * much)
            self._unlock()
            for _, done in group:
                done()
        self._is_running = False

    def _lock(self) -> None:
        rows = self._base.rows
        while self._base.is_folder and rows.holder is not None and rows.holder.is_alive:
            self._base.unlocked.wait(0.05)
        rows.holder = self._process if self._base.is_folder else None

    def _unlock(self) -> None:
        self._base.rows.holder = None
        self._base.unlocked.ring()

    def _commit(self, works: list[_Work], fault: str = "", much: float = 0.0) -> None:
        """All steps of a group and their commit: nothing of it can be seen before the end."""
        base = self._base
        base.world.now += _COMMIT_S
        for work in works:
            work.is_begun = True
        error = self._refusal(fault)
        if error is None and fault in ("unavailable", "refused"):
            error = Unavailable("the disk does not answer")
        if error is not None:
            for work in works:
                work.error = error
            return
        done = [view for work in works if (view := self._stepped(work)) is not None]
        if fault == "doubt":
            self._in_doubt = True
            for work in works:
                work.result, work.error = None, work.error or Unavailable("whether it was written is not known")
            if much < 0.5:
                for view in reversed(done):
                    view.undo()
                return
        for view in done:
            base.committed(self, view)

    def _refusal(self, fault: str) -> Exception | None:
        base = self._base
        if base.is_folder:
            return None
        if fault == "fence":
            base.rows.epoch += 1  # somebody opened it for a moment
        if self._epoch != base.rows.epoch:
            return Fenced("another process owns the database")
        if self._in_doubt:  # opened again: what is there is what is durable
            self._in_doubt = False
            self.own()
        return None

    def _stepped(self, work: _Work) -> _Transaction | None:
        view = _Transaction(self._base.rows, self.clock(), self.calendar())
        view._objects.files = self._files
        try:
            work.result = work.step(view)
        except Exception as error:  # noqa: BLE001  it is the caller's
            view.undo()
            work.error = error
            return None
        return view

    async def read(self, step: Step, *, deadline: float | None = None) -> Any:
        self._usable()
        base = self._base
        base.count()
        if not base.is_folder and self._epoch != base.rows.epoch:
            raise Fenced("another process owns the database")
        view = _Snapshot(base.rows, self.clock(), self.calendar(), base.plan.file_threshold)
        await asyncio.sleep(base.plan.trip * base.dice.random.random())
        return step(view)

    # Files.

    async def write_file(self, key: str, data: Any) -> None:
        self._usable()
        await asyncio.sleep(self._base.plan.trip)
        self._files[key] = (bytes(data), self._world.now)

    async def remove(self, keys: list[str]) -> None:
        await self.transact(lambda tx: [tx.delete(key) for key in keys])

    async def sweep(self, older_than: float) -> int:
        old = [key for key, (_, written) in self._files.items() if written <= self._world.now - older_than]
        for key in old:
            del self._files[key]
        return len(old)

    # The rest.

    async def check(self) -> list[Check]:
        return []

    async def install(self, *, dry_run: bool) -> list[str]:
        return []

    async def raise_format(self) -> None:
        """It is the newest."""

    async def uninstall(self) -> list[str]:
        raise HoldfastError("nobody uninstalls a simulation")

    async def close(self, *, within: float = math.inf) -> None:
        self._is_closed = True

    def _usable(self) -> None:
        if self._is_closed:
            raise Unavailable("the store is closed")


def _too_late(work: _Work) -> Unavailable:
    return Unavailable("whether it took effect is unknown" if work.is_begun else "nothing was done")


def _answer(work: _Work) -> Any:
    if work.error is not None:
        raise work.error
    return work.result


class OnDatabase:
    """The real LogStore on such a space; see `spaces.Simulated`."""

    slack = 0.001  # rounding

    def __init__(self, plan: Plan, world: World, dice: Dice, breach: Callable[[str], None]) -> None:
        self.plan = plan
        self.world = world
        self.dice = dice
        self.is_folder = plan.policy == "folder"
        self.rows = Rows()
        self.files: dict[str, tuple[bytes, float]] = {}
        self.unlocked = Bell(world)
        self.requests = 0
        self.request_made: Callable[[int], None] = lambda count: None
        self._heads = Heads(self.rows.found, breach)
        self.watchers: list[Callable[[str, bytes | None, bytes | None], None]] = [self._heads.changed]
        self._breach = breach
        self._spaces: dict[str, DatabaseSpace] = {}

    def count(self) -> None:
        self.requests += 1
        self.request_made(self.requests)

    def committed(self, space: DatabaseSpace, view: _Transaction) -> None:
        for key, before in view.changes.items():
            found = self.rows.found.get(key)
            for watch in self.watchers:
                watch(key, before, found.data if found is not None else None)
        if view.topics:
            for name, other in self._spaces.items():
                if other is space or (self.is_folder and self.dice.random.random() > _LOST_SIGNALS):
                    self.world.at(self.world.jitter(), lambda name=name: self._signal(name, view.topics))  # type: ignore[misc]

    def _signal(self, name: str, topics: set[str]) -> None:
        space = self._spaces.get(name)
        if space is not None:
            deliver(space.topics.signal(topics))

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        yield

    async def open(self, name: str, options: StoreOptions) -> Any:
        space = DatabaseSpace(self, self.world.process, options)
        await asyncio.sleep(self.plan.trip)
        space.own()
        self._spaces[name] = space
        return LogStore(space, options)

    def gone(self, name: str) -> None:
        space = self._spaces.pop(name, None)
        if space is not None and self.rows.holder is space._process:
            space._unlock()

    def rewrite(self, share: float, *, keep_tags: bool) -> None:
        """There are no dates."""

    async def recover(self, client: Any) -> None:
        """Nothing is ever late."""

    def empty(self) -> None:
        left = [key for key in self.rows.keys if ("/inbox/" in key or "/later/" in key) and "/dead/" not in key]
        if left:
            self._breach(f"left after the drain: {left[:3]}")
        for key in self.rows.keys:
            head = self._heads.head(key) if key.endswith("/head") and not key.endswith("/dead/head") else None
            if head is not None and (head.blocks or head.leases):
                self._breach(f"{key} is not empty: {len(head.blocks)} blocks")
