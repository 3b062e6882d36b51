"""How long messages wait and run: once a minute, from the newest archived records of every queue that completed some.

It does not depend on who did the work. A store keeps the archive in the order of the ids, which say when a message was
made: how far back the newest records lie is learned from those that were seen before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec

from .. import ids
from ..broker import Broker
from ..errors import HoldfastError, QueueNotFound
from ..queue_reports import QueueReport
from ..stores.base import PAGE_ROWS
from ..stores.records import Stored
from .history import History, Timing
from .watch import Watch

MEASURE_S = 60.0  # between two measurements
COSTLY = 10  # times as rare at a store that pays for requests
_AT_ONCE = 4  # queues that are read: others have their turn in between
_BACK_S = 120.0  # how far back the first look goes
_LEAST_BACK_S, _MOST_BACK_S = 5.0, 86400.0


class Measuring:
    """Of one store."""

    def __init__(self, broker: Callable[[], Broker], watch: Watch, history: History) -> None:
        self._broker = broker  # the one that is open now
        self._watch = watch
        self._history = history
        self._ended: dict[str, int] = {}  # messages that had ended at the last look
        self._back_s: dict[str, float] = {}

    async def keep(self, every: float) -> None:
        """Measure now and then, for ever; a store that is away leaves a gap."""
        began = time.time()
        while True:
            await asyncio.sleep(every - time.time() % every)
            now = time.time()
            try:
                await self.measure(began, now)
                began = now
            except (HoldfastError, TimeoutError) as error:
                self._watch.note_away(error)

    async def measure(self, since: float, now: float) -> None:
        """What ended between these instants, of every queue."""
        reports, turns = await self._watch.reports(), asyncio.Semaphore(_AT_ONCE)

        async def one(report: QueueReport) -> tuple[str, Timing] | None:
            async with turns:
                return await self._measured(report, since, now)

        found = await asyncio.gather(*map(one, reports))
        await asyncio.to_thread(self._history.measured, dict(filter(None, found)), now)

    async def _measured(self, report: QueueReport, since: float, now: float) -> tuple[str, Timing] | None:
        """None: there is nothing to say of this minute."""
        name, stats = report.name, report.stats
        ended = stats.completed + stats.failed
        before = self._ended.get(name, ended)
        self._ended[name] = ended
        timing = Timing(oldest=stats.oldest_age)
        if ended > before and report.options.archive:
            timing = msgspec.structs.replace(await self._timed(name, since, now), oldest=stats.oldest_age)
        return (name, timing) if timing != Timing() else None

    async def _timed(self, name: str, since: float, now: float) -> Timing:
        back = self._back_s.get(name, _BACK_S)
        after = ids.text(ids.named(max(0.0, now - back), 0, 0))
        try:
            records = await self._broker().store.scan(name, "archive", after=after, limit=PAGE_ROWS)
        except QueueNotFound:
            return Timing()
        fresh = [each for each in records if since <= (each.finished_at or 0.0)]
        self._back_s[name] = next_back(back, fresh, is_full=len(records) == PAGE_ROWS)
        return timing_of(fresh)


def next_back(back: float, fresh: Sequence[Stored], *, is_full: bool) -> float:
    """How far back the next look goes: later where a page was full, earlier where it had nothing new. Pure."""
    if is_full:
        wanted = back / 2
    elif not fresh:
        wanted = back * 4
    else:
        wanted = max(_BACK_S, MEASURE_S + 2 * max((each.finished_at or 0.0) - each.enqueued_at for each in fresh))
    return min(_MOST_BACK_S, max(_LEAST_BACK_S, wanted))


def timing_of(records: Sequence[Stored]) -> Timing:
    """Waits are those of messages that ended at their first attempt: of others nobody knows when it began. Pure."""
    held = [(each, each.claimed_at, each.finished_at) for each in records]
    runs = sorted(end - begin for _, begin, end in held if begin is not None and end is not None)
    waits = sorted(begin - each.enqueued_at for each, begin, _ in held if begin is not None and each.attempts == 1)
    return Timing(len(runs), *_percentiles(waits), *_percentiles(runs))


def _percentiles(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """By nearest rank; never below nothing, as clocks differ."""
    if not values:
        return None, None, None
    p50, p95, p99 = (max(0.0, values[min(len(values) - 1, int(len(values) * share))]) for share in (0.5, 0.95, 0.99))
    return p50, p95, p99
