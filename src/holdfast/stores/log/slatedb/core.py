"""One database in one process: its threads, shared by every broker of the process that opens the same place."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ....config import StoreOptions
from ....errors import ConfigError, Unavailable
from ....escaping import logger_named
from ..commit_queue import CommitQueue
from ..folder import opening
from ..topics import Topics, deliver
from .binding import Caller
from .commit import Committer, Reader
from .database import Database, full_disk
from .location import Place
from .pinned import Pinned
from .removing import remove

_FILE_THREADS = 2
_SYNC_INTERVAL = 5.0
logger = logger_named("holdfast.stores.log")


class Core:
    """See the module. Nothing is opened before the first step."""

    def __init__(self, place: Place, options: StoreOptions, *, clock: Callable[[], float] | None) -> None:
        self.place = place
        self.pid = os.getpid()
        self.users = 0
        self.ended = False
        self.topics = Topics()
        self.pool = ThreadPoolExecutor(_FILE_THREADS, thread_name_prefix="holdfast-slate-files")
        self.flush_interval = place.flush_interval(options)
        self._options = options
        self._caller = Caller()
        self._pinned = Pinned(place.folder, place.path) if place.is_local else None
        self._timeout = options.operation_timeout
        self._connect_timeout = options.connect_timeout
        self.committer = Committer(
            self.database, prepare=self._prepare, clock=clock, announce=self._announce
        )  # fmt: skip
        self.writes = CommitQueue(
            "holdfast-slate",
            self.committer.run,
            finish=self._finish,
            leads_in_caller=False,  # a flush takes its time, and the next ones gather meanwhile
            gather=self._gather,
            why=self._why,
        )
        self.reads = CommitQueue(
            "holdfast-slate-read", Reader(self.committer).run, finish=lambda: None, leads_in_caller=False
        )
        self._stopping = threading.Event()
        if place.is_local:
            threading.Thread(target=self._keep_synced, name="holdfast-slate-sync", daemon=True).start()
        on_advance = getattr(clock, "on_advance", None)
        if on_advance is not None:
            on_advance(lambda *_: deliver(self.topics.signal_all()))

    def database(self) -> Database:
        return Database(
            self.place, self._caller, timeout=self._connect_timeout, pinned=self._pinned, background=self.pool.submit
        )  # fmt: skip

    def remove(self) -> list[str]:
        """Everything of the database, after the core was stopped; what was left, in words."""
        try:
            if self._pinned is not None:
                self._pinned.check()
            return remove(self.place, self._options)
        finally:
            self._caller.close()

    def stop(self, timeout: float) -> None:
        """What waits is finished first."""
        self.ended = True
        self._stopping.set()
        deliver(self.topics.signal_all())
        self.reads.stop(timeout)
        self.pool.shutdown()
        self.writes.stop(timeout)

    def abandon(self) -> None:
        """A user is gone who cannot wait, nor take a lock; the last one stops the core."""
        self.writes.call_soon(self._one_is_gone)

    def _one_is_gone(self) -> None:
        if release(self):
            self.ended = True
            self._stopping.set()
            deliver(self.topics.signal_all())
            self.reads.end_soon()
            self.pool.shutdown(wait=False)
            self.writes.end_soon()

    def _announce(self, topics: list[str]) -> None:
        deliver(self.topics.signal(topics))

    def _keep_synced(self) -> None:
        """What SlateDB writes by itself must be on the disk long before it removes what that replaces."""
        while not self._stopping.wait(_SYNC_INTERVAL):
            state = self.committer.state
            if state is not None and state.database.failed is None:
                try:
                    state.database.sync()
                except (OSError, Unavailable) as error:
                    logger.warning("files of %s cannot be synced: %s", self.place.text, error)

    def _prepare(self) -> list[str]:
        if self.place.is_local:
            return opening.prepare(self.place.folder, parts=())
        try:
            from . import trust  # it needs a package that a folder does not
        except ImportError as error:
            raise ConfigError(f"{self.place.text} needs obstore: pip install 'holdfast[slatedb]'") from error
        trust.once(self.place, self._options)
        return []

    def _gather(self) -> None:
        """Flushes are `flush_interval` apart; the first after a pause does not wait."""
        if self.flush_interval <= 0:
            return
        wait = self.committer.flushed + self.flush_interval - time.monotonic()
        if wait > 0:
            time.sleep(wait)

    def _why(self) -> str:
        """SlateDB tries for some seconds before it says that it cannot write; who waits behind that gives up first."""
        reason = (full_disk(self.place) if self.place.is_local else None) or self.committer.failed
        return str(reason) if reason is not None else ""

    def _finish(self) -> None:
        try:
            self.committer.finish()
        finally:
            self._caller.close()
            if self._pinned is not None:
                self._pinned.close()


_cores: dict[Place, Core] = {}
_guard = threading.Lock()


def shared(place: Place, options: StoreOptions, *, clock: Callable[[], float] | None) -> Core:
    """The process's core of a place: a second one would fence the first."""
    with _guard:
        core = _cores.get(place)
        if core is None or core.ended or core.pid != os.getpid():
            core = _cores[place] = Core(place, options, clock=clock)
        core.users += 1
        return core


def release(core: Core) -> bool:
    """True: that was the last user, and the core is to be stopped."""
    with _guard:
        core.users -= 1
        if core.users > 0:
            return False
        if _cores.get(core.place) is core:
            del _cores[core.place]
        return True


def _new_guard() -> None:
    global _guard
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_new_guard)
