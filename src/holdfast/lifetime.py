"""An open store, while somebody has its broker or one of its queues: used in one event loop, closed when dropped.

A broker that is dropped without `close` gives its store back: in its event loop where that still runs, else as far as
can be done without one (`Store.abandon`). This may happen in the middle of anything, wherever Python collects
garbage, so nothing here takes a lock until it is in the loop.
"""

from __future__ import annotations

import asyncio
import os
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from .errors import ConfigError
from .escaping import logger_named
from .loop_thread import Portal, kept
from .stores.base import Store
from .stores.scheduling import ScheduledQueues

if TYPE_CHECKING:
    from .reporter import Reporter
    from .upkeep import Upkeep
    from .worker import Worker

_LOG = logger_named("holdfast.broker")
CLOSING_S = 5.0  # what is under way gets so long to end by itself when a broker or worker closes
_ELSEWHERE = "a broker belongs to the event loop it was opened in"
_running_loop = asyncio._get_running_loop  # None instead of an error where there is none


class Lifetime:
    """What a broker, its queues and its workers share: the store, the loop it may be used in, and when that ends."""

    def __init__(self, store: Store, ends: set[Callable[[], None]]) -> None:
        """`ends` are called when the store is given back."""
        self._store = store
        self.loop: asyncio.AbstractEventLoop | None = None
        self.gone: str | None = None  # why it cannot be used any more
        self.workers: set[Worker] = set()  # those that run
        self.upkeep: Upkeep | None = None  # for who only dequeues
        self.reporter: Reporter | None = None  # of workers, where that is wanted
        self.scheduled = ScheduledQueues()  # one look for all workers
        self._held = _Held(store, ends)
        self._dropped = weakref.finalize(self, self._held.drop)
        self._dropped.atexit = False  # the end of the process gives everything back
        if (loop := _running_loop()) is not None:
            self._enter(loop)

    @property
    def store(self) -> Store:
        """The store; ConfigError in another event loop. A thread without a loop may have it: its `…_from_thread`."""
        loop = _running_loop()
        if loop is not self.loop and loop is not None and self.gone is None:
            self._enter(loop)
        return self._store

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.loop is None:
            self.loop = self._held.loop = loop
            self._held.portal = kept(loop)
        elif self.loop.is_closed():
            raise ConfigError(f"{_ELSEWHERE}, and that loop has ended; open one in every asyncio.run()")
        else:
            raise ConfigError(f"{_ELSEWHERE}, and this is another; open one here, or use holdfast.sync from threads")

    def retire(self, reason: str) -> Store:
        """From now on every use of the store says why it cannot be; the store, to be closed."""
        store, self.gone = self._store, reason
        self._store = cast(Store, _Gone(reason, store))
        return store

    def end(self) -> None:
        """The store is closed."""
        self._dropped.detach()
        self._held.let_go()


class _Held:
    """What is to be given back, known to the finalizer."""

    def __init__(self, store: Store, ends: set[Callable[[], None]]) -> None:
        self._store = store
        self._ends = ends
        self._process = os.getpid()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.portal: Portal | None = None

    def drop(self) -> None:
        """Nobody has the broker any more: close the store in its loop, if that runs long enough; see `__del__`."""
        if self.loop is not None and self._process == os.getpid():
            try:
                self.loop.call_soon_threadsafe(self._close_soon)
            except RuntimeError:  # the loop is closed
                pass

    def __del__(self) -> None:
        """Nothing waits for the store any more: it is closed, or its loop ended before that."""
        if sys.is_finalizing():
            return
        if self._process == os.getpid():
            self._store.abandon()
        else:
            _of_the_parent.append(self._store)  # even the end of its connections would harm the parent's

    def _close_soon(self) -> None:
        task = asyncio.get_running_loop().create_task(self._close(), name="holdfast-dropped")
        task._log_destroy_pending = False  # type: ignore[attr-defined] # a loop that ends now says nothing of it
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    async def _close(self) -> None:
        try:
            while self._ends:
                self._ends.pop()()
            await self._store.close()
        except Exception as error:  # noqa: BLE001 - there is nobody to tell but the log
            _LOG.debug("a broker that was dropped could not be closed: %s", error)
        finally:
            self.let_go()

    def let_go(self) -> None:
        portal, self.portal = self.portal, None
        if portal is not None:
            portal.leave()


class _Gone:
    """Stands where a store was."""

    def __init__(self, reason: str, store: Store) -> None:
        self._reason = reason
        self._store = store  # kept: in the child of a fork even the end of its connections would harm the parent's

    def __getattr__(self, name: str) -> Any:
        raise ConfigError(self._reason)


_closing: set[asyncio.Task[None]] = set()  # an event loop alone does not keep its tasks
_of_the_parent: list[Store] = []
