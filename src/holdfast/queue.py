"""A queue, as users hold it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from . import config, ids, limits, message_events
from .archive import Archive
from .codecs import Codec, encode_result
from .config import QueueOptions, StoreOptions
from .dead_letters import DeadLetters
from .deliveries import Delivery, Lease, Record, moment
from .errors import ConfigError, HoldfastError, MessageNotFound
from .events import Emitter
from .messages import Message, envelopes, sealed, terms
from .outcome import decide, describe
from .queue_state import Holder, Opened, attempt_of, shown
from .stores.base import LOOK_AGAIN_S, Store
from .stores.records import PLAIN, Answer, Claimed, Envelope, Settlement, Stats, Status

if TYPE_CHECKING:
    from .worker import Worker

T = TypeVar("T")
U = TypeVar("U")

_FINISHED = ("completed", "failed", "dead")


class Queue(Generic[T]):
    """One queue of an open broker. Handles are cheap; those of one queue share everything but their type and codec."""

    def __init__(self, opened: Opened, codec: Codec[T], *, worker_options: Mapping[str, Any] | None = None) -> None:
        self.codec = codec
        self._opened = opened
        self._worker_options = worker_options or {}

    @property
    def name(self) -> str:
        return self._opened.name

    @property
    def options(self) -> QueueOptions:
        """The options stored with the queue, as last read."""
        return self._opened.info.options

    @property
    def store(self) -> Store:
        return self._opened.store

    @property
    def store_options(self) -> StoreOptions:
        return self._opened.store_options

    @property
    def events(self) -> Emitter:
        return self._opened.events

    @property
    def dead(self) -> DeadLetters[T]:
        """The dead letters of this queue."""
        return DeadLetters(self)

    @property
    def archive(self) -> Archive[T]:
        """The settled messages of this queue."""
        return Archive(self)

    # ------------------------------------------------------------------ in

    async def enqueue(
        self,
        value: T | Message[T],
        *,
        priority: int = 0,
        delay: float = 0,
        at: datetime | None = None,
        headers: Mapping[str, str] | None = None,
        dedup_key: str | None = None,
        max_attempts: int | None = None,
        connection: Any = None,
    ) -> str:
        """Add a message; its id, once it is durable. `connection` (PostgreSQL): with what the caller's own commits."""
        if (  # as most calls say, there is nothing to check
            type(priority) is type(delay) is int and not priority and not delay
            and at is None and headers is None and dedup_key is None and max_attempts is None
        ):  # fmt: skip
            travel = PLAIN
        else:
            travel = terms(
                priority=priority, delay=delay, at=at, headers=headers, dedup_key=dedup_key, max_attempts=max_attempts
            )
        opened = self._opened
        single = opened.single() if connection is None else None
        options = opened.info.options if single is not None else await opened.options()
        payload, content_type, travel = sealed(self.codec, options.max_message_size, value, travel)
        if single is not None and (written := single(payload, content_type, travel)) is not None:
            return await written
        return (await opened.append((Envelope(payload, content_type, *travel),), connection=connection))[0]

    async def enqueue_many(
        self,
        values: Iterable[T | Message[T]],
        *,
        priority: int = 0,
        delay: float = 0,
        at: datetime | None = None,
        headers: Mapping[str, str] | None = None,
        max_attempts: int | None = None,
        connection: Any = None,
    ) -> list[str]:
        """Add messages, all or none; their ids in input order. A `Message` among them has terms of its own."""
        values = _listed("values", values)
        travel = terms(priority=priority, delay=delay, at=at, headers=headers, max_attempts=max_attempts)
        options = await self._opened.options()
        messages = envelopes(self.codec, options.max_message_size, values, travel)
        return await self._opened.append(messages, connection=connection) if messages else []

    # ------------------------------------------------------------------ out

    async def dequeue(self, *, lease: float | None = None, wait: float = 0) -> Delivery[T] | None:
        """One message under a lease, or None; `wait` seconds for it."""
        found = await self._claim(1, lease, wait)
        return found[0] if found else None

    async def dequeue_many(self, limit: int, *, lease: float | None = None, wait: float = 0) -> list[Delivery[T]]:
        """Up to `limit` messages under a lease; `wait` seconds for the first."""
        config.whole("limit", limit)
        return await self._claim(limit, lease, wait)

    async def _claim(self, limit: int, lease: float | None, wait: float) -> list[Delivery[T]]:
        if lease is None:
            lease = (self._opened.current() or await self._opened.options()).lease
        else:
            lease = config.positive("lease", lease)
        return await self._opened.claim(self, limit, lease=lease, wait=config.seconds("wait", wait))

    async def complete(self, delivery: Delivery[T] | str, result: Any = None, *, keep: bool | None = None) -> None:
        """Done. `keep=False` deletes the message instead of archiving it; LeaseLost, MessageNotFound.

        A repeat with the same token is success: of a message that is not kept in this process for an hour or its last
        100,000 settlements, in others as long as the store remembers.
        """
        stored = encode_result(result)
        if stored is not None:
            limits.check_result(stored, self.options.max_message_size)
        _check_keep(keep)
        holder = delivery if isinstance(delivery, Delivery) else await self._holder(delivery)
        done = Settlement(holder.id, holder.token, "complete", 0.0, stored, None, keep)
        await self._settle(done, holder, result)

    async def complete_many(
        self, deliveries: Sequence[Delivery[T] | str], results: Sequence[Any] | None = None, *, keep: bool | None = None
    ) -> list[bool]:
        """Done, each with its result; in input order, False where the lease was lost."""
        deliveries = _listed("deliveries", deliveries)
        results = None if results is None else _listed("results", results)
        _check_keep(keep)
        if results is not None and len(results) != len(deliveries):
            raise ConfigError(f"{len(results)} results for {len(deliveries)} deliveries")
        stored = [None] * len(deliveries) if results is None else _stored(results, self.options.max_message_size)
        return await self._settle_many(
            deliveries,
            lambda index, lease: Settlement(lease.id, lease.token, "complete", 0.0, stored[index], None, keep),
            results=results,
        )

    async def fail(
        self, delivery: Delivery[T] | str, error: BaseException | str, *, retry_in: float | None = None
    ) -> None:
        """This attempt failed: retried in `retry_in` seconds or when the queue's policy says, or dead."""
        _check_failure(error, retry_in)
        holder = await self._holder(delivery)
        await self._settle(self._failure(holder, error, retry_in), holder)

    async def fail_many(
        self,
        deliveries: Sequence[Delivery[T] | str],
        error: BaseException | str | Sequence[BaseException | str],
        *,
        retry_in: float | None = None,
    ) -> list[bool]:
        """These attempts failed, with one error or one each; in input order, False where the lease was lost."""
        deliveries = _listed("deliveries", deliveries)
        errors = [error] * len(deliveries) if isinstance(error, BaseException | str) else list(_listed("error", error))
        if len(errors) != len(deliveries):
            raise ConfigError(f"{len(errors)} errors for {len(deliveries)} deliveries")
        for one in errors:
            _check_failure(one, retry_in)
        return await self._settle_many(deliveries, lambda index, lease: self._failure(lease, errors[index], retry_in))

    async def release(self, delivery: Delivery[T] | str, delay: float = 0) -> None:
        """Give it back, visible after `delay` seconds; the attempt is not counted."""
        delay = config.seconds("delay", delay)
        holder = await self._holder(delivery)
        await self._settle(Settlement(holder.id, holder.token, "release", delay), holder)

    async def kill(self, delivery: Delivery[T] | str, reason: str) -> None:
        """Dead at once, whatever attempts are left."""
        _check_failure(reason, None)
        holder = await self._holder(delivery)
        await self._settle(Settlement(holder.id, holder.token, "dead", error=describe(reason)), holder)

    async def extend(self, delivery: Delivery[T] | str, seconds: float) -> datetime:
        """Hold it for so many seconds from now by the store's clock, never shorter than before; when that ends."""
        config.positive("seconds", seconds)
        holder = await self._holder(delivery)
        return moment(await self._opened.extend(holder, seconds))

    # ------------------------------------------------------------------ looking

    async def cancel(self, id: str) -> bool:
        """End a delayed, pending or retrying message as failed; False: it is none of these. MessageNotFound."""
        if not _is_id(id):
            raise self._opened.missing(id)
        done = await self.store.cancel(self.name, id)
        if done and self.events.wants("message.failed"):
            record = await self.get(id)
            attempts = 0 if record is None else record.attempts
            self.events.emit(message_events.cancelled(self.name, id, attempts))
        return done

    async def wait(self, id: str, timeout: float | None = None) -> Record[T]:
        """The record, once it is completed, failed or dead; TimeoutError after so many seconds, MessageNotFound."""
        deadline = None if timeout is None else time.monotonic() + config.seconds("timeout", timeout)
        while True:
            record = await self.get(id)
            if record is None:
                raise MessageNotFound(f"{self.name}: there is no message {shown(id)}, or it ended and was not kept")
            if record.status in _FINISHED:
                return record
            left = LOOK_AGAIN_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{self.name}: {id} is still {record.status} after {timeout} s")
            await self.store.watch(self.name, min(left, LOOK_AGAIN_S))

    async def status(self, id: str) -> Status | None:
        """Its state, or None when nothing is known of it."""
        record = await self.get(id)
        return None if record is None else record.status

    async def get(self, id: str) -> Record[T] | None:
        """What is known of a message, whatever its state; None: nothing."""
        if not _is_id(id):
            return None
        stored = (await self.store.get(self.name, [id]))[0]
        return None if stored is None else Record(stored, self.codec)

    async def stats(self) -> Stats:
        """Counts; never blocks the queue."""
        return await self.store.stats(self.name)

    # ------------------------------------------------------------------ the queue as a whole

    async def refresh(self) -> None:
        """Read the stored options again, now."""
        await self._opened.refresh()

    async def pause(self) -> None:
        """Give out no more messages; those in hand go on, new ones are taken."""
        await self.store.pause(self.name, True)

    async def resume(self) -> None:
        """Give out messages again."""
        await self.store.pause(self.name, False)

    async def cleanup(self, older_than: float = 0) -> int:
        """Delete settled messages from the archive, those that ended at least so many seconds ago; how many."""
        age = config.seconds("older_than", older_than)
        before = await self.store.clock() - age if age else None
        return await self.store.discard(self.name, "archive", before=before)

    async def purge(self) -> int:
        """Drop delayed, pending and retrying messages, not held, dead or archived ones; how many."""
        return await self.store.purge(self.name)

    def worker(self, handler: Callable[..., Any], **options: Any) -> Worker:
        """A worker that runs `handler` for each message. Nothing runs yet."""
        from .worker import Worker  # above us: a worker holds a queue

        rounds = {"maintenance_interval": self.store_options.maintenance_interval}
        return Worker(self, handler, **{**rounds, **self._worker_options, **options})

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    # ------------------------------------------------------------------ settling

    async def _holder(self, delivery: Delivery[T] | str) -> Holder:
        holder = self._opened.holder(delivery)
        if holder is None:
            raise await self._opened.stranger(cast(str, delivery))
        return holder

    async def _settle(self, settlement: Settlement, holder: Holder, result: Any = None) -> None:
        answer = (await self._opened.settle((settlement,), lambda _: attempt_of(holder, result)))[0]
        if answer == "lost":
            raise self._opened.lost(holder.id)
        if answer == "unknown":
            raise self._opened.missing(holder.id)

    async def _settle_many(
        self,
        deliveries: Sequence[Delivery[T] | str],
        settlement: Callable[[int, Claimed | Lease], Settlement],
        *,
        results: Sequence[Any] | None = None,
    ) -> list[bool]:
        """Settle all that can be; what nobody here holds is False without asking."""
        find = self._opened.holder  # most are deliveries, and there may be many
        found = [each if type(each) is Delivery else find(each) for each in deliveries]
        holders = [holder for holder in found if holder is not None]
        if not holders:
            return [False] * len(found)
        if len(holders) < len(found) and results is not None:
            results = [result for result, holder in zip(results, found, strict=True) if holder is not None]
        settlements = [
            settlement(index, holder._claimed if isinstance(holder, Delivery) else holder)
            for index, holder in enumerate(found)
            if holder is not None
        ]
        answers = await self._opened.settle(
            settlements, lambda index: attempt_of(holders[index], None if results is None else results[index])
        )
        return _in_places(found, answers)

    def _failure(self, holder: Holder | Claimed, error: BaseException | str, retry_in: float | None) -> Settlement:
        decision = decide(
            error,
            attempt=holder.attempt,
            max_attempts=holder.max_attempts,
            policy=self.options.retry,
            retry_in=retry_in,
        )
        return Settlement(holder.id, holder.token, decision.action, decision.delay, None, decision.error)


