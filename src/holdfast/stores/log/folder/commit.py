"""The writer: every step that waits, in one transaction, behind the folder's lock; and the reader beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import apsw

from ....errors import Unavailable
from ... import formats
from ..entries import Work
from . import opening, shrinking
from .clock import FolderClock
from .database import PAGE_SIZE, Snapshot, Writing, connect, create_schema, is_moved, read_format
from .faults import caused, translated
from .files import Files, sync_directory
from .identity import DATABASE, LOCK, LOG, Identity, LogRemoved
from .lock import FolderLock
from .wal import WriteAheadLog


class Committer:
    """Owns the write connection; used by one leader at a time. Opens the folder with the first group."""

    clock: FolderClock
    format: int  # from the first group on

    def __init__(
        self,
        folder: Path,
        *,
        files: Files,
        identity: Identity,
        vfs: str | None,
        clock: Callable[[], float] | None,
        announce: Callable[[list[str]], None],
        remove: Callable[[list[str]], object],
        fall_behind: Callable[[], None],
    ) -> None:
        self._folder = folder
        self._files = files
        self._identity = identity
        self._vfs = vfs
        self._given_clock = clock
        self._announce = announce
        self._remove = remove
        self._fall_behind = fall_behind  # a commit is there, but not on the disk yet
        self._is_locked = False
        self._lock: FolderLock | None = None
        self._connection: apsw.Connection | None = None
        self._view: Writing | None = None
        self._wal: WriteAheadLog | None = None
        self.shrinks = False  # with the next group: give space back that nothing needs
        self.made: list[str] = []  # what opening had to make, in words

    def is_free(self) -> bool:
        """For a caller's own thread: take the lock for `run`, if neither that nor opening the database is a wait."""
        if self._lock is None or self._view is None or not self._lock.try_acquire():
            return False
        self._is_locked = True
        return True

    def run(self, works: list[Work]) -> Callable[[], None] | None:
        """One group: lock, begin, every step, commit, unlock; then, after the callers, others are told.

        An interrupt of the thread that leads goes past this, to `repair`.
        """
        topics: list[str] = []
        rest = works
        try:
            lock = self._locked()
        except Exception as error:  # noqa: BLE001 - it is the callers'
            fail_all(works, error)
            return None
        try:
            # Only now: a caller who gave up while another process had the lock must not see its step happen.
            rest = [work for work in works if work.begin()]
            self._identity.check_seldom()
            view = self._view or self._open_database()
            while rest:
                rest = self._transaction(view, rest, topics)
            self._shrink()
        except Exception as error:  # noqa: BLE001 - as above; a connection in an unknown state is not used again
            fail_all(rest, error)
            self._disconnect(keeps_log=isinstance(error, LogRemoved))
        self._unlock(lock)
        return partial(self._announce, topics) if topics else None

    def repair(self) -> None:
        """After an interrupt: nothing of its transaction stays, and others may have the lock."""
        if self._lock is not None:
            try:
                self._disconnect()
            finally:
                self._unlock(self._lock)

    def _shrink(self) -> None:
        if self.shrinks and self._connection is not None and self._wal is not None:
            self.shrinks = False
            shrinking.shrink(self._connection, self._wal)

    def catch_up(self) -> None:
        """From any thread: what did not wait for the disk reaches it now."""
        if self._wal is not None:
            self._wal.catch_up()

    def held_up_by(self) -> str:
        """Who has the folder's lock while this thread waits for it, in words; from any thread."""
        lock = self._lock
        return lock.holder() if lock is not None else ""

    def finish(self) -> None:
        """Close, under the lock too: the last connection of all cleans the write-ahead log up."""
        if self._lock is None:
            return
        self._lock.acquire()
        try:
            self._disconnect()
        finally:
            self._lock.close()
            self._lock = None

    def _disconnect(self, *, keeps_log: bool = False) -> None:
        if not keeps_log:
            self._identity.forget(LOG)  # who closes last removes it
        connection, self._connection, self._view = self._connection, None, None
        wal, self._wal = self._wal, None
        if wal is not None:
            wal.close()
        if connection is not None:
            connection.close()

    def _transaction(self, view: Writing, works: list[Work], topics: list[str]) -> list[Work]:
        """Run and commit; what is left when SQLite gave up on the way, with those it undid failed."""
        try:
            view.begin(self.clock.now(), durable=any(work.durable for work in works))
            view.calendar = self.clock.calendar()
        except apsw.Error as error:
            fail_all(works, error)
            return []
        done: list[Work] = []
        for at, work in enumerate(works):
            if _run_step(view, work):
                done.append(work)
            elif not view.open:
                fail_all(done, (work.error and work.error.__cause__) or apsw.AbortError("the transaction was undone"))
                return works[at + 1 :]
        try:
            self._commit(view)
        except apsw.Error as error:
            view.rollback()
            fail_all(done, error)
        else:
            topics += view.topics
        return []

    def _commit(self, view: Writing) -> None:
        if view.wrote and self._connection is not None and self._wal is not None:
            self.clock.mark(self._connection, view.now, view.calendar)
            self._wal.make_room()
        durable = view.commit()
        # Whoever waits learns of nothing before this. A lease promises nothing, so that one may be handed out of a
        # folder that is gone since a moment: for it the look before the transaction is enough.
        if durable and view.wrote:
            self._identity.check()
        if not durable and self._wal is not None:
            self._wal.is_behind = True
            self._fall_behind()
            # A file must not go before the disk knows that nobody needs it; the sweep finds what stays behind.
            durable = bool(view.gone) and self._wal.sync()
        if view.gone and durable:
            self._remove(view.gone)

    def _locked(self) -> FolderLock:
        if self._lock is None:
            self.made += opening.prepare(self._folder)
            self._files.open()
            self._lock = FolderLock(Path(LOCK), inside=self._files.inside)
            self._identity.note(LOCK, self._lock.stat())
        if not self._is_locked:
            self._lock.acquire()
            self._is_locked = True
        return self._lock

    def _unlock(self, lock: FolderLock) -> None:
        self._is_locked = False
        lock.release()

    def _open_database(self) -> Writing:
        """Under the lock, so that processes that come first at the same time take turns."""
        path = self._folder / DATABASE
        self._identity.check()  # or SQLite would make a new database where the old one was
        connection = connect(path, vfs=self._vfs)
        try:
            connection.execute("BEGIN IMMEDIATE")
            if create_schema(connection, path):
                self.made.append(f"create the database {path}")
            self.format = read_format(connection) or formats.LOG
            given = self._given_clock
            self.clock = FolderClock.given(given) if given else FolderClock.anchored(connection)
            connection.execute("COMMIT")
            sync_directory("", inside=self._files.inside)
            self._wal = self._identified(connection, path)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._view = Writing(connection, self._files)
        return self._view

    def _identified(self, connection: apsw.Connection, path: Path) -> WriteAheadLog:
        """The files that SQLite has open are those of the folder that we have open."""
        if not self._identity.knows(DATABASE):
            self._identity.note(DATABASE, os.stat(DATABASE, dir_fd=self._files.inside))
        if is_moved(connection):
            raise Unavailable(
                f"the store at {path.parent} was moved, removed or replaced while it was opened; try again"
            )
        fd = os.open(LOG, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._files.inside)
        wal = WriteAheadLog(connection, fd, PAGE_SIZE)
        try:
            self._identity.note(LOG, wal.stat(), written_as=fd)
            self._identity.check()
        except BaseException:
            wal.close()
            raise
        return wal


