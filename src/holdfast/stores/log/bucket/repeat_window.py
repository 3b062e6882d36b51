"""A partition on a bucket: a write can be repeated or arrive late, and every request is dear.

What a claim gives is read beside the replacement of the head, not before it. Callers that were answered together are
waited for, so that what they ask next shares one replacement.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from ....errors import HoldfastError, StoreError, Unavailable
from ... import formats
from .. import archive_index, bundles, damage, flush_rows, intake, letters, names, queues
from ..append import Call
from ..head import codec, repeat
from ..head.state import (
    Absorb,
    Block,
    Claim,
    Expire,
    Frozen,
    Head,
    Intent,
    Purge,
    Refreeze,
    Result,
    Rules,
)
from ..intake import Absorbable, Survey
from ..queues import Config
from ..repeat_window import Asked, Home, Proof, WrittenKeys
from ..rows import Rows
from ..space import Reading, Transaction
from ..staging import Staging
from . import sharding
from .append import Appends
from .graveyard import Undertaker
from .intake import absorbable_late, look_ahead
from .listing import Late
from .orphans import sweep
from .quarantine import Quarantine
from .staging import StagedApart
from .view import bucket_view

if TYPE_CHECKING:
    from ..commit import Committer
    from ..edit import Seen, Session
    from ..lookup import Glance
    from ..partition import Log
    from .space import CloudSpace

_LEAST_TIME = 8.0  # seconds of a window in which a flush is written for sure
_GATHER_PART = 0.06  # of a replacement: how long the next one waits for callers that were answered together
_READ_BESIDE_LOST = 1  # refusals after which blocks are read when they are ours, not beside the replacement


class Window:
    """See `RepeatWindow`."""

    has_bundles = True
    reads_twice = True
    closing_s = queues.CLOSING
    merge_after_s = 3600.0

    def __init__(self, space: CloudSpace, home: Home) -> None:
        self.late = Late(space.window)
        self.appends = Appends(space, home, added=self.late.unlist, set_aside=lambda: self.quarantine.tend())
        self._space = space
        self._address = home.address
        self._cache = home.cache
        self._timeout = home.timeout
        self._looking: asyncio.Future[None] | None = None
        self._no_list_under_way = threading.Event()
        self._no_list_under_way.set()

    def serve(self, committer: Committer) -> None:
        self._committer = committer
        self.staging: Staging = StagedApart(self._space, committer, self._cache)
        self.undertaker = Undertaker(self._space, committer, self.late)
        self.quarantine = Quarantine(self._space, committer, self._cache, self.late)

    def token(self) -> str:
        return sharding.token(self.late.token(), self._address.shard)

    def rules(self, rules: Rules, now: float) -> Rules:
        return replace(self.late.rules(rules), epoch=self._space.epoch, now=now)

    def append(self, calls: list[Call]) -> asyncio.Future[None] | None:
        return asyncio.ensure_future(self.appends.write(calls))

    async def replay_archived(self, queue: str, found: Sequence[letters.Original]) -> int:
        return await self.appends.replays.replay(found)

    # When to commit.

    def gather_s(self) -> float | None:
        return _GATHER_PART * self.late.pace.trip_s

    def begins(self, waiting: Sequence[Asked]) -> None:
        self.late.begun_at = time.monotonic()
        if self.late.is_list_due(_demand(waiting)):
            self._list_meanwhile()

    def _list_meanwhile(self) -> None:
        if self._looking is None:
            self._no_list_under_way.clear()
            root = self._committer.root
            looking = partial(self._look_ahead, root=root, head=self._committer.stored(root))
            self._looking = asyncio.ensure_future(self._space.read(looking, deadline=self._timeout))
            self._looking.add_done_callback(self._looked)

    def _look_ahead(self, view: Reading, *, root: str, head: Head) -> None:
        """List for the claims that will follow, while the head is replaced."""
        additions, config = self.late.additions, names.config_key(self._address.queue)
        try:
            self.late.listed(look_ahead(view, config, root, head, self.late.demand), additions)
        finally:
            self._no_list_under_way.set()

    def _looked(self, looking: asyncio.Future[None]) -> None:
        self._looking = None
        self._no_list_under_way.set()
        if not looking.cancelled():
            looking.exception()  # whoever needs a list asks again

    # What runs inside the transaction.

    def intake(self, survey: Survey, tx: Transaction, demand: int) -> Absorbable:
        """A head that others replace too is read first after a pause, or the replacement would be refused.

        Not where the step runs again: it uses the head that was looked through for its earlier attempts.
        """
        view = bucket_view(tx)
        view.afterwards(self.late.pace.swapped)
        if self.late.pace.is_outdated and not view.is_fresh:
            view.renew(self._committer.root + "head")
        if not demand:
            return intake.unlisted(survey, tx)
        if self.late.listing() is None:  # one that is on its way is sooner here than another
            self._no_list_under_way.wait(2 * self.late.pace.trip_s)
        return absorbable_late(survey, tx, demand, self.late)

    def tidying(self, head: Head) -> list[Intent]:
        return self.late.tidying(head)

    def sign(self, session: Session) -> Proof | None:
        session.head, attempt = self.late.sign(session.head)
        return partial(self.late.is_signed, attempt=attempt)

    def given(self, session: Session, results: Sequence[Result]) -> None:
        given = [each.block for result in results if isinstance(result, list) for each in result]
        keys = map(session.key_of, dict.fromkeys(given))
        view, missing = bucket_view(session.tx), [key for key in keys if self._cache.get(key) is None]
        if view.refusals <= _READ_BESIDE_LOST:
            view.fetch(missing)
        elif missing:  # most likely somebody is faster and takes these: they are read when they are ours
            view.afterwards(partial(view.fetch, missing))

    def load(self, session: Session, request: Asked, numbers: set[int]) -> dict[int, tuple[Block, Rows]]:
        """Filled when the head is replaced: a block in it is there, whoever finishes what."""
        blocks: dict[int, tuple[Block, Rows]] = {}
        if numbers:
            bucket_view(session.tx).afterwards(partial(self._fill, session, request, numbers, blocks))
        return blocks

    @staticmethod
    def _fill(session: Session, request: Asked, numbers: set[int], blocks: dict[int, tuple[Block, Rows]]) -> None:
        try:
            blocks.update((no, session.block(no)) for no in numbers)
        except HoldfastError as error:
            request.failure = error
        except Exception as error:  # noqa: BLE001  whatever a block is, the others of this commit have their answers
            request.failure = StoreError(f"a block of {session.seen.root} cannot be read: {type(error).__name__}")
            request.failure.__cause__ = error

    # Afterwards.

    async def flush_name(self, frozen: Frozen, fresh: str, keys: WrittenKeys) -> str:
        """Blocks that come late are never absorbed.

        So a set whose name is too old gets a fresh one, for the blocks that nobody has written under the old.
        """
        age = self._space.clock() - frozen.since
        if age < self._space.window - _LEAST_TIME:
            return frozen.flush
        await asyncio.sleep(max(0.0, self._space.window + repeat.MARGIN - age))
        await self._space.identify()  # dates are judged by the epoch of those who absorb the blocks
        found = await self._space.read(partial(_written, keys=keys), deadline=self._timeout)
        if found is None:
            return frozen.flush
        made, late = found
        if late:  # a later epoch might let them pass, beside the blocks that are written for them now
            await self._space.remove(late)
        await self._committer.ask(Refreeze(frozen.flush, fresh, flush_rows.places(frozen, made)))
        return fresh

    def archived(self, session: Session, key: str) -> None:
        if self._space.format >= formats.ARCHIVE_INDEX:
            beyond = session.head.beyond
            session.head.beyond = replace(beyond, archived=archive_index.added(beyond.archived, key))

    def committed(self, head: Head) -> None:
        self.undertaker.look(head)

    def purge(self, session: Session, glance: Glance) -> int:
        """Nothing is deleted: blocks written before an instant are gone by that, the youngest are absorbed and dropped.

        Dates are whole seconds, so a block of the last seconds may be younger than it looks.
        """
        before = math.floor(session.tx.now) - repeat.MARGIN
        root, dropped, young = session.seen.root, 0, list[str]()
        for block in glance.blocks():
            made = session.tx.made(root + block.key)
            if not block.no and made is not None and max(made, names.birth_of(block.key) or 0.0) < before:
                dropped += block.name.count
            elif not block.no:
                young.append(block.key)
        spent = [key for key in glance.strangers("inbox/").good if bundles.is_bundle(key)]
        session.do([Absorb(young, session.seen.ticket, spent)])
        return dropped + cast(int, session.do([Purge(before)])[0])

    async def replay_dead(self, dead: Log, wanted: Sequence[str]) -> int:
        take = partial(letters.take_dead, cache=self._cache, wanted=wanted, replay=True)
        taken = await dead.committer.edit(take)
        await dead.flusher.flush_all()  # with which they leave
        return len(taken)

    # Queues.

    def partitions(self, config: Config) -> int:
        return config.options.shards

    def unregister(self, tx: Transaction, queue: str) -> str:
        return queues.close(tx, queue)

    async def maintain(self) -> int:
        """Finish what other processes have buried, also where this one has never committed anything."""
        if await self.undertaker.bury((await self._committer.ask(Expire())).head):
            await self._committer.ask(Expire())  # whatever is committed next forgets them
        return 0 if self._address.dead else await sweep(self._space, self._committer, self._cache)

    async def close(self) -> None:
        await self.undertaker.close()
        await self.quarantine.close()

    # Blocks that are not there.

    def left(self, view: Reading, root: str, block: Block) -> None:
        """The head that gave it may be older than what has been deleted since."""
        if block.no and _is_named(view, root, block):
            raise damage.missing(root + block.key)

    def confirm_lost(self, tx: Transaction, seen: Seen, block: Block) -> None:
        """Others may have ended what we have claimed, if we stood still for longer than the lease."""
        if not _is_named(tx, seen.root, block):
            raise Unavailable(f"others have ended what was claimed from {seen.root}: this process was held up")


def _is_named(view: Reading, root: str, block: Block) -> bool:
    """Whether the head has it, read after the block was missed: a block goes only when no head names it any more."""
    key = root + "head"
    found = view.get(key)
    return found is not None and damage.read(key, codec.decode, found.data).block_at(block.key) is not None


def _demand(asked: Sequence[Asked]) -> int:
    """How many messages are claimed."""
    return sum(each.limit for request in asked for each in request.intents if type(each) is Claim)


def _written(view: Reading, keys: WrittenKeys) -> tuple[list[str], list[str]] | None:
    """What of a frozen set is there: what was written in time, and what was not; None: the set is gone."""
    found = keys(view)
    if found is None:
        return None
    there = [key for key in found[0] if view.list(key, limit=1)]
    made = [key for key in there if repeat.fate(key, view.made(key), Head(), found[1]) == "admit"]
    return made, [key for key in there if key not in made]
