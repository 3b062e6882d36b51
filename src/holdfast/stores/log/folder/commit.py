"""The writer: every step that waits, in one transaction, behind the folder's lock; and the reader beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import apsw

from ....errors import Unavailable
from ... import formats
from . import opening, shrinking
from .clock import FolderClock
from .commit_thread import Work, fail_all
from .database import (
    PAGE_SIZE,
    NotHere,
    Snapshot,
    Writing,
    connect,
    create_schema,
    is_moved,
    read_format,
    read_store,
    refuse_lost,
)
from .faults import translated
from .files import Files, sync_directory
from .identity import DATABASE, LOCK, LOG, Identity, LogRemoved
from .lock import FolderLock
from .log_mark import LogMark
from .wal import WriteAheadLog


class Committer:
    """Owns the write connection; all methods run in its lane's thread. Opens the folder with the first group."""

    clock: FolderClock
    format: int  # from the first group on
    store_id: str  # the same

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
    ) -> None:
        self._folder = folder
        self._files = files
        self._identity = identity
        self._vfs = vfs
        self._given_clock = clock
        self._announce = announce
        self._remove = remove
        self._lock: FolderLock | None = None
        self._connection: apsw.Connection | None = None
        self._view: Writing | None = None
        self._wal: WriteAheadLog | None = None
        self._mark: LogMark | None = None
        self.shrinks = False  # with the next group: give space back that nothing needs
        self.made: list[str] = []  # what opening had to make, in words

    def run(self, works: list[Work]) -> Callable[[], None] | None:
        """One group: lock, begin, every step, commit, unlock; then, after the callers, others are told."""
        try:
            lock = self._locked()
        except BaseException as error:  # noqa: BLE001 - it is the callers', and the thread must live on
            fail_all(works, error)
            return None
        topics: list[str] = []
        rest = works
        try:
            # Only now: a caller who gave up while another process had the lock must not see its step happen.
            rest = [work for work in works if work.begin()]
            self._identity.check_seldom()
            view = self._view or self._open_database()
            while rest:
                rest = self._transaction(view, rest, topics)
            self._shrink()
        except BaseException as error:  # noqa: BLE001 - as above; a connection in an unknown state is not used again
            fail_all(rest, error)
            self._disconnect(keeps_log=isinstance(error, LogRemoved))
        finally:
            lock.release()
        return partial(self._announce, topics) if topics else None

    def _shrink(self) -> None:
        if self.shrinks and self._connection is not None and self._wal is not None:
            self.shrinks = False
            shrinking.shrink(self._connection, self._wal)

    def run_here(self, work: Work) -> Callable[[], None] | None:
        """The same for one step in the thread of its caller, who waits for this one only; None: it was not run."""
        lock, view, wal = self._lock, self._view, self._wal
        if lock is None or view is None or wal is None or wal.is_full:
            return None
        if not lock.try_acquire():
            return None
        topics: list[str] = []
        try:
            self._identity.check_seldom()
            work.prepare()
            if work.error is None:
                self._impatient(view, wal, work, topics)
        except NotHere:
            view.rollback()
            return None
        except BaseException as error:  # noqa: BLE001 - as above
            fail_all([work], error)
            self._disconnect(keeps_log=isinstance(error, LogRemoved))
        finally:
            lock.release()
        return partial(self._announce, topics)

    def _impatient(self, view: Writing, wal: WriteAheadLog, work: Work, topics: list[str]) -> None:
        view.hurry(True)
        wal.copies = False
        try:
            self._transaction(view, [work], topics)
        finally:
            wal.copies = True
            view.hurry(False)

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
            if self._wal is not None:
                self._wal.copy()
            self._disconnect()
        finally:
            self._lock.close()
            self._lock = None

    def _disconnect(self, *, keeps_log: bool = False) -> None:
        if not keeps_log:
            self._identity.forget(LOG)  # who closes last removes it
        connection, self._connection, self._view = self._connection, None, None
        wal, self._wal = self._wal, None
        mark, self._mark = self._mark, None
        if wal is not None:
            wal.close()
        if connection is not None:
            connection.close()
        if mark is not None:
            mark.note_closed()
            mark.close()

    def _transaction(self, view: Writing, works: list[Work], topics: list[str]) -> list[Work]:
        """Run and commit; what is left when SQLite gave up on the way, with those it undid failed."""
        try:
            view.begin(self.clock.now(), lasting=any(work.lasting for work in works))
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
            if self._mark is not None and view.lasting:
                self._mark.count(self._connection)
            self._wal.make_room()
        lasts = view.commit()
        # Whoever waits learns of nothing before this. A lease promises nothing, so that one may be handed out of a
        # folder that is gone since a moment: for it the look before the transaction is enough.
        if lasts and view.wrote:
            if self._mark is not None and self._wal is not None:
                self._mark.note(self._wal)
            self._identity.check()
        if not lasts and self._wal is not None:
            self._wal.is_behind = True
            # A file must not go before the disk knows that nobody needs it; the sweep finds what stays behind.
            lasts = bool(view.gone) and self._wal.sync()
        if view.gone and lasts:
            self._remove(view.gone)

    def _locked(self) -> FolderLock:
        if self._lock is None:
            self.made += opening.prepare(self._folder)
            self._files.open()
            self._lock = FolderLock(Path(LOCK), inside=self._files.inside)
            self._identity.note(LOCK, self._lock.stat())
        self._lock.acquire()
        return self._lock

    def _open_database(self) -> Writing:
        """Under the lock, so that processes that come first at the same time take turns."""
        path = self._folder / DATABASE
        self._identity.check()  # or SQLite would make a new database where the old one was
        known = self._lock.store_id() if self._lock is not None else ""
        refuse_lost(path, known)
        mark = LogMark(self._files.inside)
        try:
            connection = connect(path, vfs=self._vfs)
        except BaseException:
            mark.close()
            raise
        try:
            mark.look(connection)
            connection.execute("BEGIN IMMEDIATE")
            if create_schema(connection, path, known):
                self.made.append(f"create the database {path}")
            self.store_id = read_store(connection, path, known)
            self.format = read_format(connection) or formats.LOG
            self._files.sums.set(self.format, read_format(connection, "born"))
            given = self._given_clock
            self.clock = FolderClock.given(given) if given else FolderClock.anchored(connection)
            connection.execute("COMMIT")
            if not known and self._lock is not None:
                self._lock.note_store(self.store_id)
            sync_directory("", inside=self._files.inside)
            self._wal = self._identified(connection, path)
        except BaseException:
            mark.close()
            connection.close()
            raise
        self._connection, self._mark = connection, mark
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
        work.result = work.step(view)
        view.step_done()
    except NotHere:
        raise
    except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
        work.fail(translated(error))
        view.step_failed()
        return False
    return True


def _read(view: Snapshot, work: Work) -> None:
    try:
        work.result = work.step(view)
    except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
        work.fail(translated(error))
