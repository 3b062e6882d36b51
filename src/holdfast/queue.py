"""A queue, as users hold it."""

from __future__ import annotations

import builtins
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from . import config, ids, limits, message_events
from .archive import Archive
from .codecs import Codec, encode_result
from .config import QueueOptions, StoreOptions
from .dead_letters import DeadLetters
from .deliveries import Delivery, Lease, Record, moment
from .errors import ConfigError, HoldfastError, MessageNotFound
from .events import Emitter
from .messages import changed, sealed
from .outcome import decide, describe
from .queue_state import Holder, Opened, attempt_of, shown
from .sending import Sending, listed
from .stores.base import LONG_POLL_S, LOOK_AGAIN_S, Store
from .stores.records import PLAIN, Answer, Change, Claimed, Settlement, Stats, Status, View

if TYPE_CHECKING:
    from .worker import Worker

T = TypeVar("T")
U = TypeVar("U")

State: TypeAlias = Literal["ready", "pending", "delayed", "processing", "retry"]  # in which a message can be listed
_VIEWS: dict[str, View] = {
    "ready": "ready", "pending": "ready", "delayed": "delayed", "processing": "processing", "retry": "retry"
}  # fmt: skip
_BY_DUE_TIME = ("delayed", "retry")
_FINISHED = ("completed", "failed", "dead")


