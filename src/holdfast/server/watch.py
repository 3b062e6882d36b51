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
_MOST_LOOKS_S = 10.0  # and never older than this: work of others is to be seen soon
_REST_FACTOR = 4  # so many times as long as a look takes there is none: pages must not keep a store busy
QUICK_S = 0.05  # a page waits so long for new numbers, and then shows those of before
_LOOK_OLD_S = 60.0  # which may be so old: two looks at a store that is looked at once a minute would be missing
_AWAY_S = 5.0  # a page that waits for longer says that the store is away


class Watch:
    """One per store and server. Every page asks here, so that many open pages cost the store what one costs."""

    def __init__(self, look: Callable[[], Awaitable[list[QueueReport]]]) -> None:
        self._look = look
        self._looking: asyncio.Task[list[QueueReport]] | None = None
        self._seen_at = float("-inf")
        self._holds_s = LOOKS_S  # for which a look is believed
        self._asked = 0  # times that the next look must be a new one
        self.seen: list[QueueReport] = []
        self.seen_when: datetime | None = None
        self.away_since: datetime | None = None
        self.away_why = ""

    async def reports(self, *, patience: float = _AWAY_S) -> list[QueueReport]:
        """The queues now, or within the last two seconds; with very many, ten. The store's errors, TimeoutError."""
        if time.monotonic() - self._seen_at < self._holds_s:
            return self.seen
        looking = self._begun()
        async with asyncio.timeout(patience):
            return await asyncio.shield(looking)

    async def recent(self) -> list[QueueReport]:
        """The same for a page, which waits for a long look only when there is nothing else to show."""
        age = time.monotonic() - self._seen_at
        if age < self._holds_s or age > _LOOK_OLD_S or self.away_since is not None:
            return await self.reports()
        looking = self._begun()
        await asyncio.wait([looking], timeout=QUICK_S)
        return await looking if looking.done() else self.seen

    def _begun(self) -> asyncio.Task[list[QueueReport]]:
        """The look that is under way, or a new one."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._once())
            self._looking.add_done_callback(_heard)  # also when everybody who waited has gone
        return self._looking

    def forget(self) -> None:
        """Something was changed here: the next page looks again."""
        self._seen_at = float("-inf")
        self._looking = None
        self._asked += 1

    async def _once(self) -> list[QueueReport]:
        began, asked = time.monotonic(), self._asked
        try:
            found = await self._look()
        except HoldfastError as error:
            self.note_away(error)
            raise
        self._holds_s = min(_MOST_LOOKS_S, max(LOOKS_S, _REST_FACTOR * (time.monotonic() - began)))
        self.seen, self.seen_when, self.away_since = found, datetime.now(UTC), None
        if asked == self._asked:  # else something was changed here meanwhile, which this look may have missed
            self._seen_at = time.monotonic()
        return found

    async def keep(self, history: History, every: float) -> None:
        """Look now and then, for ever, and write down what there is; a store that is away leaves a gap."""
        while True:
            await asyncio.sleep(every - time.time() % every)  # one in each step of the history
            try:
                await asyncio.to_thread(history.add, await self.reports(patience=every))
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
