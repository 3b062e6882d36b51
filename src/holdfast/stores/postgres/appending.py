"""Messages in: one statement a call, COPY for large ones; calls that wait together travel together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

import asyncpg
import msgspec

from ... import ids as makers
from ...errors import HoldfastError, Unavailable, UnknownOutcome
from ..base import PAGE_ROWS
from ..records import Enqueued, Envelope
from . import rows
from .caller_transaction import Speaker, joined
from .faults import Unanswered, translated
from .flights import Flights
from .pool import Pool
from .statements import Statements

T = TypeVar("T")

COPY_MESSAGES = 300  # from which COPY pays for its round trips
_Q = ["id", "enqueued_at", "visible_at", "max_attempts", "rank", "content_type", "headers", "payload"]


class News(Protocol):
    """Whom new messages are told to."""

    def channel(self, queue: str) -> str | None:
        """Where the statement that is about to be sent shall notify of them; None: `tell` will be asked to."""

    def tell(self, queue: str) -> None:
        """They are there, and no notification was carried."""


class Batch(msgspec.Struct):
    """Messages with their ids; the id of the call is that of its first message, unless some were left out."""

    messages: list[Envelope]
    ids: list[str]
    named: str | None = None

    @property
    def call(self) -> str:
        return self.named or self.ids[0]


class Appender:
    """One queue's, in one process."""

    def __init__(
        self,
        pool: Pool,
        statements: Statements,
        queue: str,
        *,
        number: Callable[[], int],
        heard: Callable[[float], None],
        news: News,
        dedup_window: Callable[[], Awaitable[float]],
    ) -> None:
        self._pool = pool
        self._sql = statements
        self._queue = queue
        self._number = number  # a fresh block id
        self.heard = heard  # told the time of the store
        self._news = news
        self._dedup_window = dedup_window
        self._schema, self._slug = statements.schema, statements.slug
        self._flights: Flights[Batch, list[str]] = Flights(self._send_all)

    async def append(self, messages: Sequence[Envelope]) -> list[str]:
        """Durable when it returns."""
        batch = self.batch(messages)
        try:
            if any(message.dedup_key is not None for message in batch.messages):
                return await self._deduplicated(batch)
            if len(batch.messages) >= COPY_MESSAGES:
                await self._send(batch)
            else:
                return await self._flights.board(batch)
        except Unanswered as error:
            raise self._unknown(batch, error, batch.ids) from error
        return batch.ids

    async def append_once(self, messages: Sequence[Envelope]) -> list[Enqueued]:
        """As `append`, for messages of which some have keys; an id that is not ours is of one that was sent before."""
        batch = self.batch(messages)
        try:
            return _reported(batch, await self._deduplicated(batch))
        except Unanswered as error:
            raise self._unknown(batch, error, batch.ids) from error

    async def append_once_within(
        self, connection: Any, messages: Sequence[Envelope], channel: str | None = None
    ) -> list[Enqueued]:
        """The same in the caller's transaction."""
        speaker, batch = await joined(connection), self.batch(messages)
        with ours(self._queue):
            return _reported(batch, await self._append_by(speaker, batch, channel))

    async def append_within(
        self, connection: Any, messages: Sequence[Envelope], channel: str | None = None
    ) -> list[str]:
        """Part of the transaction of the caller's connection: there, and notified of, if and only if it commits."""
        speaker, batch = await joined(connection), self.batch(messages)
        with ours(self._queue):
            return await self._append_by(speaker, batch, channel)

    async def _append_by(self, speaker: Speaker, batch: Batch, channel: str | None) -> list[str]:
        answer, rest = batch.ids, batch
        if any(message.dedup_key is not None for message in batch.messages):
            answer, rest = await self.take_keys(speaker, batch)
        for start in range(0, len(rest.ids), PAGE_ROWS):
            part = Batch(rest.messages[start : start + PAGE_ROWS], rest.ids[start : start + PAGE_ROWS])
            await self.insert(speaker, part, channel)
        return answer

    def batch(self, messages: Sequence[Envelope]) -> Batch:
        """The messages with ids that only go up."""
        ids: list[str] = []
        for start in range(0, len(messages), makers.PLACES):
            ids += numbered(messages[start : start + makers.PLACES], self._number())
        return Batch(list(messages), ids)

    def _unknown(self, batch: Batch, error: Exception, ids: list[str]) -> UnknownOutcome:
        """Repeats exactly what was sent, together with the calls that travelled along: it has one name only."""

        async def again() -> list[str]:
            try:
                if any(message.dedup_key is not None for message in batch.messages):
                    return await self._deduplicated(batch)
                await self._send(batch)
            except Unavailable as error:  # also when this try did not get through: the first one may have
                raise self._unknown(batch, error, ids) from error
            return ids

        unclear = UnknownOutcome(f"{self._queue}: {error}", ids=ids, retry=again)
        unclear.__cause__ = error
        return unclear

    # ------------------------------------------------------------------ sending

    async def _send_all(self, batches: list[Batch]) -> list[list[str] | Exception]:
        whole = _merged(batches)
        try:
            await self._send(whole)
        except Unanswered as error:
            return [self._unknown(whole, error, batch.ids) for batch in batches]
        return [batch.ids for batch in batches]

    async def _send(self, batch: Batch) -> None:
        if len(batch.messages) < COPY_MESSAGES:
            return await self.send_telling(lambda connection, channel: self.insert(connection, batch, channel))
        await self._pool.transact(lambda connection: self._copy(connection, batch), queue=self._queue)
        self._news.tell(self._queue)

    async def send_telling(self, send: Callable[[Any, str | None], Awaitable[T]]) -> T:
        """What one statement answers, which notifies of its messages itself where it can."""
        channel = self._news.channel(self._queue)

        async def step(connection: Any) -> T:
            nonlocal channel
            try:
                return await send(connection, channel)
            except asyncpg.ProgramLimitExceededError:  # the server's queue of notifications is full
                if channel is None:
                    raise
                channel = None
                return await send(connection, channel)

        answer = await self._pool.run(step, queue=self._queue)
        if channel is None:
            self._news.tell(self._queue)
        return answer

    async def insert(self, speaker: Speaker, batch: Batch, channel: str | None = None) -> None:
        """One statement, on the caller's connection; with a channel, it notifies of the messages."""
        ranks, delays, instants, kinds, headers, most, payloads = rows.columns(batch.messages)
        named = (self._queue, batch.call, batch.ids, ranks)
        ends = rows.ends(batch.messages)
        if ends:
            sql, times = self._sql["append_expiring"], [delays, instants]
        elif any(delays) or any(instants):
            sql, times = self._sql["append"], [delays, instants]
        else:
            sql, times = self._sql["append_now"], []
        answer = await speaker.fetch(sql, *named, *times, kinds, headers, most, payloads, channel, *ends)
        self.heard(answer[0][0])

    async def _copy(self, connection: Any, batch: Batch) -> None:
        """Inside a transaction."""
        [(now, fresh)] = await connection.fetch(self._sql["append_begin"], batch.call)
        if not fresh:
            return
        self.heard(now.timestamp())
        ready, waiting, ends = [], [], bool(rows.ends(batch.messages))
        for id, message in zip(batch.ids, batch.messages, strict=True):
            due = now if not message.delay and message.at is None else _due(now, message)
            head = (id, now, max(due, now), message.max_attempts, 255 - message.priority)
            kind, headers = rows.content_type(message.content_type), rows.headers_text(message.headers)
            row = (*head, kind, headers, message.payload, *([_end(now, message)] if ends else []))
            if due <= now:
                ready.append(row)
            else:
                waiting.append((*row, "delayed"))
        own = [*_Q, "expires"] if ends else _Q
        for kind, records, columns in (("q", ready, own), ("w", waiting, [*own, "waits"])):
            if records:
                table = f"{kind}_{self._slug}"
                await connection.copy_records_to_table(
                    table, schema_name=self._schema, records=records, columns=columns
                )
        await connection.fetch(self._sql["append_count"], self._queue, len(ready), len(waiting))

    # ------------------------------------------------------------------ dedup keys

    async def _deduplicated(self, batch: Batch) -> list[str]:
        async def step(connection: Any) -> list[str]:
            answer, rest = await self.take_keys(connection, batch)
            await self.put(connection, rest)
            return answer

        answer = await self._pool.transact(step, queue=self._queue)
        self._news.tell(self._queue)
        return answer

    async def put(self, connection: Any, batch: Batch) -> None:
        """Inside a transaction."""
        if len(batch.ids) >= COPY_MESSAGES:
            await self._copy(connection, batch)
        elif batch.ids:
            await self.insert(connection, batch)

    async def hold(self, speaker: Speaker, firsts: dict[bytes, str], window: float) -> dict[bytes, str]:
        """Take the keys that are free, for so many seconds; who holds each."""
        names = sorted(firsts)
        held = [firsts[key] for key in names], window, [rows.hashed(key) for key in names]
        await speaker.fetch(self._sql["keys_take"], self._queue, names, *held)
        found = await speaker.fetch(self._sql["keys_look"], self._queue, names)
        return {bytes(row[0]): str(row[1]) for row in found}

    async def take_keys(self, speaker: Speaker, batch: Batch) -> tuple[list[str], Batch]:
        """The ids to answer, and the messages that nobody sent before."""
        keys = [None if m.dedup_key is None else m.dedup_key.encode() for m in batch.messages]
        first: dict[bytes, str] = {}
        for key, id in zip(keys, batch.ids, strict=True):
            if key is not None:
                first.setdefault(key, id)
        holders = await self.hold(speaker, first, await self._dedup_window())
        answer = [id if key is None else holders.get(key, id) for key, id in zip(keys, batch.ids, strict=True)]
        new = [index for index, id in enumerate(batch.ids) if answer[index] == id]
        # Named as the whole call is: a repeat may find other keys free, and must still be known as one.
        rest = Batch([batch.messages[n] for n in new], [batch.ids[n] for n in new], batch.call)
        return answer, rest