class Queue(Sending[T]):
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

    # ------------------------------------------------------------------ out

    async def dequeue(self, *, lease: float | None = None, wait: float = 0) -> Delivery[T] | None:
        """One message under a lease, or None; `wait` seconds for it."""
        found = await self._claim(1, lease, wait)
        return found[0] if found else None

    async def deliveries(
        self, *, lease: float | None = None, wait: float = LONG_POLL_S, idle: float | None = None
    ) -> AsyncIterator[Delivery[T]]:
        """One message after the other, each claimed when it is asked for: `async for delivery in queue.deliveries()`.

        `wait`: seconds of one long poll. It ends when nothing came for `idle` seconds; without, only with its task.
        """
        each = config.positive("wait", wait)
        patience = math.inf if idle is None else config.seconds("idle", idle)
        last = time.monotonic()
        while True:
            left = last + patience - time.monotonic()
            found = await self.dequeue(lease=lease, wait=max(0.0, min(each, left)))
            if found is not None:
                yield found
                last = time.monotonic()
            elif time.monotonic() - last >= patience:
                return

    async def dequeue_many(
        self, limit: int, *, lease: float | None = None, wait: float = 0
    ) -> builtins.list[Delivery[T]]:
        """Up to `limit` messages under a lease; `wait` seconds for the first."""
        config.whole("limit", limit)
        return await self._claim(limit, lease, wait)

    async def _claim(
        self, limit: int, lease: float | None, wait: float, worker: str | None = None
    ) -> builtins.list[Delivery[T]]:
        if lease is None:
            lease = (self._opened.current() or await self._opened.options()).lease
        else:
            lease = config.positive("lease", lease)
        return await self._opened.claim(self, limit, lease=lease, wait=config.seconds("wait", wait), worker=worker)

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
    ) -> builtins.list[bool]:
        """Done, each with its result; in input order, False where the lease was lost."""
        deliveries = listed("deliveries", deliveries)
        results = None if results is None else listed("results", results)
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
    ) -> builtins.list[bool]:
        """These attempts failed, with one error or one each; in input order, False where the lease was lost."""
        deliveries = listed("deliveries", deliveries)
        errors = [error] * len(deliveries) if isinstance(error, BaseException | str) else list(listed("error", error))
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

    async def release_many(self, deliveries: Sequence[Delivery[T] | str], delay: float = 0) -> builtins.list[bool]:
        """Give these back; in input order, False where the lease was lost."""
        deliveries, delay = listed("deliveries", deliveries), config.seconds("delay", delay)
        return await self._settle_many(deliveries, lambda _, lease: Settlement(lease.id, lease.token, "release", delay))

    async def kill(self, delivery: Delivery[T] | str, reason: str) -> None:
        """Dead at once, whatever attempts are left."""
        _check_failure(reason, None)
        holder = await self._holder(delivery)
        await self._settle(Settlement(holder.id, holder.token, "dead", error=describe(reason)), holder)

    async def kill_many(self, deliveries: Sequence[Delivery[T] | str], reason: str) -> builtins.list[bool]:
        """These are dead at once; in input order, False where the lease was lost."""
        deliveries = listed("deliveries", deliveries)
        _check_failure(reason, None)
        error = describe(reason)
        return await self._settle_many(
            deliveries, lambda _, lease: Settlement(lease.id, lease.token, "dead", error=error)
        )

    async def extend(self, delivery: Delivery[T] | str, seconds: float) -> datetime:
        """Hold it for so many seconds from now by the store's clock, never shorter than before; when that ends."""
        config.positive("seconds", seconds)
        holder = await self._holder(delivery)
        [end] = await self._opened.extend([holder], seconds)
        if end is None:
            raise self._opened.lost(holder.id)
        return moment(end)

    async def extend_many(self, deliveries: Sequence[Delivery[T] | str], seconds: float) -> builtins.list[bool]:
        """Hold these for so many seconds from now; in input order, False where the lease was lost."""
        config.positive("seconds", seconds)
        found = [self._opened.holder(each) for each in listed("deliveries", deliveries)]
        holders = [holder for holder in found if holder is not None]
        ends = iter(await self._opened.extend(holders, seconds) if holders else ())
        return [holder is not None and next(ends) is not None for holder in found]

    # ------------------------------------------------------------------ looking

    async def list(self, state: State, limit: int = 100, after: str | None = None) -> builtins.list[Record[T]]:
        """One page of what is `ready` (or `pending`), `delayed`, `processing` or in `retry`; nothing is claimed.

        In id order, `delayed` and `retry` by due time; pass the last id as `after` for the next page. By due time the
        page after a message that no longer waits so is the first one.
        """
        config.whole("limit", limit)
        view = _VIEWS.get(state) if isinstance(state, str) else None
        if view is None:
            raise ConfigError(config.unknown("state: there is no", state, _VIEWS))
        if after is not None and not _is_id(after):
            raise ConfigError(f"after: {shown(after)} is not an id")
        if view in _BY_DUE_TIME:
            page = await self.store.upcoming(self.name, view, after=await self._due_of(after, state), limit=limit)
        else:
            page = await self.store.scan(self.name, view, after=after, limit=limit)
        return [Record(stored, self.codec) for stored in page]

    async def _due_of(self, id: str | None, state: State) -> tuple[float, str] | None:
        stored = None if id is None else (await self.store.get(self.name, [id]))[0]
        if stored is None or stored.status != state or stored.visible_at is None:
            return None
        return stored.visible_at, stored.id

    async def peek(self, limit: int = 10) -> builtins.list[Record[T]]:
        """The next messages in claim order, also of a paused queue; nothing is claimed."""
        config.whole("limit", limit)
        return [Record(stored, self.codec) for stored in await self.store.peek(self.name, limit)]

    async def change(
        self,
        id: str,
        *,
        priority: int | None = None,
        delay: float | None = None,
        at: datetime | None = None,
        value: T | UnsetType = UNSET,
    ) -> bool:
        """Replace a delayed, pending or retrying message in one step; False: it is held, or has ended.

        It keeps its id, its headers and its attempts, and its place by age among the messages of its priority.
        MessageNotFound; ConfigError on NATS, which cannot.
        """
        change = changed(priority=priority, delay=delay, at=at)
        if not isinstance(value, UnsetType):
            options = await self._opened.options()
            payload, kind, _ = sealed(self.codec, options.max_message_size, value, PLAIN)
            change = msgspec.structs.replace(change, payload=payload, content_type=kind)
        elif change == Change():
            raise ConfigError("change: say what shall be other than it is")
        if not _is_id(id):
            raise self._opened.missing(id)
        return await self.store.change(self.name, id, change)

    async def take_back(self, ids: str | Iterable[str] | None = None, *, worker: str | None = None) -> int:
        """End the leases of these, or of all that a worker holds, now, as if they had expired; how many.

        The holder of one gets LeaseLost from now on, and somebody else can claim it at once; the attempt stays counted.
        What nobody holds is left alone, and so is what a Spark consumer has claimed.
        """
        if (ids is None) == (worker is None):
            raise ConfigError("take_back: give ids, or the name of a worker")
        if worker is not None:
            if not isinstance(worker, str) or not worker:
                raise ConfigError(f"worker: a name, not {worker!r}")
            return await self.store.take_back(self.name, None, worker=worker)
        wanted = [ids] if isinstance(ids, str) else listed("ids", ids or ())
        known = [id for id in wanted if _is_id(id)]
        return await self.store.take_back(self.name, known) if known else 0

    async def cancel(self, id: str, *, running: bool = False) -> bool:
        """End a delayed, pending or retrying message as failed; False: it is none of these. MessageNotFound.

        `running`: also one that somebody holds. Its holder gets LeaseLost; a worker cancels the handler when it extends
        the lease next.
        """
        if not _is_id(id):
            raise self._opened.missing(id)
        if not isinstance(running, bool):
            raise ConfigError(f"running: True or False, not {running!r}")
        done = await self.store.cancel(self.name, id, running=running)
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
    ) -> builtins.list[bool]:
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
