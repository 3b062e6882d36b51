"""`SlateSpace`: the parts of this package put together."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ....config import StoreOptions
from ....errors import ConfigError, Unavailable
from ...base import Check
from ..calendar import Calendar
from ..folder.commit_thread import CLOSED
from ..repeat_window import Atomic, Home, RepeatWindow
from ..space import Buffer, NewFiles, Reading, Transaction, Watched
from ..sums import Sums
from ..topics import deliver
from . import doctor
from .core import Core, release, shared
from .faults import translated
from .location import Place

T = TypeVar("T")


class SlateSpace:
    """A SlateDB database, owned by one process at a time; its brokers share it."""

    # Measured with blocks of 128 KiB to 1 MiB: a call of one block takes as long either way, one of many blocks is up
    # to twice as fast when their bytes are on their way before the commit.
    file_threshold: int | None = 256 * 1024
    request_costs = False

    def __init__(self, core: Core, *, timeout: float) -> None:
        self._core = core
        self._timeout = timeout
        self._closed = False

    @classmethod
    async def open(
        cls, place: Place, options: StoreOptions, *, clock: Callable[[], float] | None = None, alone: bool = False
    ) -> SlateSpace:
        """Become the writer, which fences the one before in another process; `alone`, for tests, in this one too."""
        core = Core(place, options, clock=clock) if alone else shared(place, options, clock=clock)
        core.users += alone
        space = cls(core, timeout=options.operation_timeout)
        try:
            await core.writes.submit(lambda _: None, deadline=options.connect_timeout)
        except BaseException:
            await space._close(1.0)
            raise
        return space

    def repeat_window(self, home: Home) -> RepeatWindow:
        return Atomic(self, home)

    def clock(self) -> float:
        return self._core.committer.clock.now()

    def calendar(self) -> Calendar:
        return self._core.committer.clock.calendar()

    def transact(
        self,
        step: Callable[[Transaction], T],
        *,
        deadline: float | None = None,
        lane: str = "",
        files: NewFiles = (),
        lasting: bool = True,
    ) -> asyncio.Future[T]:
        self._usable()
        if files:
            return asyncio.ensure_future(self._after_files(files, step, deadline))
        return self._core.writes.submit(step, deadline=self._timeout if deadline is None else deadline)

    async def _after_files(self, files: NewFiles, step: Callable[[Transaction], T], deadline: float | None) -> T:
        await asyncio.gather(*(self.write_file(key, data) for key, data in files))
        return await self.transact(step, deadline=deadline)

    def at_once(
        self, step: Callable[[Transaction], T], *, files: NewFiles = (), lasting: bool = True
    ) -> tuple[T] | None:
        return None  # a flush takes its time

    def transact_from_thread(
        self, step: Callable[[Transaction], T], *, deadline: float | None = None, lane: str = ""
    ) -> T:
        self._usable()
        wait = self._timeout if deadline is None else deadline
        return self._core.writes.submit_from_thread(step, deadline=wait)

    async def read(self, step: Callable[[Reading], T], *, deadline: float | None = None) -> T:
        self._usable()
        left = self._timeout if deadline is None else deadline
        if self._core.committer.failed is not None:
            began = time.monotonic()
            await self.transact(lambda _: None, deadline=left)  # opens it again, or says why not
            left = max(0.0, left - time.monotonic() + began)
        return await self._core.reads.submit(step, deadline=left)

    async def write_file(self, key: str, data: Buffer) -> None:
        self._usable()
        core = self._core
        await asyncio.get_running_loop().run_in_executor(core.pool, core.committer.write_file, key, bytes(data))

    async def remove(self, keys: list[str]) -> None:
        await self.transact(lambda tx: [tx.delete(key) for key in keys])

    def ticket(self, topic: str) -> int:
        self._usable()
        return self._core.topics.ticket(topic)

    async def watch(self, topic: str, timeout: float, *, since: int | None = None) -> bool:
        self._usable()
        topics = self._core.topics
        return await topics.wait(topic, timeout, since=topics.ticket(topic) if since is None else since)

    def tickets(self, topics: Sequence[str]) -> list[int]:
        self._usable()
        return [self._core.topics.ticket(topic) for topic in topics]

    async def watch_any(self, watched: Sequence[Watched], timeout: float) -> bool:
        self._usable()
        return await self._core.topics.wait_any({each.topic: each.ticket for each in watched}, timeout)

    async def sweep(self, older_than: float) -> int:
        return await self.transact(lambda _: self._core.committer.sweep(older_than))

    async def check(self) -> list[Check]:
        await self.transact(lambda _: None)  # who owns it now?
        core = self._core
        return await asyncio.to_thread(doctor.lines, core.place, core.flush_interval, self.clock())

    async def install(self, *, dry_run: bool) -> list[str]:
        """Opening has made everything already; what it had to make."""
        self._usable()
        return list(self._core.committer.made)

    @property
    def sums(self) -> Sums:
        return self._core.committer.sums

    @property
    def store_id(self) -> str:
        return self._core.committer.store_id

    @property
    def format(self) -> int:
        return self._core.committer.format

    async def raise_format(self) -> None:
        await self.transact(lambda _: self._core.committer.raise_format())

    async def uninstall(self) -> list[str]:
        """Remove the database; its folder too if nothing else is in it. Other brokers of the process lose it."""
        self._usable()
        self._closed = True
        core = self._core
        release(core)
        await asyncio.to_thread(core.stop, self._timeout)
        try:
            return await asyncio.to_thread(core.remove)
        except OSError as error:
            raise translated(error) from error

    async def close(self, *, within: float = math.inf) -> None:
        """The last broker of the process to close it closes the database; what waits is finished first."""
        if not self._closed and os.getpid() == self._core.pid:
            await self._close(min(self._timeout, within))

    async def _close(self, timeout: float) -> None:
        self._closed = True
        if release(self._core):
            await asyncio.to_thread(self._core.stop, timeout)
        else:
            deliver(self._core.topics.signal_all())

    def abandon(self) -> None:
        """As `close`, without waiting."""
        if not self._closed and os.getpid() == self._core.pid:
            self._closed = True
            self._core.abandon()

    def _usable(self) -> None:
        if os.getpid() != self._core.pid:
            raise ConfigError("this store was opened before a fork; open it again in the child process")
        if self._closed or self._core.ended:
            raise Unavailable(CLOSED)
