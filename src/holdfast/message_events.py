"""Which event tells what happened? Pure: from claims, settlements and answers, the same for every kind of holder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .deliveries import moment
from .events import Event
from .stores.records import Answer, Claims, Settlement


class Attempt(NamedTuple):
    """The run that a settlement ends, as its holder knows it."""

    number: int
    duration: float | None  # seconds; a receipt does not know
    result: Any = None


def enqueued(queue: str, id: str) -> Event:
    return Event("message.enqueued", {"queue": queue, "id": id})


def claimed(queue: str, claims: Claims) -> Iterator[Event]:
    """Leases that had expired: what had no attempt left, and what runs again."""
    for gone in claims.expired:
        yield _message(gone.status, queue, gone.id, gone.attempts, error=gone.error)
    for message in claims.messages:
        if message.recovered:
            yield _message("recovered", queue, message.id, message.attempt)


def settled(
    queue: str, settlement: Settlement, answer: Answer, attempt: Attempt, *, now: float, dead_letter: object
) -> Event | None:
    """`now` is the store's, and counts for a retry; None: a release is no news."""
    if answer != "ok":
        return lost(queue, settlement.id)
    action, id = settlement.action, settlement.id
    if action == "release":
        return None
    if action == "complete":
        return _message("completed", queue, id, attempt.number, duration=attempt.duration, result=attempt.result)
    if action == "retry":
        due = moment(now + settlement.delay)
        return _message("retry", queue, id, attempt.number, error=settlement.error, next_visible_at=due)
    return _message("dead" if dead_letter else "failed", queue, id, attempt.number, error=settlement.error)


def cancelled(queue: str, id: str, attempts: int) -> Event:
    return _message("failed", queue, id, attempts, error="cancelled")


def worker_started(queue: str, worker_id: str, concurrency: int) -> Event:
    return Event("workers.started", {"queue": queue, "concurrency": concurrency, "worker_id": worker_id})


def worker_stopped(queue: str, worker_id: str) -> Event:
    return Event("workers.stopped", {"queue": queue, "worker_id": worker_id})


def lost(queue: str, id: str) -> Event:
    return Event("lease.lost", {"queue": queue, "id": id})


def _message(name: str, queue: str, id: str, attempts: int, **more: Any) -> Event:
    return Event(f"message.{name}", {"queue": queue, "id": id, "attempts": attempts, **more})
