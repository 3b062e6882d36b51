"""What travels between the queue and a store: plain records of opaque bytes. Instants are seconds since 1970."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias, overload

import msgspec

Status: TypeAlias = Literal["delayed", "pending", "processing", "retry", "completed", "failed", "dead"]
View: TypeAlias = Literal["ready", "delayed", "processing", "retry", "dead", "archive"]
Answer: TypeAlias = Literal["ok", "lost", "unknown"]
Action: TypeAlias = Literal["complete", "retry", "dead", "release"]
Dedup: TypeAlias = Literal["window", "alive", "waiting"]  # how long a dedup key holds

JSON = "application/json"
LAPSED = "expired"  # the error of a message whose own time was over


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """A message on its way in. `at` (an instant) wins over `delay` (seconds from the store's now)."""

    payload: bytes
    content_type: str = JSON
    headers: dict[str, str] | None = None
    priority: int = 0
    delay: float = 0.0
    at: float | None = None
    dedup_key: str | None = None
    max_attempts: int | None = None  # None: the queue's
    expires: float | None = None  # an instant after which nobody gets it
    lifetime: float | None = None  # instead of `expires`: seconds from the store's now


# How a message travels: the fields of Envelope after the payload and its content type, in their order.
Terms: TypeAlias = tuple[
    dict[str, str] | None, int, float, float | None, str | None, int | None, float | None, float | None
]
PLAIN: Terms = (None, 0, 0.0, None, None, None, None, None)


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """What became of a message on its way in. `new`: it was added; else `id` is of the one that has its dedup key."""

    id: str
    new: bool
    replaced: bool = False  # that one has the value, priority and due time of this one now


class Uniform(Sequence[Envelope]):
    """Envelopes that differ in nothing but their payload, by column: in bulk, an object per message costs the most."""

    __slots__ = ("content_type", "payloads", "terms")

    def __init__(self, payloads: list[bytes], content_type: str, terms: Terms) -> None:
        self.payloads = payloads
        self.content_type = content_type
        self.terms = terms

    def __len__(self) -> int:
        return len(self.payloads)

    @overload
    def __getitem__(self, at: int) -> Envelope: ...
    @overload
    def __getitem__(self, at: slice) -> Uniform: ...
    def __getitem__(self, at: int | slice) -> Envelope | Uniform:
        if isinstance(at, slice):
            return Uniform(self.payloads[at], self.content_type, self.terms)
        return Envelope(self.payloads[at], self.content_type, *self.terms)

    def __iter__(self) -> Iterator[Envelope]:
        return (Envelope(payload, self.content_type, *self.terms) for payload in self.payloads)


class Claimed(msgspec.Struct, gc=False):
    """A leased message. `attempt` counts from 1; `recovered`: an earlier lease of it had expired."""

    id: str
    token: str
    payload: bytes
    content_type: str
    headers: dict[str, str] | None
    priority: int
    attempt: int
    max_attempts: int
    enqueued_at: float
    expires_at: float
    recovered: bool = False
    alone: bool = False  # the last attempt after expired leases: it must run alone in its process
    expires: float | None = None  # after which nobody would have got it


class Expired(msgspec.Struct, frozen=True, gc=False):
    """A message that a claim ended: its lease was over with no attempt left (dead, or failed), or its own time was."""

    id: str
    attempts: int
    status: Literal["dead", "failed"]
    error: str


class Claims(msgspec.Struct, frozen=True):
    """What a claim answers."""

    messages: list[Claimed]
    expired: list[Expired] = []


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """What the holder of a lease decides. `delay` counts for retry and release, from the store's now."""

    id: str
    token: str
    action: Action
    delay: float = 0.0
    result: bytes | None = None
    error: str | None = None
    keep: bool | None = None  # complete only; None: as the queue's `archive` says
    worker: str | None = None  # None: who claimed it


class Change(msgspec.Struct, frozen=True, gc=False):
    """What becomes of a waiting message; None: as it is. `at` (an instant) wins over `delay` (from the store's now)."""

    priority: int | None = None
    delay: float | None = None
    at: float | None = None
    payload: bytes | None = None
    content_type: str = JSON  # of the payload


class Attempt(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An attempt that is over and did not end its message. `error` is the beginning of what it said."""

    start: float | None  # when it was claimed
    end: float
    worker: str | None
    error: str | None


class Stored(msgspec.Struct, frozen=True, gc=False):
    """What a store knows of one message, whatever its state."""

    id: str
    status: Status
    payload: bytes
    content_type: str
    headers: dict[str, str] | None
    priority: int
    attempts: int
    max_attempts: int
    enqueued_at: float
    visible_at: float | None = None  # delayed, retry: when it is due; processing: when its lease ends
    finished_at: float | None = None
    result: bytes | None = None
    error: str | None = None
    worker: str | None = None  # who holds it, or held it last
    claimed_at: float | None = None  # finished: when the lease began under which it ended; None: nobody held it
    expires: float | None = None  # after which nobody gets it
    history: tuple[Attempt, ...] = ()  # the newest attempts that did not end it, the newest last


class Usage(msgspec.Struct, frozen=True):
    """What this process has asked of a store that pays for requests, for one queue, since it was opened."""

    requests: dict[str, int]  # by kind: put get head list delete
    bytes_sent: int
    bytes_received: int
    messages: int  # that were enqueued or settled here, whichever are more

    @property
    def requests_per_message(self) -> dict[str, float]:
        """By kind; empty before the first message."""
        if not self.messages:
            return {}
        return {kind: count / self.messages for kind, count in self.requests.items()}

    @property
    def bytes_per_message(self) -> float | None:
        """Bytes written for each message; None before the first."""
        return self.bytes_sent / self.messages if self.messages else None


class Stats(msgspec.Struct, frozen=True):
    """Counts of one queue. `completed` and `failed` count since creation; the rest is what is there now."""

    total: int = 0
    pending: int = 0
    delayed: int = 0
    processing: int = 0
    retry: int = 0
    dead: int = 0
    archived: int = 0
    completed: int = 0
    failed: int = 0
    oldest_age: float | None = None  # seconds the oldest pending message has waited
    exact: bool = True
    usage: Usage | None = None  # None where requests cost nothing and are not counted
    slots_fired: int = 0  # of its schedules, since they were made
    slots_missed: int = 0
    set_aside: int = 0  # late messages that are kept but not delivered, in no other count: see `holdfast recover`
