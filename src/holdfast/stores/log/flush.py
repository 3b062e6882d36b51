"""Settled messages leave the head: freeze → write → drop.

One transaction freezes the set and its names; exactly those rows are written; one transaction shows the files and
blocks and drops the set. Whoever finds a frozen set finishes it, with the same names and the same rows, so the archive
never holds a message twice and never misses one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from ...config import QueueOptions
from ...errors import Damaged, Unavailable
from ...ids import Ids
from ..base import DEAD
from . import arrow, damage, flush_rows, names, queues
from .cache import BlockCache
from .commit import Committer
from .edit import Seen, Session
from .flush_rows import Leaving, Moved, Written
from .head.state import Drop, Expire, Freeze, Rules, Settled, Waiting
from .space import Reading, Space, Transaction
from .topics import work_topic

if TYPE_CHECKING:
    import pyarrow as pa

_PAUSE = 0.05
_LOOKS = 10  # at a frozen set with blocks that are not there; each may find one more
_TRIES = 200
TAKEOVER = 5.0  # seconds after which somebody else's flush counts as abandoned
Gathered: TypeAlias = tuple[Seen, list[Leaving], list["pa.Table"]]


class Flusher:
    """One per log and process."""

    def __init__(
        self,
        space: Space,
        committer: Committer,
        cache: BlockCache,
        maker: Ids,
        *,
        timeout: float,
        step: Callable[[str], Awaitable[None]] | None,
    ) -> None:
        self._space = space
        self._committer = committer
        self._cache = cache
        self._ids = maker
        self._timeout = timeout
        self._step = step
        self._lock = asyncio.Lock()
        self._begun = ""  # what this process has begun to write
        self.waits = False  # somebody else was at it at the last try
        self._missing: set[str] = set()  # keys that were not there at the last look
        self._damaged: set[str] = set()  # keys of blocks that could not be read

    async def flush(self) -> bool:
        """Write what has gathered, and first what somebody left frozen; False: there was nothing to do."""
        return await self._flush() in ("some", "all")

    async def _flush(self) -> Literal["nothing", "waits", "some", "all"]:
        """ "all": everything that had ended when this began is written."""
        async with self._lock:
            flush = f"{self._ids.block(self._space.clock()):032x}"
            answer = await self._committer.ask(Freeze(flush))
            frozen = answer.head.frozen
            self.waits = False
            if frozen is None:
                return "nothing"
            self.waits = frozen.flush not in (flush, self._begun) and answer.now - frozen.since < TAKEOVER
            if self.waits:
                return "waits"
            self._begun = frozen.flush  # if it does not succeed now, the next try need not wait
            await self._reach("flush.frozen")
            if frozen.flush == flush:
                await self._finish(flush, self._committer.seen(answer))
            else:  # somebody left it
                self._begun = await self._committer.window.flush_name(frozen, flush, partial(self._keys, frozen.flush))
                await self._finish(self._begun, None)
            await asyncio.to_thread(arrow.release)  # not before: the rows, and what was made of them, are gone by now
            return "all" if frozen.flush == flush and not answer.head.settled else "some"

    def _keys(self, flush: str, view: Reading) -> tuple[list[str], Rules] | None:
        """What a frozen set is written as, and the rules it is under; None: it is no longer there."""
        gathered = self._gather(view, flush, None)
        if gathered is None:
            return None
        return flush_rows.encode(self._committer.address, *gathered).keys(view), gathered[0].rules

    async def _reach(self, name: str) -> None:
        if self._step is not None:
            await self._step(name)

    async def thaw(self) -> None:
        """Return when nothing is frozen: what is being written is out of reach of those who change messages."""
        if (await self._committer.ask(Expire())).head.frozen is not None:
            await self.flush_all()

    async def flush_all(self) -> None:
        """Return when everything that had ended is written, by us or by whoever is at it.

        What ends meanwhile is not waited for: where a queue is settled without pause, that has no end.
        """
        for _ in range(_TRIES):
            done = await self._flush()
            if done in ("nothing", "all"):
                return
            if done == "waits":
                await asyncio.sleep(_PAUSE)
        raise Unavailable(f"the flush of {self._committer.address.text} is not done after {TAKEOVER} seconds")

    async def _finish(self, flush: str, known: Seen | None) -> None:
        """Rows come from a head that was read, or written for certain, and holds the set."""
        gathered = await self._gathered(flush, known)
        if gathered is None:
            return
        written = await asyncio.to_thread(flush_rows.encode, self._committer.address, *gathered)
        if written.archive is not None:
            await self._space.write_file(*written.archive)
        await self._reach("flush.written")
        if written.moved is not None:
            await self._space.transact(partial(self._make, queue=written.moved.queue), deadline=self._timeout)
        await self._committer.edit(lambda session: self._show(session, flush, written))
        await self._reach("flush.dropped")

    async def _gathered(self, flush: str, known: Seen | None) -> Gathered | None:
        """As `_gather`, after as many looks as it takes to tell a missing block from an old view."""
        try:
            for _ in range(_LOOKS):
                look = partial(self._gather, flush=flush, known=known)
                gathered = await self._space.read(look, deadline=self._timeout)
                if gathered is not None or not self._missing:
                    return gathered
                known = None  # a second look is at the head as it is then
            return None
        finally:
            self._missing.clear()

    def _gather(self, view: Reading, flush: str, known: Seen | None) -> Gathered | None:
        """The rows of a frozen set in id order, and the groups that leave as columns; None: it is no longer there."""
        seen = known or self._committer.look(view)
        frozen = seen.head.frozen
        if frozen is None or frozen.flush != flush:
            return None
        found: list[Leaving] = []
        wholes: list[pa.Table] = []
        blocks: dict[str, bytes] = {}
        groups: list[Settled | Waiting] = [*frozen.settled, *frozen.waiting]
        for group in groups:
            block = seen.head.blocks[group.block]
            key = seen.root + block.key
            try:
                if (
                    isinstance(group, Settled)
                    and flush_rows.may_leave_whole(group, seen.head)
                    and self._cache.get(key) is None
                ):
                    data = blocks.get(key) or _bytes(view, key)
                    if data is not None:
                        blocks[key] = data
                        wholes.append(flush_rows.whole(group, block, data, seen, view, self._committer.address.queue))
                        continue
                loaded = self._cache.load(view, key)
                if loaded is None and self._is_missing(key):
                    loaded = self._cache.substitute(damage.missing(key))
                    self._damaged.add(key)
            except Damaged as error:
                loaded = self._cache.substitute(error, twice=seen.window.reads_twice)
                self._damaged.add(key)
            if loaded is None:
                return None  # my view is old: somebody has finished this flush
            found += flush_rows.rows_of(group, block, loaded, seen, view)
        found.sort(key=lambda row: row.stored.id)
        return seen, found, wholes

    def _is_missing(self, key: str) -> bool:
        """Not there although its rows are still frozen in a later look: it is no old view, the block is gone."""
        before = key in self._missing
        self._missing.add(key)
        return before

    def _show(self, session: Session, flush: str, written: Written) -> None:
        """One transaction: files and blocks appear as their rows go, unless somebody else has done it."""
        if not session.do([Drop(flush)])[0]:
            return
        tx = session.tx
        if written.archive is not None:
            tx.adopt(written.archive[0])
            session.seen.window.archived(session, written.archive[0])
        for key, data in written.blocks:
            if names.is_of_flush(key, flush):  # others were written when the set had an earlier name
                tx.create(key, data)
        for key in written.results:
            tx.delete(session.seen.root + key)
        self._keep_damaged(session)
        if written.moved is not None:
            self._move(tx, written.moved, flush)
        tx.signal(work_topic(self._committer.address.queue + DEAD))
        if self._committer.address.dead:
            tx.signal(work_topic(self._committer.address.queue))  # replayed letters are there

    def _keep_damaged(self, session: Session) -> None:
        """What is left of a block that goes: somebody may still make something of its bytes."""
        buried = set(session.head.beyond.graveyard).difference(session.seen.head.beyond.graveyard)
        for key in (*session.finished, *sorted(buried)):
            full = session.seen.root + key
            if full in self._damaged and (left := damage.left(session.tx, full)) is not None:
                session.tx.create(session.seen.root + damage.KEPT + key, left)

    def _make(self, tx: Transaction, queue: str) -> None:
        """The queue that dead letters are moved to, unless it is there."""
        if tx.get(names.config_key(queue)) is None:
            heads = not self._space.request_costs
            queues.create(tx, queue, QueueOptions(), store_id=self._space.store_id, heads=heads)

    def _move(self, tx: Transaction, moved: Moved, flush: str) -> None:
        """Dead letters that belong to another queue, which was made before if it was not there."""
        root = queues.address(moved.queue).root(queues.read(tx, moved.queue))
        for key, data in moved.blocks:
            if names.is_of_flush(key, flush):
                tx.create(root + key, data)
        tx.signal(work_topic(moved.queue))


def _bytes(view: Reading, key: str) -> bytes | None:
    found = view.get(key)
    return found.data if found else None
