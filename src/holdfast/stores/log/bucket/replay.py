"""Replay from the archive where a space has no transactions: a promise per block of originals says what was copied."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from .... import ids
from ....ids import Ids
from ...records import Stored
from .. import flush_rows, queues
from ..flush_rows import Leaving
from ..space import Transaction
from .promises import Promise, Promises

if TYPE_CHECKING:
    from .space import CloudSpace


class Replays:
    """One per queue and process. A promise says: which places were copied by now, by whom last, and one new id."""

    def __init__(
        self,
        space: CloudSpace,
        queue: str,
        maker: Ids,
        promises: Promises,
        *,
        timeout: float,
        is_there: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._space = space
        self._queue = queue
        self._ids = maker
        self._promises = promises
        self._timeout = timeout
        self._is_there = is_there

    async def replay(self, found: Sequence[tuple[Stored, int]]) -> int:
        """Copy archived messages back; how many were not copied before."""
        config = await self._space.read(lambda view: queues.read(view, self._queue), deadline=self._timeout)
        root = queues.address(self._queue).root(config)
        originals: dict[str, list[tuple[Stored, int]]] = {}
        for each in {each[0].id: each for each in found}.values():
            copy = ids.derived(ids.number(each[0].id) or 0, "replay")
            originals.setdefault(f"{root}replayed/{ids.block_of(copy):032x}", []).append(each)
        return sum([await self._replay_block(root, name, some) for name, some in originals.items()])

    async def _replay_block(self, root: str, name: str, originals: list[tuple[Stored, int]]) -> int:
        added = 0
        while True:
            me = os.urandom(8).hex()
            decide = partial(self._promise, root=root, originals=originals, me=me)
            _, by, count, _ = (await self._promises.keep(name, decide, self._was_kept)).said
            if by != me:
                return added
            added += int(count)
            if count == len(originals):
                return added

    async def _was_kept(self, promise: Promise) -> bool:
        return await self._is_there(promise.said[3])

    def _promise(
        self, tx: Transaction, holds: Promise | None, *, root: str, originals: list[tuple[Stored, int]], me: str
    ) -> Promise | None:
        """A block of those that were not copied before, as many as one block takes; None: all were."""
        done = int(holds.said[0], 16) if holds is not None else 0
        copies = [flush_rows.replayed(each, tx.now, own) for each, own in originals]
        new = [each for each in copies if not done >> _place(each) & 1]
        if not new:
            return None
        base = self._ids.block(tx.now, carried=True)
        while True:
            blocks = flush_rows.fresh_blocks(list(new), iter([f"{base + (k << 20):032x}" for k in range(len(new))]))
            if len(blocks) == 1:
                break
            new = new[: len(new) // 2]
        for each in new:
            done |= 1 << _place(each)
        key, data = blocks[0]
        return Promise(tx.now, [f"{done:x}", me, len(new), new[0].stored.id], root + key, bytes(data))


def _place(copy: Leaving) -> int:
    return ids.place_of(ids.number(copy.stored.id) or 0)
