"""The committer where a write can be repeated or arrive late, and where every request to the space is dear.

What a claim gives is read beside the replacement of the head, not before it. Callers that were answered together are
waited for, so that what they ask next shares one replacement. Several processes on one head take turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar, cast

from msgspec.structs import replace

from ....errors import HoldfastError, StoreError
from .. import intake, names
from ..cache import BlockCache
from ..calendar import Calendar
from ..commit import Answer, Committer, Request
from ..edit import Seen, Session
from ..head.state import Block, Claim, Extend, Head, Intent, Result, Rules
from ..queues import Address, Config
from ..rows import Rows
from ..space import Copyable, Later, Reading, Space, Transaction
from . import sharding
from .gather import Gather, Group
from .listing import Late

T = TypeVar("T")
_STALE = 0.3  # seconds after which who is next in line lists anew
_AGED = 0.1  # seconds after which a list is made anew beside the first replacement of a turn


class Bucket(Space, Protocol):
    """What a bucket's space can do besides."""

    def transact_from_thread(
        self, step: Callable[[Transaction], T], *, deadline: float | None = None, lane: str = ""
    ) -> T:
        """As `transact`, blocking, from any thread."""


class _Far(Protocol):
    """What the view of a bucket can do besides."""

    def fetch(self, keys: Sequence[str]) -> None: ...

    def afterwards(self, call: Callable[[], None]) -> None: ...

    def is_read(self, key: str) -> bool: ...

    def ask_for_turn(self, key: str, name: str) -> None: ...

    def if_beaten(self, call: Callable[[], None]) -> None: ...


