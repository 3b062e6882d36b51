"""What a server knows of its store from looking now and then: the queues as last seen, and since when it is away."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from ..errors import HoldfastError
from ..escaping import logger_named
from ..queue_reports import QueueReport
from .history import History

_LOG = logger_named("holdfast.server")

LOOKS_S = 2.0  # looks of all pages within this time are one
_AWAY_S = 5.0  # a page that waits for longer says that the store is away


class Watch:
    """One per store and server. Every page asks here, so that many open pages cost the store what one costs."""

    def __init__(self, look: Callable[[], Awaitable[list[QueueReport]]]) -> None:
        self._look = look
        self._looking: asyncio.Task[list[QueueReport]] | None = None
        self._seen_at = float("-inf")
        self.seen: list[QueueReport] = []
        self.seen_when: datetime | None = None
        self.away_since: datetime | None = None
        self.away_why = ""

    async def reports(self) -> list[QueueReport]:
        """The queues now, or within the last two seconds; the store's errors, TimeoutError."""
        if time.monotonic() - self._seen_at < LOOKS_S:
            return self.seen
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._once())
            self._looking.add_done_callback(_heard)  # also when everybody who waited has gone
        async with asyncio.timeout(_AWAY_S):
            return await asyncio.shield(self._looking)

    def forget(self) -> None:
        """Something was changed here: the next page looks again."""
        self._seen_at = float("-inf")
        self._looking = None

    async def _once(self) -> list[QueueReport]:
        try:
            found = await self._look()
        except HoldfastError as error:
            self.note_away(error)
            raise
        self.seen, self.seen_when, self._seen_at = found, datetime.now(UTC), time.monotonic()
        self.away_since = None
        return found

    async def keep(self, history: History, every: float) -> None:
        """Look now and then, for ever, and write down what there is; a store that is away leaves a gap."""
        while True:
            await asyncio.sleep(every - time.time() % every)  # one in each step of the history
            try:
                await asyncio.to_thread(history.add, await self.reports())
            except (HoldfastError, TimeoutError) as error:
                self.note_away(error)
            except sqlite3.Error as error:
                _LOG.warning("the history of the page was not written: %s", error)

    def note_away(self, error: BaseException) -> None:
        """The store did not answer."""
        self.away_since = self.away_since or datetime.now(UTC)
        self.away_why = str(error) or type(error).__name__


def _heard(looking: asyncio.Task[list[QueueReport]]) -> None:
    if not looking.cancelled():
        looking.exception()
