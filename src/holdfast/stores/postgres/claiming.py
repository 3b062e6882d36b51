"""Messages out: claims, and what becomes of those whose last lease is over."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from ...errors import HoldfastError, StoreError
from ...limits import in_ascii
from ..base import LOOK_AGAIN_S, PAGE_ROWS
from ..records import LAPSED, Claimed, Claims, Expired
from . import faults, rows
from .pool import Pool
from .settling import Settler
from .statements import Statements

EXPIRED = "lease expired"
Ranges: TypeAlias = tuple[list[int], list[str], list[int]]  # (rank, id) from here on, and below that rank
EVERYTHING: Ranges = ([0], ["00000000-0000-0000-0000-000000000000"], [256])

LITTER_ROWS = 20_000  # dead ones that make beginning further on worth it
_SHARE = 10  # looking from the start may take one part in so many
_BURIAL_ROUNDS = 20  # rounds in one claim; a mass of crashed messages is spread over several
_UNUSUAL_S = 0.1  # after something due or expired, in which more of it is expected


class _Claim(msgspec.Struct, frozen=True, gc=False):
    """One call."""

    token: int
    limit: int
    lease: float
    worker: str | None


class Claimer:
    """One queue's, in one process."""

    def __init__(
        self, pool: Pool, statements: Statements, queue: str, settler: Settler, *, heard: Callable[[float], None]
    ) -> None:
        self._pool = pool
        self._sql = statements
        self._queue = queue
        self._settler = settler
        self._heard = heard
        self.bounds = Bounds()
        self._looking: asyncio.Task[None] | None = None
        self._unusual_until = 0.0
        self._has_letters = True  # whether the database has had all that the names of workers need

    async def claim(self, limit: int, lease: float, worker: str | None, *, dead: bool = False) -> Claims:
        """Up to `limit`, held by `worker`; or of the dead letters, which never run out of attempts."""
        claim = self._claim_dead if dead else self._claim_live
        name = rows.plain(worker) if self._has_letters else in_ascii(rows.plain(worker))
        try:
            return await claim(_Claim(rows.fresh_token(os.urandom(8)), limit, lease, name))
        except StoreError as error:
            if not self._has_letters or not faults.lacks_letters(error):
                raise
        self._has_letters = False
        return await self.claim(limit, lease, worker, dead=dead)

    async def _claim_live(self, asked: _Claim) -> Claims:
        """By the short statement as long as that can serve."""
        if time.monotonic() >= self._unusual_until:
            messages = await self._claim_ready(asked)
            if messages is not None:
                return Claims(messages)
            self._unusual_until = time.monotonic() + _UNUSUAL_S
        return await self._claim_any(asked)

    async def _claim_ready(self, asked: _Claim) -> list[Claimed] | None:
        """None: something is due, or a lease has expired, and nothing was claimed."""
        self._look_at_litter()
        ranges, whole = self.bounds.ranges()
        started = time.monotonic()
        found = await self._ask(asked, "claim_ready", *ranges, asked.worker)
        _, unusual, *_, now = found.pop()
        self._heard(now)
        if unusual:
            return None
        messages = in_order(rows.ready(found, f"{asked.token:x}", now + asked.lease))
        self._note(messages, whole=whole, took=time.monotonic() - started)
        return messages

    def _note(self, messages: Sequence[Claimed], *, whole: bool, took: float) -> None:
        if messages and self.bounds.littered:
            self.bounds.found([(255 - m.priority, m.id) for m in messages], whole=whole, took=took)

    async def _claim_any(self, asked: _Claim) -> Claims:
        """Messages that a claim finds dead are buried, and it looks again."""
        look, expired = asked.limit, list[Expired]()
        for _ in range(_BURIAL_ROUNDS):
            messages, spent = await self._claim(asked, look=look)
            if not spent:
                return Claims(messages, expired)
            expired += await self._end(spent)
            look = max(asked.limit, PAGE_ROWS)
        return Claims([], expired)

    async def _end(self, spent: list[Any]) -> list[Expired]:
        """What a claim was told of: leases that are over with no attempt left, and what has expired."""
        ended = await self._bury([row for row in spent if row["spent"] >= 0])
        return ended + (await self.lapse() if any(row["spent"] < 0 for row in spent) else [])

    async def lapse_all(self) -> int:
        """The same, until there is none; how many."""
        ended = 0
        while some := await self.lapse():
            ended += len(some)
        return ended

    async def lapse(self) -> list[Expired]:
        """End some of those that have expired and that nobody holds."""
        found = await self._pool.fetch(self._sql["lapse"], self._queue, PAGE_ROWS, queue=self._queue)
        return [Expired(str(id), attempts, "failed", LAPSED) for id, attempts in found]

    async def _claim(self, asked: _Claim, *, look: int) -> tuple[list[Claimed], list[Any]]:
        self._look_at_litter()
        ranges, whole = self.bounds.ranges()
        started = time.monotonic()
        found = await self._ask(asked, "claim", *ranges, look, asked.worker)
        took, text = time.monotonic() - started, f"{asked.token:x}"
        messages = in_order([rows.claimed(row, text, asked.lease) for row in found if row["spent"] is None])
        spent = [row for row in found if row["spent"] is not None] if len(messages) < len(found) else []
        if found:
            self._heard(found[0][10])
        self._note(messages, whole=whole, took=took)
        return messages, spent

    def _look_at_litter(self) -> None:
        """How many dead rows the table has, about once a second, concurrently with the claims."""
        bounds = self.bounds
        if time.monotonic() >= bounds.next_look:
            bounds.next_look = float("inf")
            self._looking = asyncio.create_task(self._litter())

    async def _litter(self) -> None:
        try:
            [(dead,)] = await self._pool.fetch(self._sql["litter"], queue=self._queue)
        except HoldfastError:
            dead = 0
        self.bounds.learn(int(dead or 0))

    async def _claim_dead(self, asked: _Claim) -> Claims:
        args = asked.limit, asked.lease, asked.token, self._queue, asked.worker
        found = await self._pool.fetch(self._sql["claim_dead"], *args, queue=self._queue)
        text = f"{asked.token:x}"
        return Claims(in_order([rows.claimed(row, text, asked.lease) for row in found]))

    async def _ask(self, asked: _Claim, name: str, *args: Any) -> list[Any]:
        """A claim whose answer was lost is taken back before it is repeated."""
        lost, sql = False, self._sql[name]
        said = self._queue, asked.limit, asked.lease, asked.token, *args

        async def step(connection: Any) -> list[Any]:
            nonlocal lost
            if lost:
                async with connection.transaction():
                    await connection.execute("SET LOCAL enable_seqscan = on")
                    await connection.execute(self._sql["give_back"], asked.token)
            lost = True
            return list(await connection.fetch(sql, *said))

        return await self._pool.run(step, queue=self._queue)

    async def _bury(self, spent: Sequence[Any]) -> list[Expired]:
        """Messages whose last lease is over end, unless somebody was faster."""
        entries = [(str(row[0]), row[1], row["spent"]) for row in spent]
        buried = await self._settler.end_expired(entries, EXPIRED)
        return [
            Expired(id, attempts, "dead" if verdict == "dead" else "failed", EXPIRED)
            for id, attempts, verdict in buried
        ]

    async def next_due(self, *, dead: bool) -> float | None:
        """Seconds until something becomes visible, as far as we know."""
        name = "next_due_dead" if dead else "next_due"
        seconds = (await self._pool.fetch(self._sql[name], queue=self._queue))[0][0]
        return None if seconds is None else float(seconds)


