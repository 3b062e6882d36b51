"""The figures of a report, as plain values: what the page shows and the tables hold. Instants are seconds from 1970."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from .periods import Period
from .present import Present

Metric: TypeAlias = Literal["wait", "run", "total"]
METRICS: tuple[Metric, ...] = ("wait", "run", "total")
QUANTILES = (0.5, 0.9, 0.95, 0.99)
TEXT_CHARS = 4000  # of a traceback or payload: what says most stands at its beginning
EVERY = ""  # stands for all queues together


class Bucket(msgspec.Struct, frozen=True):
    """What came and what ended in one queue from `at`, for as long as the period's step."""

    queue: str
    at: float
    arrived: int
    completed: int
    failed: int
    dead: int

    @property
    def ended(self) -> int:
        return self.completed + self.failed + self.dead


class EndedBefore(msgspec.Struct, frozen=True):
    """What ended in the period before, in all queues; `at` is as much later as the period is long."""

    at: float
    ended: int


class Latency(msgspec.Struct, frozen=True):
    """Seconds. `queue` "": all queues; `day` "": all days. `sketch` can be merged with others of its kind."""

    queue: str
    day: str
    metric: Metric
    count: int
    least: float
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    most: float
    sketch: bytes = b""


class Course(msgspec.Struct, frozen=True):
    """Seconds: the latency of what ended in one step of the period, in all queues."""

    at: float
    metric: Metric
    count: int
    p50: float
    p95: float
    p99: float


class Tries(msgspec.Struct, frozen=True):
    """How many messages of a queue took so many attempts."""

    queue: str
    attempts: int
    completed: int
    failed: int
    dead: int


class Reason(msgspec.Struct, frozen=True):
    """Messages that ended for the same reason, and the last of them."""

    fingerprint: str
    queue: str
    status: str
    kind: str
    reason: str
    count: int
    before: int  # in the period before
    first: float
    last: float
    example: str  # an id
    worker: str  # that had it
    attempts: int  # it took
    error: str  # its text, with the traceback
    value: str | None = None  # its payload as text, or its beginning; None where it was not looked at


class Worker(msgspec.Struct, frozen=True):
    """What one worker, or one Spark stream, has ended; `queues` with commas between."""

    worker: str
    queues: str
    ended: int
    completed: int
    failed: int
    dead: int
    retried: int
    busy: float  # seconds of all its runs together
    p50: float | None  # seconds of a run; None where nobody knows when it was claimed
    p95: float | None
    first: float
    last: float


class QueueFigures(msgspec.Struct, frozen=True):
    """A queue as a whole."""

    queue: str
    arrived: int
    ended: int
    completed: int
    failed: int
    dead: int
    retried: int  # took more than one attempt
    attempts: int  # of all messages together
    per_second: float  # ends, mean over the period
    busiest: float  # ends a second in its busiest step
    backlog_first: int  # messages that had arrived and not ended when the period began
    backlog_last: int  # and when it ended
    p50: float  # seconds from enqueue to end
    p95: float


class Before(msgspec.Struct, frozen=True):
    """A queue, or all (""), in the period before: as long, and just before it."""

    queue: str
    arrived: int
    ended: int
    completed: int
    failed: int
    dead: int
    retried: int
    p50: float  # seconds from enqueue to end
    p95: float
    p99: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a report says."""

    lake: str
    version: int
    made_at: float
    period: Period | None  # None: nothing has ended
    before_is_whole: bool = False  # the lake reaches back to the beginning of the period before
    present: Present
    queues: list[QueueFigures] = []
    buckets: list[Bucket] = []
    ended_before: list[EndedBefore] = []
    latency: list[Latency] = []
    course: list[Course] = []
    tries: list[Tries] = []
    reasons: list[Reason] = []
    workers: list[Worker] = []
    before: list[Before] = []

    @property
    def ended(self) -> int:
        return sum(one.ended for one in self.queues)

    def of(self, metric: Metric, queue: str = EVERY, day: str = "") -> Latency | None:
        """The latency of a queue, or of all."""
        for one in self.latency:
            if (one.metric, one.queue, one.day) == (metric, queue, day):
                return one
        return None

    def of_before(self, queue: str = EVERY) -> Before | None:
        """A queue in the period before; None where nothing can be said of it."""
        return next((one for one in self.before if one.queue == queue), None) if self.before_is_whole else None

    def tables(self) -> dict[str, tuple[type[msgspec.Struct], Sequence[msgspec.Struct]]]:
        """The figures by the name of their table: the kind of its rows, and the rows."""
        return {
            "queues": (QueueFigures, self.queues),
            "throughput": (Bucket, self.buckets),
            "latency": (Latency, self.latency),
            "course": (Course, self.course),
            "retries": (Tries, self.tries),
            "reasons": (Reason, self.reasons),
            "workers": (Worker, self.workers),
            "before": (Before, self.before),
        }


def backlog(buckets: Sequence[Bucket], waiting: int, period: Period) -> list[int]:
    """At the end of each step: what was there when the period began, and what came since, less what ended."""
    change = dict.fromkeys(range(period.steps), 0)
    for one in buckets:
        change[period.place(one.at)] += one.arrived - one.ended
    found = []
    for place in range(period.steps):
        waiting += change[place]
        found.append(waiting)
    return found


def queue_figures(
    period: Period, buckets: list[Bucket], waiting: dict[str, int], tries: list[Tries], latency: list[Latency]
) -> list[QueueFigures]:
    """Each queue as a whole, the busiest first, from the finer figures."""
    totals = {one.queue: one for one in latency if one.metric == "total" and one.day == "" and one.queue}
    names = {one.queue for one in buckets}
    made = [_queue(name, period, buckets, waiting.get(name, 0), tries, totals.get(name)) for name in names]
    return sorted(made, key=lambda one: (-one.ended, one.queue))


def _queue(
    name: str, period: Period, buckets: list[Bucket], waiting: int, tries: list[Tries], total: Latency | None
) -> QueueFigures:
    own = [one for one in buckets if one.queue == name]
    runs = [one for one in tries if one.queue == name]
    ended = sum(one.ended for one in own)
    arrived = sum(one.arrived for one in own)
    return QueueFigures(
        queue=name,
        arrived=arrived,
        ended=ended,
        completed=sum(one.completed for one in own),
        failed=sum(one.failed for one in own),
        dead=sum(one.dead for one in own),
        retried=sum(one.completed + one.failed + one.dead for one in runs if one.attempts > 1),
        attempts=sum(one.attempts * (one.completed + one.failed + one.dead) for one in runs),
        per_second=ended / period.seconds,
        busiest=max(one.ended for one in own) / period.step,
        backlog_first=waiting,
        backlog_last=waiting + arrived - ended,
        p50=total.p50 if total else 0.0,
        p95=total.p95 if total else 0.0,
    )
