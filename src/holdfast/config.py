"""Every setting, with its default and unit, and where it comes from: code > environment > holdfast.yaml > defaults."""

from __future__ import annotations

import msgspec

from .retry import Exponential, RetryPolicy

MIB = 1 << 20


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is stored with a queue. Seconds are floats, sizes bytes."""

    lease: float = 30.0  # seconds a delivery is invisible to others
    max_attempts: int = 3  # runs in all, then dead letter
    retry: RetryPolicy = Exponential()
    dead_letter: bool | str = True  # True: dead letters of the queue; a name: moved there; False: ends as failed
    archive: bool = True  # keep completed messages
    archive_days: float = 7.0  # days the archive is kept
    max_message_size: int = 64 * MIB  # bytes of the encoded payload
    max_messages: int | None = None  # QueueFull beyond it
    dedup_window: float = 300.0  # seconds a dedup key is remembered
    shards: int = 1  # log engine on cloud storage only; fixed at creation
