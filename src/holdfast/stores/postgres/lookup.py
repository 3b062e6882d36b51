"""Looking at messages wherever they lie, and what is done with those that ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from ... import ids as makers
from ... import limits
from ...errors import MessageNotFound
from ..records import Change, Stats, Stored, View
from . import rows
from .pool import Pool
from .statements import Statements

_SAMPLE_ROWS = 10_000  # that are looked at for what no delta can tell: what is held, what has become due
_WAITS = {"ready": "pending"}
_CANCELLED_WAITING = ("pending", "delayed", "retry")
_CANCELLED_RUNNING = (*_CANCELLED_WAITING, "processing")
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
        if missing := [id for id in asked if id not in found]:
            places = await self._moved(missing)
            again = await self._fetch("get", list(places), list(places.values())) if places else []
            found |= {str(row[0]): rows.stored(row) for row in again}
        return [found.get(id) for id in ids]

    async def _moved(self, ids: Sequence[str]) -> dict[str, int]:
        """The ranks of those that do not lie where their ids say: their priority was changed."""
        found = await self._pool.fetch(self._sql["ranks"], ids, queue=self._queue)
        return {str(row[0]): row[1] for row in found}

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

    async def upcoming(self, view: View, *, after: tuple[float, str] | None, limit: int, dead: bool) -> list[Stored]:
        if dead:  # few, and nobody pages through them by due time
            found = await self.scan(view, after=None, limit=sys.maxsize, dead=True)
            found.sort(key=lambda one: (one.visible_at or 0.0, one.id))
            return [one for one in found if after is None or (one.visible_at or 0.0, one.id) > after][:limit]
        due, id = after or (None, None)
        return [rows.stored(row) for row in await self._fetch("upcoming", view, due, id, limit)]

    async def peek(self, limit: int, *, dead: bool) -> list[Stored]:
        if dead:
            found = await self.scan("ready", after=None, limit=sys.maxsize, dead=True)
            return sorted(found, key=lambda one: (-one.priority, one.id))[:limit]
        return [rows.stored(row) for row in await self._fetch("peek", limit)]

    async def stats(self, *, dead: bool) -> Stats:
        [row] = await self._fetch("stats_dead" if dead else "stats", _SAMPLE_ROWS)
        pending, delayed, processing, retry, letters, archived, completed, failed, age, exact = row
        total = pending + delayed + processing + retry + letters + archived
        return Stats(total, pending, delayed, processing, retry, letters, archived, completed, failed, age, exact)

    async def take_back(self, ids: Sequence[str]) -> int:
        asked, ranks = rows.known(list(dict.fromkeys(ids)))
        if not asked:
            return 0
        token = rows.fresh_token(os.urandom(8))
        taken = {str(row[0]) for row in await self._fetch("take_back", asked, ranks, token)}
        left = [id for id in asked if id not in taken]
        if left and (places := await self._moved(left)):
            taken |= {str(row[0]) for row in await self._fetch("take_back", list(places), list(places.values()), token)}
        return len(taken)

    async def take_back_from(self, worker: str | None) -> int:
        """What a worker holds; in a long queue all of it is looked through."""
        asked = [rows.plain(worker), limits.in_ascii(rows.plain(worker))]
        return len(await self._fetch("take_back_from", asked, rows.fresh_token(os.urandom(8))))

    async def change(self, id: str, change: Change) -> bool:
        asked, ranks = rows.known([id])
        rank = None if change.priority is None else rows.rank_for(change.priority)
        kind = None if change.payload is None else rows.content_type(change.content_type)
        while asked:
            args = (rank, change.delay, change.at, change.payload, kind)
            if await self._fetch("change", id, ranks[0], *args):
                return True
            [stored] = await self.get([id])
            if stored is None:
                break
            if stored.status not in _CANCELLED_WAITING or ranks[0] == rows.rank_for(stored.priority):
                return False
            ranks = [rows.rank_for(stored.priority)]
        raise MessageNotFound(f"queue {self._queue!r} has no message {id!r}")

    async def cancel(self, id: str, *, running: bool = False) -> bool:
        asked, ranks = rows.known([id])
        sent_before = False
        while asked:
            found, again = await self._pool.fetch_doubting(
                self._sql["cancel"], self._queue, id, ranks[0], running, queue=self._queue
            )
            if found:
                return True
            sent_before |= again
            [stored] = await self.get([id])
            if stored is None:
                break
            if sent_before and stored.status == "failed" and stored.error == _CANCELLED:
                return True
            if stored.status not in (_CANCELLED_RUNNING if running else _CANCELLED_WAITING):
                return False
            ranks = [rows.rank_for(stored.priority)]
        raise MessageNotFound(f"queue {self._queue!r} has no message {id!r}")

    async def replay(self, view: View, ids: Sequence[str]) -> int:
        asked, ranks = rows.known(list(dict.fromkeys(ids)))
        if not asked:
            return 0
        from_dead = view == "dead"

        async def step(connection: Any) -> int:
            if from_dead:
                places = dict(zip(asked, ranks, strict=True)) | await self._moved(asked)
                found = await connection.fetch(self._sql["replay_find_dead"], list(places), list(places.values()))
            else:
                found = await connection.fetch(self._sql["replay_find_archive"], asked)
            old = [str(row[0]) for row in found]
            new = [makers.text(makers.derived(makers.number(id) or 0, "replay")) for id in old]
            headers = [
                rows.headers_text((rows.headers_from(row[1]) or {}) | {"replayed_from": id})
                for row, id in zip(found, old, strict=True)
            ]
            of_old = [[row[2] for row in found]] if from_dead else []
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