@contextmanager
def ours(queue: str) -> Iterator[None]:
    """Around what the caller's own driver may raise."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        raise translated(error, queue) from error


def _reported(batch: Batch, answer: Sequence[str]) -> list[Enqueued]:
    return [Enqueued(id, id == own) for id, own in zip(answer, batch.ids, strict=True)]


def numbered(messages: Sequence[Envelope], block: int) -> list[str]:
    """Ids of one block, in order; the priority is part of them."""
    bases: dict[int, str] = {}
    ids: list[str] = []
    for position, message in enumerate(messages):
        base = bases.get(message.priority)
        if base is None:
            base = bases[message.priority] = makers.text(block | message.priority << 54)[:-5]
        ids.append(f"{base}{position:05x}")
    return ids


def _due(now: datetime, message: Envelope) -> datetime:
    if message.at is not None:
        return datetime.fromtimestamp(message.at, UTC)
    return now + timedelta(seconds=message.delay)


def _end(now: datetime, message: Envelope) -> datetime | None:
    if message.expires is not None:
        return datetime.fromtimestamp(message.expires, UTC)
    return None if message.lifetime is None else now + timedelta(seconds=message.lifetime)


def _merged(batches: Sequence[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    messages = [message for batch in batches for message in batch.messages]
    return Batch(messages, [id for batch in batches for id in batch.ids])
