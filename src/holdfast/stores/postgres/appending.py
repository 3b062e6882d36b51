"""Messages in: one statement a call, COPY for large ones; calls that wait together travel together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

import asyncpg
import msgspec

from ... import ids as makers
from ...errors import ConfigError, HoldfastError, Unavailable, UnknownOutcome
from ..base import CALL_S, PAGE_ROWS, CallName, other_messages
from ..records import Enqueued, Envelope
from . import rows
from .caller_transaction import Speaker, joined
from .faults import Unanswered, translated
from .pool import Pool
from .statements import Statements

_COPY_MESSAGES = 300  # from which COPY pays for its round trips
_FLIGHTS = 3  # calls on their way at once; those that come meanwhile gather
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


class _Waiting(msgspec.Struct):
    batch: Batch
    landed: asyncio.Future[None]


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
        self._heard = heard  # told the time of the store
        self._news = news
        self._dedup_window = dedup_window
        self._schema, self._slug = statements.schema, statements.slug
        self._flying = 0
        self._waiting: list[_Waiting] = []

    async def append(self, messages: Sequence[Envelope]) -> list[str]:
        """Durable when it returns."""
        batch = self.batch(messages)
        try:
            if any(message.dedup_key is not None for message in batch.messages):
                return await self._deduplicated(batch)
            if len(batch.messages) >= _COPY_MESSAGES:
                await self._send(batch)
            else:
                await self._together(batch)
        except Unanswered as error:
            raise self._unknown(batch, error, batch.ids) from error
        return batch.ids

    async def append_call(self, messages: Sequence[Envelope], call: CallName) -> list[str]:
        """The same; a repeat of the call within an hour adds nothing."""
        if len(messages) > makers.PLACES:
            raise ConfigError(f"{len(messages)} messages of one call, the limit is {makers.PLACES}")
        batch = self.batch(messages)
        try:
            answer = await self._pool.transact(lambda speaker: self._once(speaker, batch, call), queue=self._queue)
        except Unanswered as error:
            again = partial(self.append_call, messages, call)
            raise UnknownOutcome(f"{self._queue}: {error}", ids=batch.ids, retry=again) from error
        self._news.tell(self._queue)
        return answer

    async def _once(self, speaker: Any, batch: Batch, call: CallName) -> list[str]:
        """A key remembers the call's first id, from which the others follow, and further keys where they do not."""
        name = b"\0call " + call.name.encode()
        digest = name + b"\0" + call.digest.encode()
        holders = await self._hold(speaker, {name: batch.ids[0], digest: batch.ids[0]}, CALL_S)
        first = holders.get(name, batch.ids[0])
        if holders.get(digest, first) != first:
            raise other_messages(call)
        if first != batch.ids[0]:
            return await self._made_before(speaker, name, _numbered(batch.messages, _block(first)))
        answer, rest = batch.ids, batch
        if any(message.dedup_key is not None for message in batch.messages):
            answer, rest = await self._take_keys(speaker, batch)
            others = {_other(name, n): id for n, id in enumerate(answer) if id != batch.ids[n]}
            await self._hold(speaker, others, CALL_S)
        await self._put(speaker, rest)
        return answer

    async def _made_before(self, speaker: Any, name: bytes, ids: list[str]) -> list[str]:
        found = await speaker.fetch(self._sql["keys_look"], self._queue, [_other(name, n) for n in range(len(ids))])
        others = {bytes(row[0]): str(row[1]) for row in found}
        return [others.get(_other(name, n), id) for n, id in enumerate(ids)]

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
            answer, rest = await self._take_keys(speaker, batch)
        for start in range(0, len(rest.ids), PAGE_ROWS):
            part = Batch(rest.messages[start : start + PAGE_ROWS], rest.ids[start : start + PAGE_ROWS])
            await self.insert(speaker, part, channel)
        return answer

    def batch(self, messages: Sequence[Envelope]) -> Batch:
        """The messages with ids that only go up."""
        ids: list[str] = []
        for start in range(0, len(messages), makers.PLACES):
            ids += _numbered(messages[start : start + makers.PLACES], self._number())
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

        return UnknownOutcome(f"{self._queue}: {error}", ids=ids, retry=again)

    # ------------------------------------------------------------------ gathering

    async def _together(self, batch: Batch) -> None:
        """At once while few calls are on their way, else with the others that wait."""
        if self._flying < _FLIGHTS:
            self._flying += 1
            try:
                await self._send(batch)
            finally:
                self._landed()
            return
        waiting = _Waiting(batch, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        await waiting.landed

    def _landed(self) -> None:
        self._flying -= 1
        self._fly_on()

    def _fly_on(self) -> None:
        while self._waiting and self._flying < _FLIGHTS:
            flight: list[_Waiting] = []
            size = 0
            while self._waiting and len(flight) < PAGE_ROWS and size < rows.TRIP_BYTES:
                flight.append(self._waiting.pop(0))
                size += sum(len(message.payload) for message in flight[-1].batch.messages)
            self._flying += 1
            asyncio.create_task(self._fly_for(flight))  # noqa: RUF006 - the futures of the flight keep it alive

    async def _fly_for(self, flight: list[_Waiting]) -> None:
        batch = _merged(flight)
        try:
            await self._send(batch)
        except Unanswered as error:
            for waiting in flight:
                _fail(waiting, self._unknown(batch, error, waiting.batch.ids))
        except BaseException as error:  # noqa: BLE001 - each of those who wait hears it
            for waiting in flight:
                _fail(waiting, error)
        else:
            _land(flight)
        finally:
            self._landed()

    # ------------------------------------------------------------------ sending

    async def _send(self, batch: Batch) -> None:
        if len(batch.messages) >= _COPY_MESSAGES:
            await self._pool.transact(lambda connection: self._copy(connection, batch), queue=self._queue)
            channel = None
        else:
            channel = self._news.channel(self._queue)

            async def step(connection: Any) -> None:
                nonlocal channel
                try:
                    await self.insert(connection, batch, channel)
                except asyncpg.ProgramLimitExceededError:  # the server's queue of notifications is full
                    if channel is None:
                        raise
                    channel = None
                    await self.insert(connection, batch)

            await self._pool.run(step, queue=self._queue)
        if channel is None:
            self._news.tell(self._queue)

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
        self._heard(answer[0][0])

    async def _copy(self, connection: Any, batch: Batch) -> None:
        """Inside a transaction."""
        [(now, fresh)] = await connection.fetch(self._sql["append_begin"], batch.call)
        if not fresh:
            return
        self._heard(now.timestamp())
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
            answer, rest = await self._take_keys(connection, batch)
            await self._put(connection, rest)
            return answer

        answer = await self._pool.transact(step, queue=self._queue)
        self._news.tell(self._queue)
        return answer

    async def _put(self, connection: Any, batch: Batch) -> None:
        """Inside a transaction."""
        if len(batch.ids) >= _COPY_MESSAGES:
            await self._copy(connection, batch)
        elif batch.ids:
            await self.insert(connection, batch)

    async def _hold(self, speaker: Speaker, firsts: dict[bytes, str], window: float) -> dict[bytes, str]:
        """Take the keys that are free, for so many seconds; who holds each."""
        names = sorted(firsts)
        held = [firsts[key] for key in names], window, [rows.hashed(key) for key in names]
        await speaker.fetch(self._sql["keys_take"], self._queue, names, *held)
        found = await speaker.fetch(self._sql["keys_look"], self._queue, names)
        return {bytes(row[0]): str(row[1]) for row in found}

    async def _take_keys(self, speaker: Speaker, batch: Batch) -> tuple[list[str], Batch]:
        """The ids to answer, and the messages that nobody sent before."""
        keys = [None if m.dedup_key is None else m.dedup_key.encode() for m in batch.messages]
        first: dict[bytes, str] = {}
        for key, id in zip(keys, batch.ids, strict=True):
            if key is not None:
                first.setdefault(key, id)
        holders = await self._hold(speaker, first, await self._dedup_window())
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


def _numbered(messages: Sequence[Envelope], block: int) -> list[str]:
    """Ids of one block, in order; the priority is part of them."""
    bases: dict[int, str] = {}
    ids: list[str] = []
    for position, message in enumerate(messages):
        base = bases.get(message.priority)
        if base is None:
            base = bases[message.priority] = makers.text(block | message.priority << 54)[:-5]
        ids.append(f"{base}{position:05x}")
    return ids


def _block(first: str) -> int:
    """The number that the ids of a call were made of."""
    number = makers.number(first) or 0
    return makers.block_of(number) & ~(0xFF << 54)


def _other(name: bytes, position: int) -> bytes:
    """The key for a message of a call that was another's, by its dedup key."""
    return name + b"\0\0%d" % position


def _due(now: datetime, message: Envelope) -> datetime:
    if message.at is not None:
        return datetime.fromtimestamp(message.at, UTC)
    return now + timedelta(seconds=message.delay)


def _end(now: datetime, message: Envelope) -> datetime | None:
    if message.expires is not None:
        return datetime.fromtimestamp(message.expires, UTC)
    return None if message.lifetime is None else now + timedelta(seconds=message.lifetime)


def _merged(flight: Sequence[_Waiting]) -> Batch:
    if len(flight) == 1:
        return flight[0].batch
    messages = [message for waiting in flight for message in waiting.batch.messages]
    return Batch(messages, [id for waiting in flight for id in waiting.batch.ids])


def _land(flight: Sequence[_Waiting]) -> None:
    for waiting in flight:
        if not waiting.landed.done():
            waiting.landed.set_result(None)


def _fail(waiting: _Waiting, error: BaseException) -> None:
    if not waiting.landed.done():
        waiting.landed.set_exception(error)