class LateCommitter(Committer):
    """One per log and process."""

    late: Late
    _commits: Gather
    _space: Bucket

    def __init__(
        self, space: Space, address: Address, cache: BlockCache, *, timeout: float, written: Callable[[Head], None]
    ) -> None:
        super().__init__(space, address, cache, timeout=timeout, written=written)
        self.late = Late(space.window)
        self._sure = ("", Head())  # a log's root, and its head as read, or written for certain
        self._looking: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # where callers wait
        self._hurry = False  # what is committed cannot wait for our turn
        self._unreadable: dict[Request, Exception] = {}  # carried out, but its messages cannot be read

    def token(self) -> str:
        return sharding.token(self.late.token(), self.address.shard)

    def ask_from_thread(self, *intents: Intent) -> Answer:
        """As `ask`, blocking, from any thread."""
        request = Request(self, intents)
        self._space.transact_from_thread(
            lambda tx: self._commit(tx, [request]), deadline=self._timeout, lane=self.address.text
        )
        return request.result

    # When to commit.

    def _queue(self) -> Gather:
        return Gather(self._carry_out, most=1, pause=lambda: self.late.turns.pause())

    async def _carry_out(self, group: Group) -> None:
        self.late.turns.begun()
        waiting = cast(list[Request], self._commits.waiting)
        demand = sum(each.limit for request in waiting for each in request.intents if type(each) is Claim)
        self._loop = asyncio.get_running_loop()
        if self.late.is_list_due(demand):
            self._list_meanwhile()
        head, answers = await self._space.transact(
            partial(self._joined, group), deadline=self._timeout, lane=self.address.text
        )
        group.end(len(answers))
        if head is not None:
            self._sure = (self._sure[0], head)
            self.late.turns.ended(self.late.rivals(head))
        self._answered(group, head, answers)

    def _joined(self, group: Group, tx: Transaction) -> tuple[Head | None, list[Answer]]:
        """In a thread, perhaps several times; only the answers of the run that counts are given."""
        group.join()
        head = self._commit(tx, group) if group else None
        return head, [request.result for request in group]

    def _answered(self, group: Group, head: Head | None, answers: list[Answer]) -> None:
        for request, answer in zip(group, answers, strict=True):
            request.result = answer
            request.error = self._unreadable.pop(request, None)
            if request.error is not None:
                self.abandoned(request)
        self._wrote = head
        self.committed([request for request in group if request.error is None])

    def _list_meanwhile(self) -> None:
        if self._looking is None:
            looking = partial(self._look_ahead, root=self.root, head=self._stored(self.root))
            self._looking = asyncio.ensure_future(self._space.read(looking, deadline=self._timeout))
            self._looking.add_done_callback(self._looked)

    def _look_ahead(self, view: Reading, *, root: str, head: Head) -> None:
        """List for the claims that will follow, while the head is replaced."""
        additions, config = self.late.additions, names.config_key(self.address.queue)
        self.late.listed(intake.look_ahead(view, config, root, head, self.late.demand), additions)

    def _looked(self, looking: asyncio.Future[None]) -> None:
        self._looking = None
        if not looking.cancelled():
            looking.exception()  # whoever needs a list asks again

    # What runs inside the transaction.

    def _decoded(self, stored: bytes | None, root: str, calendar: Calendar) -> Head:
        head = super()._decoded(stored, root, calendar)
        self._sure = (root, head)
        return head

    def _stored(self, root: str) -> Head:
        """Not one that we tried to write, nor of the queue's life before: by its count lists are judged."""
        known, head = self._sure
        return head if known == root else Head()

    def _commit(self, tx: Transaction, requests: Sequence[Request]) -> Head | None:
        self._hurry = any(type(each) is Extend for request in requests for each in request.intents)
        try:
            return super()._commit(tx, requests)
        finally:
            self._hurry = False

    def _survey(self, view: Reading, ranges_of: intake.RangesOf | None = None) -> tuple[Seen, list[list[str]]]:
        seen, keys = super()._survey(view, ranges_of)
        return replace(seen, rules=replace(seen.rules, now=view.now)), keys

    def _rules(self, config: Config, calendar: Calendar) -> Rules:
        return replace(self.late.rules(super()._rules(config, calendar)), epoch=cast(Copyable, self._space).epoch)

    def _beside(self, head: Head) -> list[Intent]:
        return self.late.tidying(head)

    def _absorbable(self, tx: Transaction, demand: int) -> intake.Absorbable:
        turns = self.late.turns
        if turns.is_contended:
            seen = self.look(tx)
            pause = turns.wait(seen.head, tx.now, is_read=cast(_Far, tx).is_read(seen.root + "head"))
            if turns.asks:
                self._ask_for_turn(cast(_Far, tx), seen.root)
            if pause and not self._hurry:
                self._prepare(demand)
                raise Later(pause)
            if turns.waited and demand and self.late.age() > _AGED and self._loop is not None:
                self._loop.call_soon_threadsafe(self._list_meanwhile)
        turns.tried()
        if demand:
            return intake.absorbable_late(self._survey, tx, demand, self.late, self.look)
        return super()._absorbable(tx, 0)

    def _prepare(self, demand: int) -> None:
        """While it is not our turn: beside the looks, which must not wait for it."""
        if self.late.turns.is_next and demand and self.late.age() > _STALE and self._loop is not None:
            self._loop.call_soon_threadsafe(self._list_meanwhile)

    def _ask_for_turn(self, far: _Far, root: str) -> None:
        if self.late.turns.may_ask():
            far.ask_for_turn(root + "head", self.late.session)

    def _put(self, session: Session) -> bytes:
        if self.late.turns.is_outside(session.seen.head):
            far = cast(_Far, session.tx)
            far.if_beaten(partial(self._ask_for_turn, far, session.seen.root))
        session.head, attempt = self.late.sign(session.head)
        data = self._writer.encode(session.head)
        proof = partial(self.late.is_signed, attempt=attempt)
        session.tx.put(session.seen.root + "head", data, proof=proof)
        return data

    def _answer(
        self, session: Session, requests: Sequence[Request], results: list[Result], later: float | None
    ) -> None:
        given = [each.block for result in results if isinstance(result, list) for each in result]
        self.late.turns.goes_on = bool(given) or not any(
            type(each) is Claim for request in requests for each in request.intents
        )
        keys = map(session.key_of, dict.fromkeys(given))
        far, missing = cast(_Far, session.tx), [key for key in keys if self._cache.get(key) is None]
        if self.late.turns.is_ours:
            far.fetch(missing)
        elif missing:  # most likely somebody is faster and takes these: they are read when they are ours
            far.afterwards(partial(far.fetch, missing))
        super()._answer(session, requests, results, later)

    def _load(self, session: Session, request: Request, numbers: set[int]) -> dict[int, tuple[Block, Rows]]:
        """Filled when the head is replaced: a block in it is there, whoever finishes what."""
        blocks: dict[int, tuple[Block, Rows]] = {}
        if numbers:
            cast(_Far, session.tx).afterwards(partial(self._fill, session, request, numbers, blocks))
        return blocks

    def _fill(
        self, session: Session, request: Request, numbers: set[int], blocks: dict[int, tuple[Block, Rows]]
    ) -> None:
        try:
            blocks.update((no, session.block(no)) for no in numbers)
        except HoldfastError as error:
            self._unreadable[request] = error
        except Exception as error:  # noqa: BLE001  whatever a block is, the others of this commit have their answers
            failure = StoreError(f"a block of {session.seen.root} cannot be read: {type(error).__name__}")
            failure.__cause__ = error
            self._unreadable[request] = failure