def in_order(messages: list[Claimed]) -> list[Claimed]:
    """Highest priority first, then oldest; the server mostly answers so, but does not promise it."""
    ids = [message.id for message in messages]
    if ids != sorted(ids) or len({message.priority for message in messages}) > 1:
        messages.sort(key=lambda message: (-message.priority, message.id))
    return messages


class Bounds:
    """Where to begin looking for messages when finished ones litter the index; one queue's, in one process.

    Deleted rows stay in the index until a vacuum may take them away; a transaction that is open elsewhere forbids that.
    Then every claim would walk over all that was finished since. A claim that found messages knows how far it came: the
    next one begins there, per priority. What may lie below - late commits, retries, leases that ran out - is looked for
    about once a second, from the start. While there is little litter, every claim begins at the start.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._low: dict[int, str] = {}
        self.littered = False  # whether beginning further on is worth it
        self._next_whole = 0.0
        self.next_look = clock() + LOOK_AGAIN_S  # when the litter should be counted again

    def learn(self, litter: int) -> None:
        """So many dead rows there are."""
        self.littered = litter >= LITTER_ROWS
        self.next_look = self._clock() + LOOK_AGAIN_S
        if not self.littered:
            self._low.clear()

    def reset(self) -> None:
        """Something came back that may lie anywhere."""
        self._next_whole = 0.0

    def ranges(self) -> tuple[Ranges, bool]:
        """Where to look now, and whether that is everywhere."""
        if not self.littered or not self._low or self._clock() >= self._next_whole:
            return EVERYTHING, True
        ranks = sorted(self._low)
        lows = [self._low[rank] for rank in ranks]
        return ([0, *ranks], [EVERYTHING[1][0], *lows], [*ranks, 256]), False

    def found(self, places: Sequence[tuple[int, str]], *, whole: bool, took: float) -> None:
        """A claim found these (rank, id), in this order, and took so long."""
        if not self.littered:
            return
        if whole:
            self._next_whole = self._clock() + max(LOOK_AGAIN_S, _SHARE * took)
            self._low.clear()
        for rank, id in places:
            if id > self._low.get(rank, ""):
                self._low[rank] = id
