"""What queues held and did, over time: a small SQLite file that survives a restart of the server.

A sample is written every ten seconds and, in place of the one before, as that of its minute and of its ten minutes. A
queue that did not change writes nothing: the sample before still holds. The row of all queues together is always
written, so that a gap says that nobody looked.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from ..escaping import logger_named
from ..queue_reports import QueueReport
from ..stores.records import Stats

_LOG = logger_named("holdfast.server")
STEPS_S = {10: 3600, 60: 86400, 600: 30 * 86400}  # how fine, and for how long
ALL = ""  # the queue that stands for all together
_FIELDS = ("pending", "delayed", "processing", "retry", "dead", "completed", "failed")
_SCHEMA = f"""
create table if not exists samples (
    store text not null, queue text not null, step integer not null, at integer not null,
    {", ".join(f"{field} integer not null" for field in _FIELDS)},
    primary key (store, queue, step, at)
) without rowid
"""
_INDEX = "create index if not exists samples_by_time on samples (store, step, at)"
_MEASURED_STEPS_S = {60: 86400, 600: 30 * 86400}  # of waits and runs; ten minutes are the mean of theirs
_TIMES = ("wait_p50", "wait_p95", "wait_p99", "run_p50", "run_p95", "run_p99", "oldest")
_MEASURED = f"""
create table if not exists measured (
    store text not null, queue text not null, step integer not null, at integer not null,
    count integer not null, {", ".join(f"{name} real" for name in _TIMES)},
    primary key (store, queue, step, at)
) without rowid
"""


class Timing(msgspec.Struct, frozen=True, array_like=True):
    """Seconds that messages of a minute waited and ran, and that the oldest had waited then; None: nobody knows."""

    count: int = 0
    wait_p50: float | None = None
    wait_p95: float | None = None
    wait_p99: float | None = None
    run_p50: float | None = None
    run_p95: float | None = None
    run_p99: float | None = None
    oldest: float | None = None


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """A queue at an instant (seconds since 1970); `completed` and `failed` count since its creation."""

    at: int
    pending: int
    delayed: int
    processing: int
    retry: int
    dead: int
    completed: int
    failed: int

    @property
    def known(self) -> int:
        """Every message that ever came, as far as counts tell: the difference of two is what came in between."""
        return self.pending + self.delayed + self.processing + self.retry + self.dead + self.completed + self.failed


class History:
    """Samples of one store. Every call may block: for a thread."""

    def __init__(self, path: Path | None, store: str = "", *, every: float = 0.0) -> None:
        """Without a path, or where it cannot be written, it is in memory. Samples come `every` so many seconds."""
        self._store = store
        self._every = every
        self._lock = threading.Lock()
        self._last: dict[str, Sample] = {}
        self._swept = 0
        self.is_kept = path is not None
        try:
            self._open(str(path) if path is not None else ":memory:")
        except sqlite3.Error as error:
            _LOG.warning("%s cannot be written, so charts begin again with every start: %s", path, error)
            self.is_kept = False
            self._open(":memory:")

    def _open(self, path: str) -> None:
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=5)
        self._db.execute("pragma synchronous = off")  # a picture of the past: nobody waits for it
        self._db.execute(_SCHEMA)
        self._db.execute(_INDEX)
        self._db.execute(_MEASURED)

    def add(self, reports: Sequence[QueueReport], now: float | None = None) -> None:
        """How the queues are now."""
        at = int(time.time() if now is None else now)
        samples = {each.name: _sampled(at, each.stats) for each in reports}
        changed = {name: one for name, one in samples.items() if not _is_same(self._last.get(name), one)}
        changed[ALL] = _sum(at, list(samples.values()))
        rows = [
            (self._store, name, step, at - at % step, *msgspec.structs.astuple(one)[1:])
            for name, one in changed.items()
            for step in STEPS_S
        ]
        marks = ", ".join("?" * (4 + len(_FIELDS)))
        with self._lock, self._db:  # all or nothing
            self._db.execute("begin")
            self._db.executemany(f"insert or replace into samples values ({marks})", rows)
            self._sweep(at)
        self._last = samples

    def measured(self, timings: Mapping[str, Timing], now: float | None = None) -> None:
        """How long messages of these queues waited and ran in the minute before."""
        at = int(time.time() if now is None else now)
        rows = [
            (self._store, name, step, at - at % step, *msgspec.structs.astuple(one))
            for name, one in timings.items()
            for step in _MEASURED_STEPS_S
        ]
        marks = ", ".join("?" * (5 + len(_TIMES)))
        both = "nullif(count + excluded.count, 0)"
        means = ", ".join(
            f"{each} = coalesce(({each} * count + excluded.{each} * excluded.count) / {both}, excluded.{each}, {each})"
            for each in _TIMES
        )
        more = f"on conflict do update set {means}, count = count + excluded.count"  # nosec B608 - names of ours
        with self._lock, self._db:
            self._db.execute("begin")
            self._db.executemany(f"insert into measured values ({marks}) {more}", rows)  # nosec B608 - names of ours
            for step, kept in _MEASURED_STEPS_S.items():
                self._db.execute(
                    "delete from measured where store = ? and step = ? and at < ?", (self._store, step, at - kept)
                )

    def timings(self, queue: str, seconds: int, now: float | None = None) -> list[Timing | None]:
        """So many seconds until now, in equal steps; None where nothing ended, or nobody looked."""
        end = int(time.time() if now is None else now)
        step = next((step for step, kept in _MEASURED_STEPS_S.items() if kept >= seconds), max(_MEASURED_STEPS_S))
        begin = (end - seconds) - (end - seconds) % step
        with self._lock:
            found = self._db.execute(
                f"select at, count, {', '.join(_TIMES)} from measured"  # nosec B608 - names of ours
                " where store = ? and queue = ? and step = ? and at > ?",
                (self._store, queue, step, begin),
            ).fetchall()
        known = {at: Timing(*row) for at, *row in found}
        return [known.get(tick) for tick in range(begin + step, end + 1, step)]

    def usual_oldest(self, queue: str, now: float | None = None) -> float | None:
        """What the oldest message of a queue has usually waited, in the minutes of a day in which one did."""
        waits = [
            each.oldest for each in self.timings(queue, 86400, now) if each is not None and each.oldest is not None
        ]
        return median(waits) if waits else None

    def quiet_since(self, queue: str, now: float | None = None) -> int | None:
        """When somebody last held or completed one of its messages, within the last day; None: nobody was seen."""
        end = int(time.time() if now is None else now)
        with self._lock:
            rows = self._rows(queue, 60, end - 86400)
        busy = [each.at for each in rows if each.processing]
        busy += [after.at for before, after in itertools.pairwise(rows) if after.completed > before.completed]
        return max(busy, default=None)

    def _sweep(self, at: int) -> None:
        """Every ten minutes; the newest sample before the span stays, as it tells what held at its start."""
        if at - self._swept < max(STEPS_S):
            return
        self._swept = at
        for step, kept in STEPS_S.items():
            self._db.execute(
                "delete from samples where store = ? and step = ? and at < ? and at < (select max(newer.at) from"
                " samples as newer where newer.store = samples.store and newer.queue = samples.queue"
                " and newer.step = samples.step and newer.at < ?)",
                (self._store, step, at - kept, at - kept),
            )

    def span(self, queue: str, seconds: int, now: float | None = None, *, coarse: int = 0) -> list[Sample | None]:
        """So many seconds until now, in equal steps, of `coarse` seconds at least; None where nobody looked."""
        end = int(time.time() if now is None else now)
        least = max(coarse, self._every)
        step = next((step for step, kept in STEPS_S.items() if kept >= seconds and step >= least), max(STEPS_S))
        begin = (end - seconds) - (end - seconds) % step
        with self._lock:
            own = self._rows(queue, step, begin)
            looked = {one.at for one in (own if queue == ALL else self._rows(ALL, step, begin))}
        return _filled(own, looked, range(begin + step, end + 1, step))

    def came(self, at: float) -> dict[str, int]:
        """Queues into which messages came about this instant, and how many at most, as finely as it is kept."""
        known = "pending + delayed + processing + retry + dead + completed + failed"
        before = (
            f"select {known} from samples as older where older.store = newer.store and older.queue = newer.queue"  # nosec B608 - names of ours
            " and older.step = newer.step and older.at < ? order by older.at desc limit 1"
        )
        ask = (
            f"select queue, max({known}) - coalesce(({before}), 0) from samples as newer"  # nosec B608 - names of ours
            " where store = ? and step = ? and at between ? and ? group by queue"
        )
        for step in STEPS_S:
            first = int(at) // step * step
            with self._lock:
                rows = self._db.execute(ask, (first, self._store, step, first, first + step)).fetchall()
            if rows:  # at least of all queues together: somebody looked
                return {queue: count for queue, count in rows if queue != ALL and count > 0}
        return {}

    def _rows(self, queue: str, step: int, begin: int) -> list[Sample]:
        """From `begin` on, and the one before."""
        where = "from samples where store = ? and queue = ? and step = ?"
        found = self._db.execute(
            f"select at, {', '.join(_FIELDS)} {where} and at >= coalesce((select max(at) {where} and at <= ?), 0)"  # nosec B608 - names of ours
            " order by at",
            (self._store, queue, step, self._store, queue, step, begin),
        )
        return [Sample(*row) for row in found.fetchall()]

    def close(self) -> None:
        with self._lock:
            self._db.close()


def _sampled(at: int, stats: Stats) -> Sample:
    return Sample(at, *(getattr(stats, field) for field in _FIELDS))


def _is_same(one: Sample | None, other: Sample) -> bool:
    return one is not None and msgspec.structs.astuple(one)[1:] == msgspec.structs.astuple(other)[1:]


def _sum(at: int, samples: Sequence[Sample]) -> Sample:
    return Sample(at, *(sum(getattr(one, field) for one in samples) for field in _FIELDS))


def _filled(own: list[Sample], looked: set[int], ticks: range) -> list[Sample | None]:
    """A sample holds until the next one, where somebody looked."""
    filled: list[Sample | None] = []
    held: Sample | None = None
    rest = iter(own)
    following = next(rest, None)
    for tick in ticks:
        while following is not None and following.at <= tick:
            held, following = following, next(rest, None)
        was_seen = tick in looked or {tick - ticks.step, tick + ticks.step} <= looked  # a look may be a little late
        filled.append(msgspec.structs.replace(held, at=tick) if held is not None and was_seen else None)
    return filled


def rates(samples: Sequence[Sample | None]) -> list[tuple[float, float] | None]:
    """Messages a second that came and that were completed, between one sample and the next; None: not known.

    What came is worked out from counts: a purge or a deletion hides as much of it, so it is never below nothing.
    """
    found: list[tuple[float, float] | None] = [None]
    for before, after in itertools.pairwise(samples):
        if before is None or after is None:
            found.append(None)
            continue
        span = after.at - before.at
        came, done = after.known - before.known, after.completed - before.completed
        found.append((max(0.0, came / span), max(0.0, done / span)))
    return found
