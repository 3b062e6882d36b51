"""What every open worker does now and then, one at a time across processes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ... import ids as makers
from ...config import QueueOptions
from .pool import Pool
from .statements import Statements

_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))"
REMEMBERED_S = 3600.0  # a call, for repeats of it; what was staged, for its job to publish it
_AHEAD_DAYS = 2  # whose partition is made before they come


async def maintain(pool: Pool, statements: Statements, queue: str, options: QueueOptions) -> dict[str, int]:
    """Retention, counts, days to come, what need not be remembered; {} when another process is at it."""
    upkeep = _Upkeep(pool, statements, queue, options)
    dropped = await pool.transact(upkeep.drop_days, queue=queue)
    if dropped is None:
        return {}
    done = await pool.transact(upkeep.forget, queue=queue)
    made = sum([await upkeep.make_day(ahead) for ahead in range(_AHEAD_DAYS + 1)])
    return {**done, "days dropped": dropped, "days made": made}


class _Upkeep:
    def __init__(self, pool: Pool, statements: Statements, queue: str, options: QueueOptions) -> None:
        self._pool = pool
        self._sql = statements
        self._queue = queue
        self._days = options.archive_days

    async def _ours(self, connection: Any) -> bool:
        """Until the end of the transaction nobody else maintains this queue."""
        [(ours,)] = await connection.fetch(_LOCK, f"holdfast.maintain.{self._sql.schema}.{self._queue}")
        return bool(ours)

    async def _now(self, connection: Any) -> float:
        return float((await connection.fetch(self._sql["clock"]))[0][0])

    async def drop_days(self, connection: Any) -> int | None:
        """Old days leave the archive as a whole; the counts are folded, without what went. None: another is at it."""
        if not await self._ours(connection):
            return None
        before = datetime.fromtimestamp(await self._now(connection), UTC) - timedelta(days=self._days)
        gone = [row[0] for row in await connection.fetch(self._sql["drop_days"], self._sql.slug, before)]
        await connection.fetch(self._sql["fold"], self._queue, gone)
        return len(gone)

    async def forget(self, connection: Any) -> dict[str, int]:
        """What is left of old days, and what need not be remembered."""
        if not await self._ours(connection):
            return {}
        now = await self._now(connection)
        [(old,)] = await connection.fetch(self._sql["discard_archive"], self._queue, None, now - self._days * 86400)
        [(forgotten,)] = await connection.fetch(self._sql["forget"], self._queue)
        await connection.fetch(self._sql["forget_calls"], makers.text(max(0, int((now - REMEMBERED_S) * 1000)) << 80))
        return {"archive": int(old), "forgotten": int(forgotten)}

    async def make_day(self, ahead: int) -> bool:
        now = float((await self._pool.fetch(self._sql["clock"]))[0][0])
        day = datetime.fromtimestamp(now, UTC).date() + timedelta(days=ahead)
        [(made,)] = await self._pool.fetch(self._sql["make_day"], self._sql.slug, day, queue=self._queue)
        return bool(made)
