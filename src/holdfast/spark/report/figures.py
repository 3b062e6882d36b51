"""The figures of a report, as plain values: what the page shows and the tables hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

Metric: TypeAlias = Literal["wait", "run", "total"]
METRICS: tuple[Metric, ...] = ("total", "wait", "run")
QUANTILES = (0.5, 0.9, 0.95, 0.99)
EVERY = ""  # stands for all queues together


class Minute(msgspec.Struct, frozen=True):
    """What ended in one minute of one queue; `at` is seconds since 1970."""

    queue: str
    at: int
    completed: int
    failed: int
    dead: int

    @property
    def ended(self) -> int:
        return self.completed + self.failed + self.dead


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


class Tries(msgspec.Struct, frozen=True):
    """How many messages of a queue took so many attempts."""

    queue: str
    attempts: int
    completed: int
    failed: int
    dead: int


class Reason(msgspec.Struct, frozen=True):
    """Messages that ended for the same reason."""

    fingerprint: str
    queue: str
    status: str
    kind: str
    reason: str
    count: int
    first: float
    last: float
    example: str  # an id


class QueueFigures(msgspec.Struct, frozen=True):
    """A queue as a whole."""

    queue: str
    ended: int
    completed: int
    failed: int
    dead: int
    retried: int  # took more than one attempt
    attempts: int  # of all messages together
    per_minute: float  # mean over the minutes from the first end to the last
    busiest: int  # messages that ended in its busiest minute
    p50: float  # seconds from enqueue to end
    p95: float


class Figures(msgspec.Struct, frozen=True):
    """Everything a report says."""

    lake: str
    version: int
    made_at: float
    since: float | None
    until: float | None
    queues: list[QueueFigures]
    minutes: list[Minute]
    latency: list[Latency]
    tries: list[Tries]
    reasons: list[Reason]

    @property
    def ended(self) -> int:
        return sum(one.ended for one in self.queues)

    def of(self, metric: Metric, queue: str = EVERY, day: str = "") -> Latency | None:
        """The latency of a queue, or of all."""
        for one in self.latency:
            if (one.metric, one.queue, one.day) == (metric, queue, day):
                return one
        return None

    def tables(self) -> dict[str, tuple[type[msgspec.Struct], Sequence[msgspec.Struct]]]:
        """The figures by the name of their table: the kind of its rows, and the rows."""
        return {
            "queues": (QueueFigures, self.queues),
            "throughput": (Minute, self.minutes),
            "latency": (Latency, self.latency),
            "retries": (Tries, self.tries),
            "reasons": (Reason, self.reasons),
        }


def queue_figures(minutes: list[Minute], tries: list[Tries], latency: list[Latency]) -> list[QueueFigures]:
    """Each queue as a whole, the busiest first, from the finer figures."""
    totals = {one.queue: one for one in latency if one.metric == "total" and one.day == "" and one.queue}
    return sorted((_queue(name, minutes, tries, totals[name]) for name in totals), key=lambda one: -one.ended)


def _queue(name: str, minutes: list[Minute], tries: list[Tries], total: Latency) -> QueueFigures:
    own = [one for one in minutes if one.queue == name]
    runs = [one for one in tries if one.queue == name]
    ended = sum(one.ended for one in own)
    span = (max(one.at for one in own) - min(one.at for one in own)) // 60 + 1
    return QueueFigures(
        name,
        ended,
        sum(one.completed for one in own),
        sum(one.failed for one in own),
        sum(one.dead for one in own),
        sum(one.completed + one.failed + one.dead for one in runs if one.attempts > 1),
        sum(one.attempts * (one.completed + one.failed + one.dead) for one in runs),
        ended / span,
        max(one.ended for one in own),
        total.p50,
        total.p95,
    )