class Reader:
    """Owns the read connection; groups share a snapshot and never wait for the lock."""

    def __init__(self, path: Path, *, files: Files, identity: Identity, vfs: str | None, clock: FolderClock) -> None:
        self._path = path
        self._files = files
        self._identity = identity
        self._vfs = vfs
        self._clock = clock
        self._connection: apsw.Connection | None = None

    def run(self, works: list[Work]) -> None:
        try:
            connection = self._connection or self._connect()
            view = Snapshot(connection, self._files)
            connection.execute("BEGIN")
            view.now, view.calendar = self._clock.now(), self._clock.calendar()
            for work in works:
                if work.begin():
                    _read(view, work)
            connection.execute("ROLLBACK")
            self._identity.check()
        except (apsw.Error, OSError, Unavailable):
            self.finish()  # in an unknown state, or on a file that is no more the store's: the next gets a new one
            raise

    def _connect(self) -> apsw.Connection:
        self._identity.check()
        self._connection = connect(self._path, vfs=self._vfs)
        self._connection.pragma("query_only", True)
        return self._connection

    def finish(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _run_step(view: Writing, work: Work) -> bool:
    view.step_begins()
    try:
        work.step(view)
        view.step_done()
    except Exception as error:  # noqa: BLE001 - it is the caller's, whatever it is
        work.fail(translated(error))
        view.step_failed()
        return False
    return True


def _read(view: Snapshot, work: Work) -> None:
    try:
        work.step(view)
    except Exception as error:  # noqa: BLE001 - it is the caller's, whatever it is
        work.fail(translated(error))


def fail_all(works: list[Work], error: BaseException) -> None:
    """The same cause for each, but an exception of its own: each is raised elsewhere and grows a traceback."""
    ours = translated(error)
    for work in works:
        work.fail(ours if ours is error else caused(type(ours)(*ours.args), error))
