"""One log of one process: its committer, its appender and its flushes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

from ...errors import HoldfastError
from ...escaping import logger_named
from ...ids import Ids
from .append import Appender
from .cache import BlockCache
from .commit import Committer
from .flush import TAKEOVER, Flusher
from .head.machine import flush_due
from .head.state import Gathered, Head
from .queues import Address
from .repeat_window import RepeatWindow
from .space import Space
from .topics import call

FLUSH_ROWS = 4000
FLUSH_AGE = 2.0  # seconds outcomes gather at most
_LONGEST_PAUSE = 60.0  # seconds between two tries to flush
logger = logger_named("holdfast.stores.log")


class Log:
    """See the module. Flushes run by themselves, one at a time."""

    def __init__(
        self,
        space: Space,
        address: Address,
        cache: BlockCache,
        maker: Ids,
        window: RepeatWindow,
        *,
        timeout: float,
        step: Callable[[str], Awaitable[None]] | None,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._loop = loop or asyncio._get_running_loop()
        self.address = address
        self.cache = cache
        self.window = window
        self.committer = Committer(space, address, cache, window, timeout=timeout, written=self._written)
        self.appender = Appender(space, address.text, maker, window, timeout=timeout, step=step)
        self.flusher = Flusher(space, self.committer, cache, maker, timeout=timeout, step=step)
        self._flushing: asyncio.Task[None] | None = None
        self._gathered = Gathered()
        self._closed = False
        self._put_off = 0  # how often in a row a flush did not succeed
        self._again = False  # another flush became due while one was running
        self._timer: asyncio.TimerHandle | None = None
        self._mutex = threading.Lock()
        self._is_clear = True  # the last commit left nothing to flush
        self._asked = False  # a flush begins with the next turn of the event loop
        self._awaited = False  # or when the timer ends

    def _written(self, head: Head) -> None:
        """After every commit, in the thread that led it: is a flush due now, or by itself in a while?"""
        if self._closed:
            return
        self.window.committed(head)
        with self._mutex:
            self._is_clear = not (head.settled or head.frozen)
            abandoned = head.frozen is not None and head.now - head.frozen.since > TAKEOVER
            due = abandoned or flush_due(head, self._gathered, rows=FLUSH_ROWS, age=FLUSH_AGE)
            if due and self._flushing is not None:
                self._again = True
                return
            if self._asked if due else self._is_clear or self._awaited:
                return
            self._asked, self._awaited = self._asked or due, True
        self._call_loop(self._start_flush if due else self._flush_in_a_while)

    def _call_loop(self, callback: Callable[[], None]) -> None:
        if asyncio._get_running_loop() is not None:
            callback()
        elif self._loop is not None:
            call(self._loop, lambda _: callback(), None)

    def _flush_in_a_while(self, pause: float = FLUSH_AGE) -> None:
        self._awaited = True
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(pause, self._flush_later)

    def _flush_later(self) -> None:
        self._timer = None
        if self._is_clear:  # a flush in between has written everything
            self._awaited = False
        else:
            self._start_flush()

    def _start_flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closed:
            return
        with self._mutex:
            self._asked = self._awaited = False
            self._again = self._flushing is not None
            if self._flushing is None:
                self._flushing = asyncio.get_running_loop().create_task(self._flush())
                self._flushing.add_done_callback(self._flushed)

    async def _flush(self) -> None:
        try:
            await self.flusher.flush()
            self._put_off = int(self.flusher.waits)
        except HoldfastError as error:
            self._put_off += 1
            logger.warning("flush of %s put off: %s", self.address.text, error)
        except RuntimeError as error:  # an event loop or an interpreter that ends starts no more threads
            if "shutdown" not in str(error):
                raise

    def _flushed(self, task: asyncio.Task[None]) -> None:
        with self._mutex:
            self._flushing = None
        if self._closed:
            return
        if self._put_off:  # by itself, since nobody may use the queue again soon
            pause = min(_LONGEST_PAUSE, FLUSH_AGE * 2.0 ** min(self._put_off, 16))
            self._flush_in_a_while(pause)
        elif self._again:
            self._start_flush()

    async def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        await self.window.close()
