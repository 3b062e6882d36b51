"""What was set aside comes back: by itself where a later epoch lets it pass, else by `holdfast recover`; exactly once.

Messages come back under their ids, in a block with a fresh birth, promised by the name of the block they were in. Ids
that are alive, archived or dead letters stay out: then the late block was only a repeat of what had arrived.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ... import ids
from ...errors import Damaged
from ...ids import Ids
from ..base import Recovered
from . import archive, damage, names, rows
from .finder import Finder
from .log import Log
from .lookup import Glance
from .names import BlockName
from .promises import Promise, Promises
from .quarantine import passes
from .rows import Rows
from .space import Reading, Space, Stale, Transaction
from .topics import work_topic

MARKS = "recovered/"
_PAGE = 1000


Known = Callable[[set[str]], Awaitable[set[str]]]  # which of these ids (32 hex digits) are messages of the queue


def known_among(finder: Finder, view: Reading, wanted: set[str]) -> set[str]:
    """Those that the queue, its dead letters or its archive have. Stale: a block has left in the middle of the look."""
    lives, dead = finder.both(view)
    found = {id for glance in (*lives, *dead) for id in _alive(glance, wanted)}
    first, last = min(wanted), max(wanted)
    for file in finder.files(view, *lives):
        stored = view.get(file.key) if file.first <= last and file.last >= first else None
        if stored is not None:
            found |= wanted & {names.plain(each.id) for each in archive.read(file.key, stored.data)[0]}
    return found


def _alive(glance: Glance, wanted: set[str]) -> set[str]:
    first, last = min(wanted), max(wanted)
    found: set[str] = set()
    for block in glance.blocks():
        if block.name.lowest > last or block.name.highest < first:
            continue
        loaded = glance.load(block)
        if loaded is None:
            raise Stale(block.key)
        own = ids_of(block.key, loaded)
        found |= {id for place, id in enumerate(own) if id in wanted and glance.state(block, place) is not None}
    return found


def ids_of(key: str, loaded: Rows) -> list[str]:
    """The ids of a block's messages, 32 hex digits each."""
    return loaded.id or [f"{names.block_number(key) + place:032x}" for place in range(len(loaded))]


class Recovery:
    """Of one log."""

    def __init__(self, space: Space, log: Log, maker: Ids, known: Known, *, marks: str, timeout: float) -> None:
        self._space = space
        self._log = log
        self._marks = marks  # the root below which promises are made
        self._ids = maker
        self._known = known
        self._promises = Promises(space, timeout=timeout, topic=work_topic(log.address.text))

    async def bring_back(self, *, epoch: float | None = None, delete: bool = False) -> Recovered:
        """Everything, or what passes by this epoch; `delete`: throw it away instead."""
        done, root = Recovered(), self._log.committer.root
        for copy in await self._space.read(partial(_copies, root=root)):
            key, made = names.parse_late(copy)
            if epoch is not None and not passes(key, made, epoch):
                continue
            if delete:
                done += Recovered(deleted=names.parse_block(key).count)
            else:
                one = await self._bring_back(root, copy, key)
                done += one
                if not one.recovered and not one.known:
                    continue
            await self._space.remove([root + copy])
        return done

    async def _bring_back(self, root: str, copy: str, key: str) -> Recovered:
        found = await self._space.read(lambda view: view.get(root + copy))
        if found is None:
            return Recovered()
        try:
            loaded = damage.read_block(root + key, rows.decode, found.data)
        except Damaged as error:
            damage.logger.error("%s", error)
            return Recovered(damaged=1)
        own = ids_of(key, loaded)
        try:
            known = await self._known(set(own))
        except Stale:
            return Recovered()  # the next time
        new = [place for place, id in enumerate(own) if id not in known]
        count = await self._keep_promise(root, key, chosen(key, loaded, new)) if new else 0
        return Recovered(count, len(own) - count)

    async def _keep_promise(self, root: str, key: str, some: Rows) -> int:
        me = os.urandom(8).hex()
        name = f"{self._marks}{MARKS}{names.block_number(key):032x}"
        decide = partial(self._promise, root=root, key=key, some=some, me=me)
        promise = await self._promises.keep(name, decide, self._was_kept)
        return len(some) if promise.said[0] == me else 0

    def _promise(
        self, tx: Transaction, holds: Promise | None, *, root: str, key: str, some: Rows, me: str
    ) -> Promise | None:
        if holds is not None:
            return None
        assert some.id is not None
        old = names.parse_block(key)
        number = self._ids.block(tx.now, old.priority, carried=True)
        kept = (old.priority, old.max_attempts, old.attempts, old.crashed)
        name = BlockName(f"{number:032x}", len(some), *kept, min(some.id), max(some.id))
        # Under `later/`: there an id is looked for that no block's name shows. Long due is due by anybody's clock.
        due = names.due_of(key) or ids.born_at(names.block_number(key))
        return Promise(tx.now, [me, some.id[0]], root + name.later_key(due), bytes(rows.encode(some)))

    async def _was_kept(self, promise: Promise) -> bool:
        return bool(await self._known({promise.said[1]}))


def chosen(key: str, loaded: Rows, places: list[int]) -> Rows:
    """Some of the rows, with the ids and times that their block's name told."""
    born = ids.born_at(names.block_number(key))

    def some(column: Any) -> Any:
        return [column[place] for place in places] if isinstance(column, list) else column

    columns = {name: some(getattr(loaded, name)) for name in Rows.__struct_fields__}
    if loaded.id is None:
        columns["id"] = some(ids_of(key, loaded))
        columns["enqueued_at"] = [born] * len(places)
    return Rows(**columns)


def _copies(view: Reading, root: str) -> list[str]:
    """All copies under `late/`, relative to the log."""
    copies: list[str] = []
    after = ""
    while page := view.list(root + names.LATE, after=after, limit=_PAGE):
        after = page[-1]
        copies += [key[len(root) :] for key in page]
    return copies
