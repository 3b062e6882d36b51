"""Which dead letters came lately, and why: read again only when their number has changed, and never for long."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from .. import ids
from ..causes import Cause, cause
from ..errors import HoldfastError
from ..queue_reports import QueueReport
from ..stores.base import PAGE_ROWS, Store
from ..stores.records import Stored
from .watch import QUICK_S

LATELY_S = 3600.0  # what died since then is news
STILL_S = 300.0  # a reason whose last letter is younger still comes
_READ_QUEUES = 5  # that are read for one page: those with the most letters
_AGAIN_S = 10.0  # between two reads of a queue


class Deaths(msgspec.Struct, frozen=True):
    """Letters of the last hour, and the reason that most of them share."""

    lately: int
    cause: Cause
    letters: int  # that have this reason, whenever they died
    first: datetime
    last: datetime


def deaths_of(letters: Sequence[Stored], now: float) -> Deaths | None:
    """None: nothing died lately. Pure."""
    ends = [(each.finished_at or each.enqueued_at, cause(each.error or "")) for each in letters]
    lately = Counter(why for at, why in ends if at > now - LATELY_S)
    if not lately:
        return None
    [(most, _)] = lately.most_common(1)
    times = [at for at, why in ends if why == most]
    first, last = (datetime.fromtimestamp(at, UTC) for at in (min(times), max(times)))
    return Deaths(lately.total(), most, len(times), first, last)


class DeathWatch:
    """One per store and server."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, float, Deaths | None]] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}

    async def look(self, store: Store, reports: Sequence[QueueReport]) -> dict[str, Deaths]:
        """What is known by now of the queues with the most letters."""
        most = sorted((each for each in reports if each.stats.dead), key=lambda each: (-each.stats.dead, each.name))
        for report in most[:_READ_QUEUES]:
            if self._is_old(report) and report.name not in self._reading:
                task = asyncio.ensure_future(self._read(store, report))
                self._reading[report.name] = task
                task.add_done_callback(lambda done, name=report.name: self._reading.pop(name, None))  # type: ignore[misc]  # a default binds the name
        if self._reading:
            await asyncio.wait(list(self._reading.values()), timeout=QUICK_S)
        names = {each.name for each in most}
        return {name: found for name, (_, _, found) in self._known.items() if name in names and found is not None}

    def _is_old(self, report: QueueReport) -> bool:
        count, read_at, found = self._known.get(report.name, (-1, 0.0, None))
        age = time.monotonic() - read_at
        return age > _AGAIN_S and (count != report.stats.dead or (found is not None and age > STILL_S))

    async def _read(self, store: Store, report: QueueReport) -> None:
        try:
            now = await store.clock()
            after = None if report.stats.dead <= PAGE_ROWS else ids.text(ids.named(now - 2 * LATELY_S, 0, 0))
            letters = await store.scan(report.name, "dead", after=after, limit=PAGE_ROWS)
        except HoldfastError:
            return  # the page tells of a store that is away
        self._known[report.name] = report.stats.dead, time.monotonic(), deaths_of(letters, now)
