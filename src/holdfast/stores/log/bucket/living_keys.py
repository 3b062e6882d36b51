"""Dedup keys that hold until their message ends, where a space has no transactions over several objects.

Keys lie together in some objects that are replaced only when unchanged, and never deleted: so a key that is taken and
one that is forgotten cannot be mixed up. Whoever wants a key that nobody holds writes the id of its message there, then
creates the message's block, then says that it is sure. An entry that is not sure is another's who is at it, or who has
stopped: after the repeat window nobody can create its block any more, and the messages tell whether it ever was.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from .... import ids
from ....errors import HoldfastError, MessageNotFound, Unavailable, UnknownOutcome
from ....ids import Ids
from ...living_keys import counts, replacing
from ...records import Change, Dedup, Enqueued, Envelope
from .. import damage, queues
from ..append import Call, blocks_of, hand_out
from ..calendar import SAME
from ..names import LIVING, due_of
from ..space import Buffer, Reading, Transaction, Unclear
from ..topics import work_topic
from .repeat import outlast

if TYPE_CHECKING:
    from .space import CloudSpace

_PARTS = (
    64  # objects for the keys of a queue: half as many, and processes meet twice as often; each is a read of upkeep
)
_LOOK_S = 0.1  # between two looks at a key that another is about to take


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """Who has a key; `sure`: the message was there."""

    id: str
    sure: bool = False


Part = dict[bytes, Entry]
_read_part = msgspec.msgpack.Decoder(Part).decode


class Holders(msgspec.Struct, frozen=True):
    """What this needs to know of messages, and does to them; the store's."""

    alive: Callable[[Sequence[str]], Awaitable[dict[str, str]]]  # the states of those that have not ended
    is_known: Callable[[str], Awaitable[bool]]
    change: Callable[[str, Change], Awaitable[bool]]
    set_aside: Callable[[], Awaitable[object]]  # what was written late
    added: Callable[[Sequence[str]], None]  # is told of every message, with its key if it is a delayed one


