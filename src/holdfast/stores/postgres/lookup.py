"""Looking at messages wherever they lie, and what is done with those that ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import ids as makers
from ...errors import MessageNotFound
from ..records import Stats, Stored, View
from . import rows
from .pool import Pool
from .statements import Statements

_SAMPLE_ROWS = 10_000  # that are looked at for what no delta can tell: what is held, what has become due
_WAITS = {"ready": "pending"}
_CANCELLED = "cancelled"  # the error that cancel.sql writes


class Letters:
    """One queue's, in one process."""

    def __init__(self, pool: Pool, statements: Statements, queue: str) -> None:
        self._pool = pool
        self._sql = statements
        self._queue = queue

    async def get(self, ids: Sequence[str]) -> list[Stored | None]:
        asked, ranks = rows.known(ids)
        found = {str(row[0]): rows.stored(row) for row in await self._fetch("get", asked, ranks)} if asked else {}
        return [found.get(id) for id in ids]

    async def scan(self, view: View, *, after: str | None, limit: int, dead: bool) -> list[Stored]:
        start = after if after is not None and rows.rank(after) is not None else None
        if after and start is None:  # no id of ours: compare as text does, with what is nearest
            start = _nearest(after)
        if dead and view != "archive":
            if view == "dead":
                return []
            found = await self._fetch("scan_dead_queue", start, limit, _WAITS.get(view, view))
        else:
            found = await self._fetch(f"scan_{view}", start, limit)
        return [rows.stored(row) for row in found]

    async def stats(self, *, dead: bool) -> Stats:
        [row] = await self._fetch("stats_dead" if dead else "stats", _SAMPLE_ROWS)
        pending, delayed, processing, retry, letters, archived, completed, failed, age, exact = row
        total = pending + delayed + processing + retry + letters + archived
        return Stats(total, pending, delayed, processing, retry, letters, archived, completed, failed, age, exact)

    async def cancel(self, id: str) -> bool:
        asked, ranks = rows.known([id])
        sent_before = False
        while asked:
            found, again = await self._pool.fetch_doubting(
                self._sql["cancel"], self._queue, id, ranks[0], queue=self._queue
            )
            if found:
                return True
            sent_before |= again
            [stored] = await self.get([id])
            if stored is None:
                break
            if sent_before and stored.status == "failed" and stored.error == _CANCELLED:
                return True
            if stored.status not in ("pending", "delayed", "retry"):
                return False
        raise MessageNotFound(f"queue {self._queue!r} has no message {id!r}")

    async def replay(self, view: View, ids: Sequence[str]) -> int:
        asked, ranks = rows.known(list(dict.fromkeys(ids)))
        if not asked:
            return 0
        from_dead = view == "dead"

        async def step(connection: Any) -> int:
            if from_dead:
                found = await connection.fetch(self._sql["replay_find_dead"], asked, ranks)
            else:
                found = await connection.fetch(self._sql["replay_find_archive"], asked)
            old = [str(row[0]) for row in found]
            new = [makers.text(makers.derived(makers.number(id) or 0, "replay")) for id in old]
            headers = [
                rows.headers_text((rows.headers_from(row[1]) or {}) | {"replayed_from": id})
                for row, id in zip(found, old, strict=True)
            ]
            of_old = [[rows.rank(id) for id in old]] if from_dead else []
            sql = self._sql["replay_dead" if from_dead else "replay_archive"]
            [(live,)] = await connection.fetch(sql, self._queue, old, *of_old, new, headers)
            return int(live)

        return await self._pool.transact(step, queue=self._queue)

    async def discard(self, view: View, ids: Sequence[str] | None, before: float | None) -> int:
        asked = None if ids is None else rows.known(ids)[0]
        if asked is not None and not asked:
            return 0
        [(gone,)] = await self._fetch("discard_dead" if view == "dead" else "discard_archive", asked, before)
        return int(gone)

    async def purge(self, *, dead: bool) -> int:
        """Two statements for what waits: the second sees what became ready while the first was at work."""
        names = ["purge_dead"] if dead else ["purge_waiting", "purge_ready"]

        async def step(connection: Any) -> int:
            return sum([int((await connection.fetch(self._sql[name], self._queue))[0][0]) for name in names])

        return await self._pool.transact(step, queue=self._queue)

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        return await self._pool.fetch(self._sql[name], self._queue, *args, queue=self._queue)


def _nearest(text: str) -> str:
    """The id that sorts where this text does."""
    digits = "".join(letter for letter in text.lower() if letter in "0123456789abcdef")
    return makers.text(int(f"{digits[:32]:0<32}", 16))
