"""Dedup keys that hold until their message ends: what all engines agree on. Pure."""

from __future__ import annotations

from .records import Change, Dedup, Envelope

ALIVE = ("delayed", "pending", "processing", "retry")


def counts(status: str, dedup: Dedup) -> bool:
    """Whether a message that is in this state holds its key."""
    return status in ALIVE and not (status == "processing" and dedup == "waiting")


def replacing(message: Envelope) -> Change:
    """What becomes of the message that has the key."""
    delay = message.delay if message.at is None else None
    return Change(message.priority, delay, message.at, message.payload, message.content_type)