class LivingKeys:
    """Of one queue in one process; messages are added to one shard."""

    def __init__(
        self, space: CloudSpace, queue: str, shard: str, maker: Ids, holders: Holders, *, timeout: float
    ) -> None:
        self._space = space
        self._queue = queue
        self._shard = shard
        self._ids = maker
        self._holders = holders
        self._timeout = timeout

    async def append(self, message: Envelope, dedup: Dedup, *, replace: bool) -> Enqueued:
        """What became of it. Every look at a key is followed by a write only if the key is as it was seen."""
        hash, until = _hash(message.dedup_key or ""), time.monotonic() + self._timeout
        while True:
            entry = await self._space.transact(partial(self._entry, hash=hash), deadline=self._timeout)
            state = await self._state(entry, until)
            if state == "busy":
                await asyncio.sleep(_LOOK_S)
            elif entry is None or not counts(state, dedup):
                again = partial(self._again, message, dedup, replace)
                if (id := await self._add(message, hash, entry, again)) is not None:
                    return Enqueued(id, True)
            elif not replace or state == "processing":
                return Enqueued(entry.id, False)
            elif await self._replaced(entry.id, message):
                return Enqueued(entry.id, False, True)
            if time.monotonic() > until:
                raise Unavailable(f"{self._queue}: the dedup key changed too often; nothing was done")

    async def _state(self, entry: Entry | None, until: float) -> str:
        """`busy`: another is about to take the key; `gone`: nobody has it."""
        if entry is None:
            return "gone"
        alive = await self._holders.alive([entry.id])
        if entry.id in alive or entry.sure:
            return alive.get(entry.id, "gone")
        born = ids.born_at(ids.number(entry.id) or 0)
        if self._space.clock() < born + self._space.window and time.monotonic() < until:
            return "gone" if await self._holders.is_known(entry.id) else "busy"
        await outlast(self._space, born)
        await self._holders.set_aside()  # else a process that knows a later epoch could absorb it beside a new one
        return (await self._holders.alive([entry.id])).get(entry.id, "gone")

    async def _replaced(self, id: str, message: Envelope) -> bool:
        with contextlib.suppress(MessageNotFound):
            return await self._holders.change(id, replacing(message))
        return False

    async def _add(
        self, message: Envelope, hash: bytes, seen: Entry | None, again: Callable[[], Awaitable[list[str]]]
    ) -> str | None:
        """The id; None: somebody else has taken the key meanwhile."""
        now, calls = self._space.clock(), [Call([message])]
        blocks = blocks_of(calls, self._ids, now, SAME)
        hand_out(calls, blocks, now, SAME)
        [id] = calls[0].ids
        unknown = partial(UnknownOutcome, ids=[id], retry=again)
        try:
            if not await self._write(hash, seen, Entry(id)):
                return None
            create = partial(self._create, key=blocks[0].key, data=blocks[0].data)
            await self._space.transact(create, deadline=self._timeout)
            self._holders.added([blocks[0].key] if due_of(blocks[0].key) else [])
        except Unclear as error:
            raise unknown(str(error)) from error
        with contextlib.suppress(HoldfastError):  # whoever comes next can tell as we could, only later
            await self._write(hash, Entry(id), Entry(id, True))
        return id

    async def _again(self, message: Envelope, dedup: Dedup, replace: bool) -> list[str]:
        return [(await self.append(message, dedup, replace=replace)).id]

    def _create(self, tx: Transaction, *, key: str, data: Buffer) -> None:
        config = queues.read(tx, self._queue)
        tx.create(queues.address(self._shard).root(config) + key, data)
        tx.signal(work_topic(self._shard))

    # What is stored.

    async def _write(self, hash: bytes, seen: Entry | None, wanted: Entry | None) -> bool:
        """Whether the key was as it was seen, and is now as wanted."""
        return await self._space.transact(
            partial(self._put, hash=hash, seen=seen, wanted=wanted), deadline=self._timeout
        )

    def _entry(self, tx: Transaction, *, hash: bytes) -> Entry | None:
        return self._part(tx, self._name(tx, hash[0] % _PARTS)).get(hash)

    def _put(self, tx: Transaction, *, hash: bytes, seen: Entry | None, wanted: Entry | None) -> bool:
        name = self._name(tx, hash[0] % _PARTS)
        part = self._part(tx, name)
        if part.get(hash) != seen:
            return False
        if wanted is None:
            del part[hash]
        else:
            part[hash] = wanted
        tx.put(name, msgspec.msgpack.encode(part), proof=partial(_shows, hash=hash, wanted=wanted))
        return True

    def _part(self, view: Reading, name: str) -> Part:
        found = view.get(name)
        return {} if found is None else damage.read(name, _read_part, found.data)

    def _name(self, view: Reading, number: int) -> str:
        root = queues.address(self._queue).root(queues.read(view, self._queue))
        return f"{root}{LIVING}{number:02x}"

    async def forget_ended(self) -> int:
        """Keys whose message has ended; how many."""
        forgotten = 0
        for number in await self._space.read(self._numbers, deadline=self._timeout):
            look: Callable[[Reading], Part] = partial(self._part_of, number=number)
            part = await self._space.read(look, deadline=self._timeout)
            sure = {hash: entry for hash, entry in part.items() if entry.sure}
            alive = await self._holders.alive([entry.id for entry in sure.values()]) if sure else {}
            for hash, entry in sure.items():
                if entry.id not in alive:
                    forgotten += await self._write(hash, entry, None)
        return forgotten

    def _numbers(self, view: Reading) -> list[int]:
        prefix = self._name(view, 0)[:-2]
        return [int(key[len(prefix) :], 16) for key in view.list(prefix, limit=_PARTS)]

    def _part_of(self, view: Reading, *, number: int) -> Part:
        return self._part(view, self._name(view, number))


def _hash(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=16).digest()


def _shows(data: bytes | None, *, hash: bytes, wanted: Entry | None) -> bool:
    """Whether the object shows that our write was among its versions: ids are ours alone."""
    if data is None or wanted is None:
        return False
    found = _read_part(data).get(hash)
    return found is not None and found.id == wanted.id and found.sure >= wanted.sure
