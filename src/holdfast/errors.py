"""Every error Holdfast raises.

HoldfastError
├─ ConfigError       unknown key, bad value, missing extra, used after a fork or in another event loop
├─ CodecError        a value could not be encoded or decoded
├─ QueueError
│  ├─ QueueNotFound
│  ├─ QueueExists
│  ├─ QueueFull
│  ├─ QueueNotEmpty
│  └─ ScheduleNotFound
├─ MessageError
│  ├─ MessageNotFound
│  ├─ MessageTooLarge   .actual, .limit
│  ├─ InvalidPriority
│  └─ LeaseLost
└─ StoreError
   ├─ Unavailable       try again later
   ├─ Damaged           .queue, .key of what cannot be read
   ├─ Fenced            another writer owns the store
   ├─ UnsafeStore       the storage cannot keep the promises
   └─ UnknownOutcome    .ids, .retry() repeats the same call with the same ids

Handlers raise `Retry` and `Dead`; they are decisions, not errors, and are no `HoldfastError`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence


class HoldfastError(Exception):
    """The base of every error Holdfast raises."""


class ConfigError(HoldfastError, ValueError):
    """A setting is unknown, wrong or missing."""


class CodecError(HoldfastError, ValueError):
    """A value could not be encoded, or a payload could not be decoded."""


class QueueError(HoldfastError):
    """Something about a queue as a whole."""


class QueueNotFound(QueueError):
    """There is no queue of this name."""


class QueueExists(QueueError):
    """A queue of this name is already there."""


class QueueFull(QueueError):
    """The queue holds `max_messages` already."""


class QueueNotEmpty(QueueError):
    """The queue still holds messages; delete it with force=True."""


class ScheduleNotFound(QueueError):
    """There is no schedule of this name."""


class MessageError(HoldfastError):
    """Something about one message."""


class MessageNotFound(MessageError):
    """There is no message of this id."""


class MessageTooLarge(MessageError):
    """A part of a message is larger than its limit; `actual` and `limit` are bytes, for nesting levels."""

    def __init__(self, message: str, *, actual: int, limit: int) -> None:
        super().__init__(message)
        self.actual = actual
        self.limit = limit


class InvalidPriority(MessageError, ValueError):
    """A priority is a whole number from 0 to 255."""


class LeaseLost(MessageError):
    """Somebody else holds, or has finished, this message."""


class StoreError(HoldfastError):
    """Something about the storage underneath."""


class Unavailable(StoreError):
    """The store did not answer in time; the call may be repeated."""


class Damaged(StoreError):
    """Something the store keeps cannot be read any more: its bytes are missing, cut or changed."""

    def __init__(self, message: str, *, queue: str = "", key: str = "", why: str = "") -> None:
        super().__init__(message)
        self.queue = queue
        self.key = key
        self.why = why or message


class Fenced(StoreError):
    """Another writer has taken the store over."""


class UnsafeStore(StoreError):
    """The storage cannot keep the promises Holdfast makes."""


class UnknownOutcome(StoreError):
    """The store did not say whether the messages arrived; `retry()` finds out without doubling them."""

    def __init__(
        self,
        message: str,
        *,
        ids: Sequence[str] = (),
        retry: Callable[[], Awaitable[list[str]]] | None = None,
    ) -> None:
        super().__init__(message)
        self.ids = list(ids)
        self._retry = retry

    async def retry(self) -> list[str]:
        """Repeat the same call with the same ids; what arrived already is not added again."""
        if self._retry is None:
            raise self
        return await self._retry()
