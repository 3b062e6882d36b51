"""A partition on a bucket: a write can be repeated or arrive late, and every request is dear.

What a claim gives is read beside the replacement of the head, not before it. Callers that were answered together are
waited for, so that what they ask next shares one replacement. Several processes on one head take turns.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from ....errors import HoldfastError, StoreError, Unavailable
from ...batches import Staged
from .. import bundles, damage, flush_rows, intake, letters, names, queues
from ..commit import Answer, Request
from ..head import codec, repeat
from ..head.state import (
    Absorb,
    Block,
    Claim,
    Expire,
    Extend,
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
from ..space import Later, Reading, Transaction
from . import sharding
from .append import Appends
from .gather import Gather, Group
from .graveyard import Undertaker
from .intake import absorbable_late, look_ahead
from .listing import Late
from .orphans import keys_below, sweep
from .quarantine import Quarantine
from .view import View, bucket_view

if TYPE_CHECKING:
    from ..commit import Committer
    from ..edit import Seen, Session
    from ..lookup import Glance
    from ..partition import Log
    from .space import CloudSpace

_APPENDS_MOST = 3  # under way before further calls gather
_LEAST_TIME = 8.0  # seconds of a window in which a flush is written for sure
_STAGED_STALE = 3000.0  # seconds after which staged blocks may be about to be swept
_STALE = 0.3  # seconds after which who is next in line lists anew
_AGED = 0.1  # seconds after which a list is made anew beside the first replacement of a turn


class Window:
    """See `RepeatWindow`."""

    reads_twice = True
    closing_s = queues.CLOSING
    merge_after_s = 3600.0

    def __init__(self, space: CloudSpace, home: Home) -> None:
        self.late = Late(space.window)
        self.appends = Appends(space, home, added=self.late.unlist)
        self._space = space
        self._address = home.address
        self._cache = home.cache
        self._timeout = home.timeout
        self._looking: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # where callers wait

    def serve(self, committer: Committer) -> None:
        self._committer = committer
        self.undertaker = Undertaker(self._space, committer, self.late)
        self.quarantine = Quarantine(self._space, committer, self._cache, self.late)

    def token(self) -> str:
        return sharding.token(self.late.token(), self._address.shard)

    def rules(self, rules: Rules, now: float) -> Rules:
        return replace(self.late.rules(rules), epoch=self._space.epoch, now=now)

    async def replay_archived(self, queue: str, found: Sequence[letters.Original]) -> int:
        return await self.appends.replays.replay(found)

    # When to commit.

    def calls(self) -> Gather:
        return Gather(self._append, most=_APPENDS_MOST)

    async def _append(self, group: Group) -> None:
        group.join()
        await self.appends.write(group)

    def requests(self) -> Gather:
        self._requests = Gather(self._carry_out, most=1, pause=lambda: self.late.turns.pause())
        return self._requests

    async def _carry_out(self, group: Group) -> None:
        """One replacement of the head for all who wait; more join until it is written."""
        self._begins(cast(list[Request], self._requests.waiting))
        head, answers = await self._space.transact(
            partial(self._joined, group), deadline=self._timeout, lane=self._address.text
        )
        group.end(len(answers))
        for request, answer in zip(group, answers, strict=True):
            request.result = answer
        self._committer.answered(group, head)

    def _joined(self, group: Group, tx: Transaction) -> tuple[Head | None, list[Answer]]:
        """In a thread, perhaps several times; only the answers of the run that counts are given."""
        group.join()
        head = self._committer.commit(tx, group) if group else None
        return head, [request.result for request in group]

    def ask_from_thread(self, *intents: Intent) -> Answer:
        """As `Committer.ask`, blocking, from any thread."""
        request = Request(self._committer, intents)
        self._space.transact_from_thread(
            lambda tx: self._committer.commit(tx, [request]), deadline=self._timeout, lane=self._address.text
        )
        return request.result

    def _begins(self, waiting: Sequence[Asked]) -> None:
        self.late.turns.begun()
        demand = sum(each.limit for request in waiting for each in request.intents if type(each) is Claim)
        self._loop = asyncio.get_running_loop()
        if self.late.is_list_due(demand):
            self._list_meanwhile()

    def _list_meanwhile(self) -> None:
        if self._looking is None:
            root = self._committer.root
            looking = partial(self._look_ahead, root=root, head=self._committer.stored(root))
            self._looking = asyncio.ensure_future(self._space.read(looking, deadline=self._timeout))
            self._looking.add_done_callback(self._looked)

    def _look_ahead(self, view: Reading, *, root: str, head: Head) -> None:
        """List for the claims that will follow, while the head is replaced."""
        additions, config = self.late.additions, names.config_key(self._address.queue)
        self.late.listed(look_ahead(view, config, root, head, self.late.demand), additions)

    def _looked(self, looking: asyncio.Future[None]) -> None:
        self._looking = None
        if not looking.cancelled():
            looking.exception()  # whoever needs a list asks again

    def ended(self, head: Head) -> None:
        self.late.turns.ended(self.late.rivals(head))

    # What runs inside the transaction.

    def intake(self, survey: Survey, tx: Transaction, demand: int, asked: Sequence[Asked] = ()) -> Absorbable:
        turns = self.late.turns
        if turns.is_contended:
            self._wait_for_turn(survey, tx, demand, asked)
        turns.tried()
        return absorbable_late(survey, tx, demand, self.late) if demand else intake.unlisted(survey, tx)

    def _wait_for_turn(self, survey: Survey, tx: Transaction, demand: int, asked: Sequence[Asked]) -> None:
        turns, view = self.late.turns, bucket_view(tx)
        seen, _ = survey(tx, intake.no_ranges)
        pause = turns.wait(seen.head, tx.now, is_read=view.is_read(seen.root + "head"))
        if turns.asks:
            self._ask_for_turn(view, seen.root)
        # Leases that are extended cannot wait.
        if pause and not any(type(each) is Extend for request in asked for each in request.intents):
            self._prepare(demand)
            raise Later(pause)
        if turns.waited and demand and self.late.age() > _AGED and self._loop is not None:
            self._loop.call_soon_threadsafe(self._list_meanwhile)

    def _prepare(self, demand: int) -> None:
        """While it is not our turn: beside the looks, which must not wait for it."""
        if self.late.turns.is_next and demand and self.late.age() > _STALE and self._loop is not None:
            self._loop.call_soon_threadsafe(self._list_meanwhile)

    def _ask_for_turn(self, view: View, root: str) -> None:
        if self.late.turns.may_ask():
            view.ask_for_turn(root + "head", self.late.session)

    def tidying(self, head: Head) -> list[Intent]:
        return self.late.tidying(head)

    def sign(self, session: Session) -> Proof | None:
        if self.late.turns.is_outside(session.seen.head):
            view = bucket_view(session.tx)
            view.if_beaten(partial(self._ask_for_turn, view, session.seen.root))
        session.head, attempt = self.late.sign(session.head)
        return partial(self.late.is_signed, attempt=attempt)

    def given(self, session: Session, asked: Sequence[Asked], results: Sequence[Result]) -> None:
        given = [each.block for result in results if isinstance(result, list) for each in result]
        self.late.turns.goes_on = bool(given) or not any(
            type(each) is Claim for request in asked for each in request.intents
        )
        keys = map(session.key_of, dict.fromkeys(given))
        view, missing = bucket_view(session.tx), [key for key in keys if self._cache.get(key) is None]
        if self.late.turns.is_ours:
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

    # Staged messages.

    def stage_folder(self, number: int) -> str:
        return f"{bundles.FOLDER}{number:032x}/"  # a file is an object at once: where nobody looks

    async def check_staged(self, staged: Sequence[Staged]) -> None:
        """The head must never speak of a block that is not there."""
        folders = {each.root + each.key[: each.key.index("/", len(bundles.FOLDER)) + 1] for each in staged}
        listed = await asyncio.gather(*(self._space.read(partial(keys_below, folder)) for folder in folders))
        there = {key for keys in listed for key in keys}
        if any(each.root + each.key not in there for each in staged):
            raise StoreError("staged messages are gone: they were swept after an hour, or deleted; write them again")

    def show_staged(self, session: Session, staged: Sequence[Staged]) -> None:
        """One replaced object has to be enough: the head takes the blocks in, and the sink's mark with them."""
        for each in staged:
            if session.tx.now - (names.birth_of(each.key) or 0.0) > _STAGED_STALE:
                raise StoreError(f"messages for queue {each.queue!r} were staged too long ago: write them again")
        if staged:
            session.do([Absorb([each.key for each in staged], "own")])

    async def sweep_staged(self, older_than: float) -> int:
        return await sweep(self._space, self._committer, self._cache, older_than=older_than)

    async def maintain(self) -> int:
        """Finish what other processes have buried, also where this one has never committed anything."""
        if await self.undertaker.bury((await self._committer.ask(Expire())).head):
            await self._committer.ask(Expire())  # whatever is committed next forgets them
        return 0 if self._address.dead else await sweep(self._space, self._committer, self._cache)

    async def close(self) -> None:
        await self.undertaker.close()
        await self.quarantine.close()

    # Blocks that are not there.

    def left(self, key: str) -> None:
        return None  # the head may be older than what has been deleted since

    def confirm_lost(self, tx: Transaction, seen: Seen, block: Block) -> None:
        """Others may have ended what we have claimed, if we stood still for longer than the lease."""
        key = seen.root + "head"
        found = tx.get(key)
        if found is None or damage.read(key, codec.decode, found.data).block_at(block.key) is None:
            raise Unavailable(f"others have ended what was claimed from {seen.root}: this process was held up")


def _written(view: Reading, keys: WrittenKeys) -> tuple[list[str], list[str]] | None:
    """What of a frozen set is there: what was written in time, and what was not; None: the set is gone."""
    found = keys(view)
    if found is None:
        return None
    there = [key for key in found[0] if view.list(key, limit=1)]
    made = [key for key in there if repeat.fate(key, view.made(key), Head(), found[1]) == "admit"]
    return made, [key for key in there if key not in made]
