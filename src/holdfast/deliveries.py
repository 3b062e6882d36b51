"""What comes back: a delivery in hand, a receipt of it for others, and the record of a message in any state."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from .codecs import Codec, decode_result
from .ids import is_id
from .limits import HISTORY_ATTEMPTS, remembered
from .stores import records
from .stores.records import Claimed, Status, Stored

if TYPE_CHECKING:
    from .queue import Queue

T = TypeVar("T")

_TOKEN = re.compile(r"[^\0]{1,256}", re.DOTALL)  # every store's are far shorter; none lets an empty one pass


class Lease(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What it takes to settle a message: what a receipt says."""

    id: str
    token: str
    attempt: int
    max_attempts: int


class Delivery(msgspec.Struct, Generic[T], eq=False, gc=False):
    """A leased message in hand."""

    # Made by the thousand: a struct over the store's own record, everything else is worked out when asked for.
    _claimed: Claimed
    _queue: Queue[T]
    _since: float  # when it was handed out, by the monotonic clock
    _value: Any = msgspec.UNSET

    @property
    def id(self) -> str:
        return self._claimed.id

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self._queue.name

    @property
    def token(self) -> str:
        """The token of the lease; settling requires it."""
        return self._claimed.token

    @property
    def value(self) -> T:
        """The decoded payload; CodecError when it cannot be read."""
        value: T | msgspec.UnsetType = self._value
        if value is msgspec.UNSET:
            claimed = self._claimed
            self._value = value = self._queue.codec.decode(claimed.payload, claimed.content_type)
        return value

    @property
    def payload(self) -> bytes:
        return self._claimed.payload

    @property
    def content_type(self) -> str:
        return self._claimed.content_type

    @property
    def headers(self) -> dict[str, str]:
        return self._claimed.headers or {}

    @property
    def priority(self) -> int:
        return self._claimed.priority

    @property
    def attempt(self) -> int:
        """Counts from 1."""
        return self._claimed.attempt

    @property
    def max_attempts(self) -> int:
        return self._claimed.max_attempts

    @property
    def enqueued_at(self) -> datetime:
        return moment(self._claimed.enqueued_at)

    @property
    def expires_at(self) -> datetime:
        """When the lease ends, by the store's clock."""
        return moment(self._claimed.expires_at)

    @property
    def expires(self) -> datetime | None:
        """After which nobody would have got it; what is in hand is not taken away."""
        return None if self._claimed.expires is None else moment(self._claimed.expires)

    @property
    def receipt(self) -> str:
        """Opaque text that settles this delivery from anywhere."""
        claimed = self._claimed
        return write_receipt(Lease(claimed.id, claimed.token, claimed.attempt, claimed.max_attempts))

    async def complete(self, result: Any = None, *, keep: bool | None = None) -> None:
        """Done; LeaseLost when somebody else holds or has finished it."""
        await self._queue.complete(self, result, keep=keep)

    async def fail(self, error: BaseException | str, *, retry_in: float | None = None) -> None:
        """This attempt failed: retried as the queue's policy says, or dead."""
        await self._queue.fail(self, error, retry_in=retry_in)

    async def release(self, delay: float = 0) -> None:
        """Give it back; the attempt is not counted."""
        await self._queue.release(self, delay)

    async def kill(self, reason: str) -> None:
        """Dead at once."""
        await self._queue.kill(self, reason)

    async def extend(self, seconds: float) -> datetime:
        """Hold it for so many seconds from now; when the lease ends then."""
        return await self._queue.extend(self, seconds)

    def __repr__(self) -> str:
        return f"Delivery({self._queue.name!r}, {self.id!r}, attempt {self.attempt} of {self.max_attempts})"


class Attempt(msgspec.Struct, frozen=True):
    """One attempt at a message that is over."""

    start: datetime | None  # when it was claimed; None: an earlier version of Holdfast did not note it
    end: datetime
    worker: str | None
    error: str | None  # the first 200 bytes; None: it was completed

    @classmethod
    def of(cls, stored: records.Attempt) -> Attempt:
        start = None if stored.start is None else moment(stored.start)
        return cls(start, moment(stored.end), stored.worker, stored.error)


class Record(msgspec.Struct, Generic[T], frozen=True, eq=False):
    """What is known about a message, whatever its state."""

    _stored: Stored
    _codec: Codec[T]

    @property
    def id(self) -> str:
        return self._stored.id

    @property
    def status(self) -> Status:
        return self._stored.status

    @property
    def value(self) -> T:
        """The decoded payload; CodecError when it cannot be read."""
        return self._codec.decode(self._stored.payload, self._stored.content_type)

    @property
    def payload(self) -> bytes:
        return self._stored.payload

    @property
    def content_type(self) -> str:
        return self._stored.content_type

    @property
    def headers(self) -> dict[str, str]:
        return self._stored.headers or {}

    @property
    def priority(self) -> int:
        return self._stored.priority

    @property
    def attempts(self) -> int:
        return self._stored.attempts

    @property
    def max_attempts(self) -> int:
        return self._stored.max_attempts

    @property
    def enqueued_at(self) -> datetime:
        return moment(self._stored.enqueued_at)

    @property
    def visible_at(self) -> datetime | None:
        """Delayed and retrying: when it is due; processing: when its lease ends."""
        return None if self._stored.visible_at is None else moment(self._stored.visible_at)

    @property
    def expires(self) -> datetime | None:
        """After which nobody gets it; None: it has no such instant."""
        return None if self._stored.expires is None else moment(self._stored.expires)

    @property
    def claimed_at(self) -> datetime | None:
        """When the attempt that ended it was claimed; None before its end, and when it ended with nobody holding it."""
        return None if self._stored.claimed_at is None else moment(self._stored.claimed_at)

    @property
    def finished_at(self) -> datetime | None:
        return None if self._stored.finished_at is None else moment(self._stored.finished_at)

    @property
    def result(self) -> Any:
        """What the handler returned."""
        return decode_result(self._stored.result)

    @property
    def error(self) -> str | None:
        """The last error."""
        return self._stored.error

    @property
    def worker(self) -> str | None:
        """Who holds it, or held it last; a plain `dequeue` is called after its process."""
        return self._stored.worker

    @property
    def history(self) -> tuple[Attempt, ...]:
        """The last 10 attempts that are over, the newest last; of one in hand the end is not there yet."""
        known = list(self._stored.history)
        stored = self._stored
        if stored.claimed_at is not None and stored.finished_at is not None:
            error = None if stored.status == "completed" else remembered(stored.error)  # that of the one before
            known.append(records.Attempt(stored.claimed_at, stored.finished_at, remembered(stored.worker), error))
        return tuple([Attempt.of(each) for each in known[-HISTORY_ATTEMPTS:]])

    def __repr__(self) -> str:
        return f"Record({self.id!r}, {self.status!r}, attempts={self.attempts})"


def moment(seconds: float) -> datetime:
    """An instant of a store as people hold it."""
    return datetime.fromtimestamp(seconds, UTC)


def write_receipt(lease: Lease) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(lease)).decode().rstrip("=")


def read_receipt(text: str) -> Lease | None:
    """The lease a receipt speaks of; None when the text is no receipt."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        lease = msgspec.msgpack.decode(data, type=Lease)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        return None
    return lease if is_id(lease.id) and _TOKEN.fullmatch(lease.token) else None
