"""`FolderSpace`: the parts of this package put together."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from ....errors import ConfigError, Unavailable
from ....loop_thread import may_wait
from ... import formats
from ...base import Check
from .. import names
from ..calendar import Calendar
from ..repeat_window import Atomic, Home, RepeatWindow
from ..space import ORPHAN_SECONDS, Buffer, NewFiles, Reading, Transaction, Watched
from ..sums import Sealing, Sums
from . import doctor, log_mark
from .commit import Committer, Reader
from .commit_thread import CLOSED, Lane, Work
from .database import Snapshot, Writing
from .faults import translated
from .files import TEMPORARY, Files
from .identity import DATABASE, LOCK, LOG, Identity
from .pulse import Pulse
from .second_look import look_again, with_second_look
from .wake import SUFFIX, WAKE_FILE, Wake

T = TypeVar("T")
_FILE_THREADS = 4
_WRITTEN = re.compile(rf"(.+/)?\.[0-9a-f]{{16}}{re.escape(TEMPORARY)}")  # a file that was being written
_SWEEP_STEP = 100
_GIVING_UP_S = 0.1  # seconds that closing may take where opening has failed; a thread behind a lock stays there
_HERE_BYTES = 1 << 20  # of files; more would keep other blocking callers waiting that need not wait
_CATCH_UP = 0.05  # seconds after which a commit that did not wait for the disk is there


class FolderSpace:
    """A folder shared by any number of processes on one machine."""

    # Measured, both fsynced: up to 128 KiB a blob in the database is faster than a file and its row, at 256 KiB they
    # are equal, at 1 MiB the file is twice as fast, and it is cheaper to read and to delete.
    file_threshold: int | None = 256 * 1024
    request_costs = False

    def __init__(
        self,
        path: Path,
        *,
        poll_interval: float,
        operation_timeout: float,
        wake: bool,
        vfs: str | None,
        clock: Callable[[], float] | None,
    ) -> None:
        self._folder = path
        self._timeout = operation_timeout
        self._vfs = vfs
        self._pid = os.getpid()
        self._closed = False
        self._identity = Identity(path)
        self._files = Files(path, self._identity)
        self._roots: set[str] = set()
        self._caught_up_at = 0.0
        self._pool = ThreadPoolExecutor(_FILE_THREADS, thread_name_prefix="holdfast-files")
        self._poll_interval = poll_interval
        self._wake = Wake(path, enabled=wake, poll_interval=poll_interval)
        self._files.spare = self._wake.give_back
        self._pulse = Pulse(self.read, self._wake.wake)
        self._committer = Committer(
            path,
            files=self._files,
            identity=self._identity,
            vfs=vfs,
            clock=clock,
            announce=self._wake.announce,
            remove=lambda keys: self._pool.submit(self._files.remove, keys),
        )
        self._writes = Lane(
            "holdfast-commit",
            with_second_look(self._committer.run, path / DATABASE, vfs),
            finish=self._finish,
            here=self._committer.run_here,
            elsewhere=self._pool,
            why=self._committer.held_up_by,
        )
        self._reads: Lane | None = None
        on_advance = getattr(clock, "on_advance", None)
        if on_advance is not None:
            on_advance(lambda *_: self._wake.wake_all())

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        poll_interval: float = 1.0,
        operation_timeout: float = 30.0,
        connect_timeout: float = 30.0,
        wake: bool = True,
        vfs: str | None = None,
        clock: Callable[[], float] | None = None,
    ) -> FolderSpace:
        """Make the folder where it is missing, and check that it can be trusted; a `clock` is for tests."""
        path = Path(path).absolute()
        space = cls(
            path, poll_interval=poll_interval, operation_timeout=operation_timeout, wake=wake, vfs=vfs, clock=clock
        )
        try:
            await space._writes.submit(lambda _: None, deadline=min(connect_timeout, operation_timeout))
        except BaseException:
            await space._close(min(operation_timeout, _GIVING_UP_S))
            raise
        reader = Reader(
            path / DATABASE, files=space._files, identity=space._identity, vfs=vfs, clock=space._committer.clock
        )
        run = with_second_look(reader.run, path / DATABASE, vfs)
        space._reads = Lane("holdfast-read", run, finish=reader.finish)
        return space

    def repeat_window(self, home: Home) -> RepeatWindow:
        return Atomic(self, home)

    def clock(self) -> float:
        return self._committer.clock.now()

    def calendar(self) -> Calendar:
        return self._committer.clock.calendar()

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
        within = self._timeout if deadline is None else deadline
        if any(_root(key) not in self._roots for key, _ in files):
            return asyncio.ensure_future(self._transact_there(step, within, files))
        parts = self._parts(files)
        written = self._writes.submit(step, deadline=within, before=self._writer(parts), lasting=lasting)
        if not lasting:
            written.add_done_callback(self._catch_up_soon)
        with contextlib.suppress(RuntimeError):  # the interpreter ends: the thread that writes works the sums out
            for _, each in parts:  # while the bytes before it are written
                self._pool.submit(each.sum)
        return written

    async def _transact_there(self, step: Callable[[Transaction], T], deadline: float, files: NewFiles) -> T:
        for key, _ in files:
            await self._note_root(key)
        return await self.transact(step, deadline=deadline, files=files)

    def at_once(
        self, step: Callable[[Transaction], T], *, files: NewFiles = (), lasting: bool = True
    ) -> tuple[T] | None:
        self._usable()
        if not may_wait(asyncio.get_running_loop()) or _size(files) > _HERE_BYTES:
            return None
        work = Work(step, lasting=lasting)
        if files:
            if any(_root(key) not in self._roots for key, _ in files):
                return None
            work.before = self._writer(self._parts(files))
        if not self._writes.ran_here(work):
            return None
        if work.error is not None:
            look_again(work, self._folder / DATABASE, self._vfs)
            raise work.error
        if not lasting:
            self._catch_up_soon()
        return (work.result,)

    def _catch_up_soon(self, _: object = None) -> None:
        now = time.monotonic()
        if now >= self._caught_up_at:
            self._caught_up_at = now + _CATCH_UP
            asyncio.get_running_loop().call_later(_CATCH_UP, self._catch_up)

    def _catch_up(self) -> None:
        if not self._closed:
            self._pool.submit(self._committer.catch_up)

    def transact_from_thread(
        self, step: Callable[[Transaction], T], *, deadline: float | None = None, lane: str = ""
    ) -> T:
        self._usable()
        return self._writes.submit_from_thread(step, deadline=self._timeout if deadline is None else deadline)

    def read(self, step: Callable[[Reading], T], *, deadline: float | None = None) -> asyncio.Future[T]:
        self._usable()
        return cast(Lane, self._reads).submit(step, deadline=self._timeout if deadline is None else deadline)

    async def write_file(self, key: str, data: Buffer) -> None:
        self._usable()
        await self._note_root(key)
        await self._in_pool(partial(self._files.write, key, data))

    async def _note_root(self, key: str) -> None:
        """Before the first file, so that a sweep finds what a crash leaves and touches nobody else's files."""
        root = _root(key)
        if root not in self._roots:
            note = "INSERT INTO roots (name) VALUES (?) ON CONFLICT DO NOTHING"
            self._files.path(key)
            await self.transact(lambda view: cast(Writing, view).execute(note, (root,)))
            self._roots.add(root)

    def _parts(self, files: NewFiles) -> list[tuple[str, Sealing]]:
        return [(key, self._files.sums.begin(key, data)) for key, data in files]

    def _writer(self, files: list[tuple[str, Sealing]]) -> Callable[[], None] | None:
        return partial(self._write_all, files) if files else None

    def _write_all(self, files: list[tuple[str, Sealing]]) -> None:
        for key, parts in files:
            self._files.write_parts(key, parts)

    async def remove(self, keys: list[str]) -> None:
        await self.transact(lambda tx: [tx.delete(key) for key in keys])

    def ticket(self, topic: str) -> int:
        self._usable()
        return self._wake.ticket(topic)

    async def watch(self, topic: str, timeout: float, *, since: int | None = None) -> bool:
        self._usable()
        return await self._wake.wait(topic, timeout, since=self._wake.ticket(topic) if since is None else since)

    async def watch_log(self, topic: str, timeout: float, *, since: int, root: str) -> bool:
        """As `stores.log.space.Watchful`."""
        self._usable()
        return await self.watch_any([Watched(topic, since, root)], timeout)

    def tickets(self, topics: Sequence[str]) -> list[int]:
        self._usable()
        return self._wake.tickets(topics)

    async def watch_any(self, watched: Sequence[Watched], timeout: float) -> bool:
        self._usable()
        with self._pulse.watching([(each.topic, each.root) for each in watched], self._poll_interval):
            return await self._wake.wait_any({each.topic: each.ticket for each in watched}, timeout)

    def is_unchanged(self, topic: str, root: str, *, since: float) -> bool:
        return self._pulse.is_unchanged(topic, root, since=since)

    async def sweep(self, older_than: float) -> int:
        roots = await self.read(_roots)
        old = await self._in_pool(lambda: list(self._files.old(roots, older_than)))
        removed = 0
        for at in range(0, len(old), _SWEEP_STEP):
            some = old[at : at + _SWEEP_STEP]
            orphans = await self.read(partial(_orphans, keys=some))
            if orphans:
                removed += await self.transact(partial(self._remove_orphans, keys=orphans))
        await self._in_pool(lambda: self._files.prune(roots))
        return removed

    async def shrink(self) -> None:
        """As `stores.log.space.Shrinking`."""
        self._committer.shrinks = True
        await self.transact(lambda _: None)

    async def check(self) -> list[Check]:
        database = await self.read(lambda view: doctor.database(cast(Snapshot, view), self._folder / DATABASE))
        surroundings = doctor.surroundings(self._folder, self._wake.mechanism, self.clock())
        cut = log_mark.check(self._folder)
        return [*database, *([cut] if cut else []), doctor.files(*await self._apart()), *surroundings]

    async def _apart(self) -> tuple[list[str], list[str]]:
        """Objects whose files are gone, and files of no object that no writer can be at any more."""
        keys = await self.read(_in_files)
        gone = await self._in_pool(lambda: [key for key in keys if not self._files.exists(key)])
        gone = sorted({*gone}.intersection(await self.read(_in_files) if gone else ()))  # files leave after their rows
        roots = await self.read(_roots)
        old = await self._in_pool(lambda: list(self._files.old(roots, ORPHAN_SECONDS)))
        return gone, await self.read(partial(_orphans, keys=old))

    async def install(self, *, dry_run: bool) -> list[str]:
        """Opening has made everything already; what it had to make."""
        self._usable()
        return list(self._committer.made)

    @property
    def sums(self) -> Sums:
        return self._files.sums

    async def verify(self) -> list[str]:
        """As `stores.log.space.Verifying`."""
        return await self._in_pool(partial(doctor.integrity, self._folder / DATABASE, self._vfs))

    @property
    def store_id(self) -> str:
        return self._committer.store_id

    @property
    def format(self) -> int:
        return self._committer.format

    async def raise_format(self) -> None:
        newest = "UPDATE meta SET value = max(value, ?) WHERE name = 'format'"
        await self.transact(lambda view: cast(Writing, view).execute(newest, (formats.LOG,)))
        self._committer.format = formats.LOG
        self._files.sums.set(formats.LOG)

    async def uninstall(self) -> list[str]:
        """Remove the database, the files of objects and our own; the folder too if nothing else is in it."""
        roots = await self.read(_roots)
        files = await self.read(_in_files)
        held = self._files.again()
        try:
            await self.close()
            return await asyncio.to_thread(self._remove_all, held, files, roots)
        finally:
            held.close()

    async def close(self, *, within: float = math.inf) -> None:
        """What waits is finished first."""
        if not self._closed and os.getpid() == self._pid:
            await self._close(min(self._timeout, within))

    async def _close(self, timeout: float) -> None:
        self._closed = True
        until = time.monotonic() + timeout
        for lane in (self._reads, self._writes):
            if lane is not None:
                await asyncio.to_thread(lane.stop, max(0.0, until - time.monotonic()))

    def abandon(self) -> None:
        """Its threads finish what waits, then end."""
        if os.getpid() == self._pid:
            self._closed = True
            for lane in (self._reads, self._writes):
                if lane is not None:
                    lane.end_soon()

    def _finish(self) -> None:
        """The committing thread's last act: stuck behind another process's lock, it needs its files until then."""
        try:
            self._committer.finish()
        finally:
            self._pool.shutdown()
            self._files.close()
            self._wake.close()

    def _usable(self) -> None:
        if os.getpid() != self._pid:
            raise ConfigError("this store was opened before a fork; open it again in the child process")
        if self._closed:
            raise Unavailable(CLOSED)

    async def _in_pool(self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, call)
        except OSError as error:
            raise translated(error) from error

    def _remove_orphans(self, view: Transaction, keys: list[str]) -> int:
        """Under the folder's lock, so that nobody adopts a file between the look and the removal."""
        orphans = _orphans(view, keys)
        self._files.remove(orphans)
        return len(orphans)

    def _remove_all(self, held: Files, keys: list[str], roots: list[str]) -> list[str]:
        self._identity.check()  # wake files go by path
        held.remove(keys)
        held.remove(key for key in held.old(roots, 0.0) if _WRITTEN.fullmatch(key) or names.is_ours(key))
        held.prune(roots)
        wake = self._folder / "wake"
        for path in wake.glob(f"*{SUFFIX}"):
            if WAKE_FILE.fullmatch(path.name):
                path.unlink(missing_ok=True)
        for name in (DATABASE, LOG, f"{DATABASE}-shm", f"{DATABASE}-journal", log_mark.MARK, log_mark.CUT, LOCK):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=held.inside)
        for directory in (wake, self._folder):
            with contextlib.suppress(OSError):  # something else is in it
                directory.rmdir()
        left = (os.path.join(below, name) for below, _, found in os.walk(self._folder) for name in sorted(found))
        return names.told(left, "file")


def _size(files: NewFiles) -> int:
    return sum(len(data) for _, data in files)


def _root(key: str) -> str:
    return key.partition("/")[0]


def _roots(view: Reading) -> list[str]:
    return [name for (name,) in cast(Snapshot, view).execute("SELECT name FROM roots")]


def _in_files(view: Reading) -> list[str]:
    """Objects whose bytes are files."""
    return [key for (key,) in cast(Snapshot, view).execute("SELECT key FROM objects WHERE data IS NULL")]


def _orphans(view: Reading, keys: list[str]) -> list[str]:
    snapshot = cast(Snapshot, view)
    return [key for key in keys if not snapshot.is_file(key)]
