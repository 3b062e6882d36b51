"""What was set aside comes back: by itself where a later epoch lets it pass, else by `holdfast recover`; exactly once.

Messages come back under their ids, in a block with a fresh birth, promised by the name of the block they were in. Ids
that are alive, archived or dead letters stay out: then the late block was only a repeat of what had arrived.
"""

from __future__ import annotations

import asyncio
import os
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

from .... import ids
from ....errors import Damaged
from ....ids import Ids
from ...base import Recovered
from .. import archive, damage, names, rows
from ..lookup import Glance
from ..names import BlockName
from ..partition import Log
from ..queue_view import Finder
from ..rows import Rows
from ..space import Reading, Stale, Transaction
from ..topics import work_topic
from .promises import Promise, Promises
from .quarantine import passes

if TYPE_CHECKING:
    from .space import CloudSpace

MARKS = "recovered/"
_PAGE = 1000
_TOGETHER = 16  # blocks that come back at the same time: each can be some MiB large
T = TypeVar("T")
OnProgress = Callable[[int], None]  # with how many messages more are done
Known = Callable[[set[str]], Awaitable[set[str]]]  # which of these ids (32 hex digits) are messages of the queue


def known_among(finder: Finder, view: Reading, wanted: set[str]) -> set[str]:
    """Those that the queue, its dead letters or its archive have. Stale: a block has left in the middle of the look."""
    lives, dead = finder.both(view)
    between = partial(_has_between, sorted(wanted))
    found = {id for glance in (*lives, *dead) for id in _alive(glance, wanted, between)}
    for file in finder.files(view, *lives):
        stored = view.get(file.key) if between(file.first, file.last) else None
        if stored is not None:
            found |= wanted & {names.plain(each.id) for each in archive.read(file.key, stored.data)[0]}
    return found


def _has_between(wanted: list[str], first: str, last: str) -> bool:
    """Whether an object may have one of these, by the ids that its name shows."""
    place = bisect_left(wanted, first)
    return place < len(wanted) and wanted[place] <= last


def _alive(glance: Glance, wanted: set[str], between: Callable[[str, str], bool]) -> set[str]:
    found: set[str] = set()
    for block in glance.blocks():
        if not between(block.name.lowest, block.name.highest):
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


class Copy(NamedTuple):
    """An object under `late/`."""

    name: str
    block: str  # the key it had, relative to the log


class Recovery:
    """Of one log."""

    def __init__(self, space: CloudSpace, log: Log, maker: Ids, known: Known, *, marks: str, timeout: float) -> None:
        self._space = space
        self._root = log.committer.root
        self._marks = marks  # the root below which promises are made
        self._ids = maker
        self._known = known
        self._promises = Promises(space, timeout=timeout, topic=work_topic(log.address.text))

    async def bring_back(
        self, *, epoch: float | None = None, delete: bool = False, on_progress: OnProgress | None = None
    ) -> Recovered:
        """Everything, or what passes by this epoch; `delete`: throw it away instead."""
        done, copies = Recovered(), list[Copy]()
        for name in await self._space.read(partial(_names, root=self._root)):
            parsed = names.parse_late(name)
            if parsed is None:
                damage.logger.error("%s is no block that was set aside: it is left alone", self._root + name)
                done += Recovered(damaged=1)
            elif epoch is None or passes(*parsed, epoch):
                copies.append(Copy(self._root + name, parsed[0]))
        for start in range(0, len(copies), _TOGETHER):
            some = copies[start : start + _TOGETHER]
            one = await (self._delete(some) if delete else self._bring_back(some))
            done += one
            if on_progress is not None:
                on_progress(one.recovered + one.known + one.deleted)
        return done

    async def _delete(self, copies: list[Copy]) -> Recovered:
        await self._space.remove([copy.name for copy in copies])
        return Recovered(deleted=sum(names.parse_block(copy.block).count for copy in copies))

    async def _bring_back(self, copies: list[Copy]) -> Recovered:
        """Some together, after one look at the queue: what two of them hold comes back with the first."""
        read = await _all_of(self._load(copy) for copy in copies)
        blocks = {copy: loaded for copy, loaded in zip(copies, read, strict=True) if isinstance(loaded, Rows)}
        damaged = read.count("damaged")
        try:
            known = await self._known({id for copy in blocks for id in ids_of(copy.block, blocks[copy])})
        except Stale:
            return Recovered(damaged=damaged)  # the next time
        promises, count = [], 0
        for copy, loaded in blocks.items():
            own = ids_of(copy.block, loaded)
            count += len(own)
            new = [place for place, id in enumerate(own) if id not in known]
            if new:
                known.update(own)
                promises.append(self._keep_promise(copy.block, chosen(copy.block, loaded, new)))
        recovered = sum(await _all_of(promises))
        await self._space.remove([copy.name for copy in blocks])
        return Recovered(recovered, count - recovered, damaged=damaged)

    async def _load(self, copy: Copy) -> Rows | Literal["gone", "damaged"]:
        found = await self._space.read(lambda view: view.get(copy.name))
        if found is None:
            return "gone"
        try:
            return damage.read_block(self._root + copy.block, rows.decode, found.data)
        except Damaged as error:
            damage.logger.error("%s", error)
            return "damaged"

    async def _keep_promise(self, key: str, some: Rows) -> int:
        me = os.urandom(8).hex()
        name = f"{self._marks}{MARKS}{names.block_number(key):032x}"
        decide = partial(self._promise, key=key, some=some, me=me)
        promise = await self._promises.keep(name, decide, self._was_kept)
        return len(some) if promise.said[0] == me else 0

    def _promise(self, tx: Transaction, holds: Promise | None, *, key: str, some: Rows, me: str) -> Promise | None:
        if holds is not None:
            return None
        assert some.id is not None
        old = names.parse_block(key)
        number = self._ids.block(tx.now, old.priority, carried=True)
        kept = (old.priority, old.max_attempts, old.attempts, old.crashed)
        name = BlockName(f"{number:032x}", len(some), *kept, min(some.id), max(some.id), old.expires)
        # Under `later/`: there an id is looked for that no block's name shows. Long due is due by anybody's clock.
        due = names.due_of(key) or ids.born_at(names.block_number(key))
        return Promise(tx.now, [me, some.id[0]], self._root + name.later_key(due), bytes(rows.encode(some)))

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


def _names(view: Reading, root: str) -> list[str]:
    """Everything under `late/`, relative to the log."""
    found: list[str] = []
    after = ""
    while page := view.list(root + names.LATE, after=after, limit=_PAGE):
        after = page[-1]
        found += [key[len(root) :] for key in page]
    return found


async def _all_of(calls: Iterable[Awaitable[T]]) -> list[T]:
    """What they answer, at the same time; an error is raised when none is under way any more."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return cast(list[T], answers)
