"""Dedup keys that hold until their message ends: the key, its message and the new one in one transaction."""

from __future__ import annotations

from typing import Any

from ...errors import UnknownOutcome
from ..living_keys import counts, replacing
from ..records import Dedup, Enqueued, Envelope
from . import rows
from .appending import Appender, Batch, ours
from .caller_transaction import Speaker, joined
from .faults import Unanswered
from .pool import Pool
from .statements import Statements

_BEFORE = b"\0alive "  # the key: no dedup key has a NUL
_LOOKS = 3  # a message that is due comes from one table to the other, and goes back when its attempt fails


class LivingKeys:
    """One queue's, in one process."""

    def __init__(self, pool: Pool, statements: Statements, queue: str, appender: Appender) -> None:
        self._pool = pool
        self._sql = statements
        self._queue = queue
        self._appender = appender

    async def append(self, message: Envelope, dedup: Dedup, *, replace: bool) -> Enqueued:
        """Durable when it returns."""
        return await self._append(self._appender.batch([message]), dedup, replace)

    async def _append(self, batch: Batch, dedup: Dedup, replace: bool) -> Enqueued:
        async def step(connection: Any) -> Enqueued:
            return await self._append_by(connection, batch, dedup, replace)

        try:
            return await self._pool.transact(step, queue=self._queue)
        except Unanswered as error:

            async def again() -> list[str]:
                return [(await self._append(batch, dedup, replace)).id]

            raise UnknownOutcome(f"{self._queue}: {error}", ids=batch.ids, retry=again) from error

    async def append_within(
        self, connection: Any, message: Envelope, dedup: Dedup, *, replace: bool, channel: str | None
    ) -> Enqueued:
        """The same in the caller's transaction: who has the key is neither claimed nor ended before its end."""
        speaker, batch = await joined(connection), self._appender.batch([message])
        with ours(self._queue):
            return await self._append_by(speaker, batch, dedup, replace, channel)

    async def _append_by(
        self, speaker: Speaker, batch: Batch, dedup: Dedup, replace: bool, channel: str | None = None
    ) -> Enqueued:
        """Inside a transaction; a repeat finds its own id, and a call that has arrived."""
        [message], [own] = batch.messages, batch.ids
        key = _BEFORE + (message.dedup_key or "").encode()
        id = str((await speaker.fetch(self._sql["living_take"], self._queue, key, own))[0][0])
        if id != own:
            rank, status = await self._look(speaker, id)
            if counts(status, dedup):
                if not replace or status == "processing":
                    return Enqueued(id, False)
                return Enqueued(id, False, await self._replaced(speaker, id, rank, message))
            await speaker.fetch(self._sql["living_give"], self._queue, key, own)
        await self._appender.insert(speaker, batch, channel)
        return Enqueued(own, True)

    async def _look(self, speaker: Speaker, id: str) -> tuple[int, str]:
        """Looked for again where it is not: it may just have been moved between tables by who was waited for."""
        for _ in range(_LOOKS):
            if found := await speaker.fetch(self._sql["living_look"], self._queue, id):
                return found[0][0], found[0][1]
        return 0, "gone"

    async def _replaced(self, speaker: Speaker, id: str, rank: int, message: Envelope) -> bool:
        change, kind = replacing(message), rows.content_type(message.content_type)
        place = (rank, rows.rank_for(message.priority))
        args = (change.delay, change.at, change.payload, kind)
        return bool(await speaker.fetch(self._sql["change"], self._queue, id, *place, *args))
