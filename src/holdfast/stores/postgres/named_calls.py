"""Appends with names: a repeat within an hour is answered with the ids of the first, and adds nothing.

The name is a row of `keys` that holds the call's first id, from which the others follow; more rows where they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from ... import ids as makers
from ...errors import ConfigError, HoldfastError, UnknownOutcome
from ..base import CALL_S, CallName, other_messages
from ..records import Envelope
from . import rows
from .appending import COPY_MESSAGES, Appender, Batch, News, numbered
from .faults import Unanswered
from .flights import Flights
from .pool import Pool
from .statements import Statements

_MARK = b"\0call "  # no dedup key begins so


class _Call(msgspec.Struct, frozen=True):
    batch: Batch
    name: CallName

    @property
    def messages(self) -> list[Envelope]:
        return self.batch.messages

    @property
    def key(self) -> bytes:
        return _MARK + self.name.name.encode()


class NamedCalls:
    """One queue's, in one process."""

    def __init__(self, pool: Pool, statements: Statements, queue: str, appender: Appender, news: News) -> None:
        self._pool = pool
        self._sql = statements
        self._queue = queue
        self._appender = appender
        self._news = news
        self._flights: Flights[_Call, list[str]] = Flights(self._send)

    async def append(self, messages: Sequence[Envelope], name: CallName) -> list[str]:
        """Durable when it returns."""
        if len(messages) > makers.PLACES:
            raise ConfigError(f"{len(messages)} messages of one call, the limit is {makers.PLACES}")
        call = _Call(self._appender.batch(messages), name)
        return await (self._flights.board(call) if _is_simple(call) else self._alone(call))

    async def _send(self, calls: list[_Call]) -> list[list[str] | Exception]:
        """One statement for all whose names are new; each of the others finds what the first of its name was told."""
        firsts: dict[bytes, _Call] = {}
        for call in calls:
            firsts.setdefault(call.key, call)
        try:
            fresh = await self._inserted(firsts)
        except Unanswered as error:
            return [self._unknown(call, error) for call in calls]
        answers: list[list[str] | Exception] = []
        for call in calls:
            if call.key in fresh and firsts[call.key] is call:
                answers.append(call.batch.ids)
            else:
                answers.append(await self._repeated(call))
        return answers

    async def _inserted(self, calls: dict[bytes, _Call]) -> set[bytes]:
        """Which names were new."""
        batches = [call.batch for call in calls.values()]
        ids = [id for batch in batches for id in batch.ids]
        places = [place for place, batch in enumerate(batches, 1) for _ in batch.ids]  # SQL counts from one
        columns = rows.columns([message for batch in batches for message in batch.messages])
        named = [*calls], [batch.ids[0] for batch in batches], CALL_S
        sql = self._sql["append_named"]

        async def insert(connection: Any, channel: str | None) -> tuple[float, list[bytes]]:
            [row] = await connection.fetch(sql, self._queue, *named, ids, places, *columns, channel)
            return row[0], row[1]

        now, fresh = await self._appender.send_telling(insert)
        self._appender.heard(now)
        return set(fresh)

    async def _repeated(self, call: _Call) -> list[str] | Exception:
        """Under fresh ids: those of this call may be there, put by a try whose answer was lost."""
        try:
            return await self._alone(_Call(self._appender.batch(call.messages), call.name))
        except HoldfastError as error:
            return error

    async def _alone(self, call: _Call) -> list[str]:
        """In a transaction of its own."""
        try:
            answer = await self._pool.transact(lambda speaker: self._once(speaker, call), queue=self._queue)
        except Unanswered as error:
            raise self._unknown(call, error) from error
        self._news.tell(self._queue)
        return answer

    async def _once(self, speaker: Any, call: _Call) -> list[str]:
        batch, name = call.batch, call.key
        keys = {name: batch.ids[0]}
        digest = name + b"\0" + call.name.digest.encode()
        if call.name.digest:
            keys[digest] = batch.ids[0]
        holders = await self._appender.hold(speaker, keys, CALL_S)
        first = holders.get(name, batch.ids[0])
        if holders.get(digest, first) != first:
            raise other_messages(call.name)
        if first != batch.ids[0]:
            return await self._made_before(speaker, name, numbered(batch.messages, _block(first)))
        answer, rest = batch.ids, batch
        if any(message.dedup_key is not None for message in batch.messages):
            answer, rest = await self._appender.take_keys(speaker, batch)
            others = {_other(name, n): id for n, id in enumerate(answer) if id != batch.ids[n]}
            await self._appender.hold(speaker, others, CALL_S)
        await self._appender.put(speaker, rest)
        return answer

    async def _made_before(self, speaker: Any, name: bytes, ids: list[str]) -> list[str]:
        found = await speaker.fetch(self._sql["keys_look"], self._queue, [_other(name, n) for n in range(len(ids))])
        others = {bytes(row[0]): str(row[1]) for row in found}
        return [others.get(_other(name, n), id) for n, id in enumerate(ids)]

    def _unknown(self, call: _Call, error: Exception) -> UnknownOutcome:
        again = partial(self.append, call.messages, call.name)
        unclear = UnknownOutcome(f"{self._queue}: {error}", ids=call.batch.ids, retry=again)
        unclear.__cause__ = error
        return unclear


def _is_simple(call: _Call) -> bool:
    """Whether others can share its statement: it has nothing but its name to be remembered by, and is short."""
    messages = call.messages
    if len(messages) >= COPY_MESSAGES or call.name.digest or rows.ends(messages):
        return False
    return all(message.dedup_key is None for message in messages)


def _block(first: str) -> int:
    """The number that the ids of a call were made of."""
    number = makers.number(first) or 0
    return makers.block_of(number) & ~(0xFF << 54)


def _other(name: bytes, position: int) -> bytes:
    """The key for a message of a call that was another's, by its dedup key."""
    return name + b"\0\0%d" % position
