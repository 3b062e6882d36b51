"""How long messages wait and run: from the newest archived records of every queue that completed some.

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
from ..stores.records import Stored
from .history import History, Timing
from .watch import Watch

_READ_ROWS = 160  # of a queue and measurement: at most 1,000 a minute
_TURN_QUEUES = 100  # of one measurement, the longest not measured first: a thousand busy ones take their turns
_BACK_S = 120.0  # how far back the first look goes
_LEAST_BACK_S, _MOST_BACK_S = 5.0, 86400.0


class Measuring:
    """Of one store."""

    def __init__(self, broker: Callable[[], Broker], watch: Watch, history: History) -> None:
        self._broker = broker  # the one that is open now
        self._watch = watch
        self._history = history
        self._ended: dict[str, tuple[int, float]] = {}  # messages that had ended at the last look, and when that was
        self._back_s: dict[str, float] = {}

    async def keep(self, every: float) -> None:
        """Measure now and then, for ever; a store that is away leaves a gap."""
        while True:
            await asyncio.sleep(every - time.time() % every)
            try:
                await self.measure(time.time())
            except (HoldfastError, TimeoutError) as error:
                self._watch.note_away(error)

    async def measure(self, now: float) -> None:
        """What has ended since the last look, of as many queues as one look reads."""
        reports = await self._watch.reports()
        chosen = self._chosen(reports, now)

        found: dict[str, Timing] = {}
        for report in reports:  # one after the other: workers have their turn in between
            since = chosen.get(report.name)
            timing = Timing() if since is None else await self._timed(report.name, since, now)
            found[report.name] = msgspec.structs.replace(timing, oldest=report.stats.oldest_age)
        known = {name: timing for name, timing in found.items() if timing != Timing()}
        await asyncio.to_thread(self._history.measured, known, now)

    def _chosen(self, reports: Sequence[QueueReport], now: float) -> dict[str, float]:
        """Queues to read, and since when messages of them have ended."""
        busy: dict[str, float] = {}
        ended = {each.name: each.stats.completed + each.stats.failed for each in reports}
        for report in reports:
            before, at = self._ended.get(report.name, (ended[report.name], now))
            if ended[report.name] > before and report.options.archive:
                busy[report.name] = at
            else:
                self._ended[report.name] = ended[report.name], now
        chosen = dict(sorted(busy.items(), key=lambda each: each[1])[:_TURN_QUEUES])
        self._ended.update((name, (ended[name], now)) for name in chosen)
        return chosen

    async def _timed(self, name: str, since: float, now: float) -> Timing:
        back = self._back_s.get(name, _BACK_S)
        after = ids.text(ids.named(max(0.0, now - back), 0, 0))
        try:
            records = await self._broker().store.scan(name, "archive", after=after, limit=_READ_ROWS)
        except QueueNotFound:
            return Timing()
        fresh = [each for each in records if since <= (each.finished_at or 0.0)]
        self._back_s[name] = next_back(back, fresh, is_full=len(records) == _READ_ROWS)
        return timing_of(fresh)


def next_back(back: float, fresh: Sequence[Stored], *, is_full: bool) -> float:
    """How far back the next look goes: less where a page was full of old ones, more where nothing was new. Pure."""
    if is_full:
        wanted = back if 2 * len(fresh) >= _READ_ROWS else back / 2
    elif not fresh:
        wanted = back * 4
    else:
        wanted = max(_BACK_S, 60 + 2 * max((each.finished_at or 0.0) - each.enqueued_at for each in fresh))
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
