"""What the store has now: the part of a report that no lake can know. Plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from .periods import Period

if TYPE_CHECKING:
    from ..lake import State


class QueueNow(msgspec.Struct, frozen=True):
    """What is in a queue, and how far the lake is behind it."""

    queue: str
    paused: bool
    ready: int
    delayed: int
    running: int
    retry: int
    dead: int
    oldest: float | None  # seconds the oldest ready message has waited
    seen: float | None  # until when the lake has what ended; None: it has nothing of this queue
    unseen: int | None  # messages that ended since; None where that cannot be counted


class StreamNow(msgspec.Struct, frozen=True):
    """A Spark stream that reads a queue."""

    queue: str
    consumer: str
    owner: str  # "": no query runs
    claimed: int
    lag: int  # messages that are ready, and those it holds
    tries: int  # of the oldest batch it holds


class Retrying(msgspec.Struct, frozen=True):
    """Messages that failed for one reason and will be tried again; the last of those looked at."""

    queue: str
    fingerprint: str
    reason: str
    count: int
    example: str  # an id
    attempt: int
    error: str


class Present(msgspec.Struct, frozen=True):
    """`store` is its URL without secrets; empty when nobody named one, and then the rest is empty too."""

    store: str = ""
    wrong: str = ""  # why something is not known
    at: float = 0.0
    counts_waiting: bool = False  # arrivals and backlog include what has not ended
    queues: list[QueueNow] = []
    streams: list[StreamNow] = []
    retrying: list[Retrying] = []
    retrying_of: int = 0  # messages whose errors were looked at


class Arrivals(msgspec.Struct, frozen=True):
    """When messages came that are in no lake yet: so many of a queue in a step; `place` -1 is before the period."""

    queue: str
    place: int
    count: int


class Store:
    """Whom a report asks about the present: nobody, unless it was given a store."""

    def present(self, state: State, queues: Sequence[str] | None) -> Present:
        return Present()

    def waiting(self, period: Period) -> list[Arrivals]:
        """When the messages came that had not ended when the lake was filled."""
        return []

    def close(self) -> None:
        """Nothing more will be asked."""