def _stored(results: Sequence[Any], limit: int) -> list[bytes | None]:
    """Results as they are stored, or an error that names the index of the bad one."""
    stored: list[bytes | None] = []
    try:
        for result in results:
            encoded = encode_result(result)
            if encoded is not None:
                limits.check_result(encoded, limit)
            stored.append(encoded)
    except HoldfastError as error:
        error.args = (f"result {len(stored)}: {error}",)
        raise
    return stored


def _in_places(found: Sequence[Holder | None], answers: Sequence[Answer]) -> list[bool]:
    """Answers for those found, False for the others, in input order."""
    if len(answers) == len(found):
        return [answer == "ok" for answer in answers]
    rest = iter(answers)
    return [holder is not None and next(rest) == "ok" for holder in found]


def _listed(what: str, values: Iterable[U]) -> Sequence[U]:
    """As a list; a text has letters and a mapping keys, which nobody means."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise ConfigError(f"{what}: a list, not {type(values).__qualname__}")
    return values if isinstance(values, Sequence) else list(values)


def _check_keep(keep: object) -> None:
    if keep is not None and not isinstance(keep, bool):
        raise ConfigError(f"keep: True, False or None, not {keep!r}")


def _check_failure(error: object, retry_in: float | None) -> None:
    if not isinstance(error, BaseException | str):
        raise ConfigError(f"an error is text or an exception, not {type(error).__qualname__}")
    if retry_in is not None:
        config.seconds("retry_in", retry_in)


def _is_id(id: object) -> bool:
    """Whether a message may have this id; ConfigError when it is no text."""
    if not isinstance(id, str):
        raise ConfigError(f"an id is text, not {type(id).__qualname__}")
    return ids.is_id(id)
