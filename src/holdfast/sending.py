"""Messages in: what a queue and its producers say to each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, overload

from . import config
from .codecs import Codec
from .errors import ConfigError
from .messages import Message, envelopes, sealed, terms
from .once import Once
from .queue_state import Opened
from .stores.records import PLAIN, Dedup, Enqueued, Envelope, Terms

T = TypeVar("T")
U = TypeVar("U")


class Sending(Generic[T]):
    """The part of a queue that takes messages."""

    codec: Codec[T]
    _opened: Opened

    @overload
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
        expires: float | datetime | None = None,
        connection: Any = None,
        notify: bool = False,
        wait: float = 0,
        dedup: Dedup = "window",
        replace: bool = False,
        report: Literal[False] = False,
    ) -> str: ...
    @overload
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
        expires: float | datetime | None = None,
        connection: Any = None,
        notify: bool = False,
        wait: float = 0,
        dedup: Dedup = "window",
        replace: bool = False,
        report: Literal[True],
    ) -> Enqueued: ...
    @overload
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
        expires: float | datetime | None = None,
        connection: Any = None,
        notify: bool = False,
        wait: float = 0,
        dedup: Dedup = "window",
        replace: bool = False,
        report: bool,
    ) -> str | Enqueued: ...
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
        expires: float | datetime | None = None,
        connection: Any = None,
        notify: bool = False,
        wait: float = 0,
        dedup: Dedup = "window",
        replace: bool = False,
        report: bool = False,
    ) -> str | Enqueued:
        """Add a message; its id, once it is durable. `connection` (PostgreSQL): with what the caller's own commits.

        `expires`: seconds, or an instant, after which it is not delivered but ends as failed. `notify`: that commit
        wakes who waits. `wait`: seconds for room in a full queue, then QueueFull. `report`: an `Enqueued`, which says
        whether the message is new. A `dedup_key` holds for the queue's window, with `dedup="alive"` until the message
        ends, with "waiting" while nobody holds it; `replace`: the one that has it becomes this one, unless it is held.
        """
        if (  # as most calls say, there is nothing to check
            type(priority) is type(delay) is int and not priority and not delay
            and at is None and headers is None and dedup_key is None and max_attempts is None and expires is None
        ):  # fmt: skip
            travel = PLAIN
        else:
            travel = terms(priority=priority, delay=delay, at=at, headers=headers, dedup_key=dedup_key,
                           max_attempts=max_attempts, expires=expires)  # fmt: skip
        if report is not False or dedup != "window" or replace is not False:
            how = Once(dedup=dedup, replace=replace, report=report)
            [made] = await self._enqueue_once([value], travel, how, connection=connection, notify=notify, wait=wait)
            return made if report else made.id
        opened = self._opened
        single = opened.single() if connection is None and not notify else None
        options = opened.info.options if single is not None else await opened.options()
        payload, content_type, travel = sealed(self.codec, options.max_message_size, value, travel)
        if single is not None and (written := single(payload, content_type, travel)) is not None:
            return await written
        message, seconds = Envelope(payload, content_type, *travel), wait and config.seconds("wait", wait)
        return (await opened.append((message,), connection=connection, notify=notify, wait=seconds))[0]

    @overload
    async def enqueue_many(
        self,
        values: Iterable[T | Message[T]],
        *,
        priority: int = 0,
        delay: float = 0,
        at: datetime | None = None,
        headers: Mapping[str, str] | None = None,
        max_attempts: int | None = None,
        expires: float | datetime | None = None,
        connection: Any = None,
        notify: bool = False,
        wait: float = 0,
        report: Literal[False] = False,
    ) -> list[str]: ...
    @overload
    async def enqueue_many(
        self,
        values: Iterable[T | Message[T]],
        *,
        priority: int = 0,
        delay: float = 0,
        at: datetime | None = None,
        headers: Mapping[str, str] | None = None,
        max_attempts: int | None = None,
        expires: float | datetime | None = None,
        connection: Any = None,
        notify: bool = False,
        wait: float = 0,
        report: Literal[True],
    ) -> list[Enqueued]: ...
    @overload
    async def enqueue_many(
        self,
        values: Iterable[T | Message[T]],
        *,
        priority: int = 0,
        delay: float = 0,
        at: datetime | None = None,
        headers: Mapping[str, str] | None = None,
        max_attempts: int | None = None,
        expires: float | datetime | None = None,
        connection: Any = None,
        notify: bool = False,
        wait: float = 0,
        report: bool,
    ) -> list[str] | list[Enqueued]: ...
    async def enqueue_many(
        self,
        values: Iterable[T | Message[T]],
        *,
        priority: int = 0,
        delay: float = 0,
        at: datetime | None = None,
        headers: Mapping[str, str] | None = None,
        max_attempts: int | None = None,
        expires: float | datetime | None = None,
        connection: Any = None,
        notify: bool = False,
        wait: float = 0,
        report: bool = False,
    ) -> list[str] | list[Enqueued]:
        """Add messages, all or none; their ids in input order. A `Message` among them has terms of its own.

        `report`: an `Enqueued` for each instead, which says whether the message is new.
        """
        values = listed("values", values)
        travel = terms(
            priority=priority, delay=delay, at=at, headers=headers, max_attempts=max_attempts, expires=expires
        )
        if report is not False:
            how = Once(report=report)
            return await self._enqueue_once(values, travel, how, connection=connection, notify=notify, wait=wait)
        options = await self._opened.options()
        messages = envelopes(self.codec, options.max_message_size, values, travel)
        seconds = config.seconds("wait", wait)
        if not messages:
            return []
        return await self._opened.append(messages, connection=connection, notify=notify, wait=seconds)

    async def _enqueue_once(
        self, values: Sequence[T | Message[T]], travel: Terms, how: Once, *, connection: Any, notify: bool, wait: float
    ) -> list[Enqueued]:
        how.check(self._opened.store.capabilities)
        options = await self._opened.options()
        messages = envelopes(self.codec, options.max_message_size, values, travel)
        seconds = config.seconds("wait", wait)
        how.check_keys(messages)
        if not messages:
            return []
        return await self._opened.append_once(messages, how, connection=connection, notify=notify, wait=seconds)


def listed(what: str, values: Iterable[U]) -> Sequence[U]:
    """As a list; a text has letters and a mapping keys, which nobody means."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise ConfigError(f"{what}: a list, not {type(values).__qualname__}")
    return values if isinstance(values, Sequence) else list(values)
