"""One log of one process: its committer, its appender and its flushes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from ...errors import HoldfastError
from ...escaping import logger_named
from ...ids import Ids
from .append import Appender
from .cache import BlockCache
from .commit import Committer
from .flush import TAKEOVER, Flusher
from .head.machine import flush_due, is_heavy
from .head.state import Gathered, Head
from .queues import Address
from .repeat_window import RepeatWindow
from .space import Space

FLUSH_ROWS = 4000
FLUSH_AGE = 2.0  # seconds outcomes gather at most
_LONGEST_PAUSE = 60.0  # seconds between two tries to flush
_LIGHTER_S = 1.0  # longer than most flushes; a store that is away holds up nobody for more
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
        linger: float = 0.0,
    ) -> None:
        self.address = address
        self.cache = cache
        self.window = window
        self.committer = Committer(space, address, cache, window, timeout=timeout, written=self._written)
        self.appender = Appender(space, address.text, maker, window, timeout=timeout, step=step, linger=linger)
        self.flusher = Flusher(space, self.committer, cache, maker, timeout=timeout, step=step)
        self._flushing: asyncio.Task[None] | None = None
        self._gathered = Gathered()
        self._closed = False
        self._put_off = 0  # how often in a row a flush did not succeed
        self._again = False  # another flush became due while one was running
        self._timer: asyncio.TimerHandle | None = None
        self._is_clear = True  # the last commit left nothing to flush

    def _written(self, head: Head) -> None:
        """After every commit: is a flush due now, or by itself in a while?"""
        if self._closed:
            return
        self.window.committed(head)
        self._is_clear = not (head.settled or head.frozen)
        abandoned = head.frozen is not None and head.now - head.frozen.since > TAKEOVER
        if abandoned or flush_due(head, self._gathered, rows=FLUSH_ROWS, age=FLUSH_AGE):
            self._start_flush()
        elif (head.settled or head.frozen) and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AGE, self._flush_later)

    def _flush_later(self) -> None:
        self._timer = None
        if not self._is_clear:  # else a flush in between has written everything
            self._start_flush()

    def _start_flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
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
        self._flushing = None
        if self._closed:
            return
        if self._put_off:  # by itself, since nobody may use the queue again soon
            pause = min(_LONGEST_PAUSE, FLUSH_AGE * 2.0 ** min(self._put_off, 16))
            self._timer = self._timer or asyncio.get_running_loop().call_later(pause, self._flush_later)
        elif self._again:
            self._start_flush()

    async def lighten(self) -> None:
        """Who fails messages with long errors must not outrun the flush that they make due."""
        if self._flushing is not None and is_heavy(self.committer.stored(self.committer.root)):
            await asyncio.wait([self._flushing], timeout=_LIGHTER_S)

    async def close(self, until: float) -> None:
        """A flush that a store holds up is left to whoever comes next."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._flushing is not None:
            await asyncio.wait([self._flushing], timeout=max(0.0, until - time.monotonic()))
        await self.window.close()
