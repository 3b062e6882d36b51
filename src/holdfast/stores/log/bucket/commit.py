"""The committer where a write can be repeated or arrive late, and where every request to the space is dear.

What a claim gives is read beside the replacement of the head, not before it. Callers that were answered together are
waited for, so that what they ask next shares one replacement. While another process owns the head it is left alone.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar, cast

from msgspec.structs import replace

from ....errors import HoldfastError, StoreError
from .. import intake, names
from ..cache import BlockCache
from ..calendar import Calendar
from ..commit import Answer, Committed, Committer, Group, Request
from ..edit import Seen, Session
from ..head.state import Block, Claim, Extend, Head, Intent, Result, Rules
from ..queues import Address, Config
from ..rows import Rows
from ..space import Copyable, Reading, Space, Transaction
from . import sharding
from .listing import Late

T = TypeVar("T")
_GATHER_PART = 0.06  # of a replacement: how long the next one waits for callers that were answered together
_READ_BESIDE_LOST = 1  # refusals after which blocks are read when they are ours, not beside the replacement
_SLICE_S = 0.02  # of a wait: so soon it is seen that an extension has come


class _Far(Protocol):
    """What the view of a bucket can do besides."""

    def fetch(self, keys: Sequence[str]) -> None: ...

    def afterwards(self, call: Callable[[], None]) -> None: ...

    def read_again(self, key: str) -> None: ...

    def known_since(self, key: str) -> float: ...

    @property
    def began(self) -> float: ...

    @property
    def is_fresh(self) -> bool: ...

    @property
    def is_unsettled(self) -> bool: ...


class LateCommitter(Committer):
    """One per log and process."""

    late: Late

    def __init__(
        self, space: Space, address: Address, cache: BlockCache, *, timeout: float, written: Callable[[Head], None]
    ) -> None:
        super().__init__(space, address, cache, timeout=timeout, written=written)
        self.late = Late(space.window, timeout)
        self._sure = ("", Head())  # a log's root, and its head as read, or written for certain
        self._looking: asyncio.Future[None] | None = None
        self._no_list_under_way = threading.Event()
        self._no_list_under_way.set()
        self._loop: asyncio.AbstractEventLoop | None = None  # where callers wait
        self._extending = 0  # calls of other threads that wait for the head

    def token(self) -> str:
        return sharding.token(self.late.token(), self.address.shard)

    # When to commit.

    def _begin_soon(self) -> None:
        self._under_way = True
        asyncio.get_running_loop().call_later(_GATHER_PART * self.late.ownership.trip_s, self._begin)

    def _begin(self) -> None:
        self.late.begun_at, self._loop = time.monotonic(), asyncio.get_running_loop()
        demand = sum(each.limit for request in self._waiting for each in request.intents if type(each) is Claim)
        if self.late.is_list_due(demand):
            self._list_meanwhile()
        super()._begin()

    def _list_meanwhile(self) -> None:
        if self._looking is None:
            self._no_list_under_way.clear()
            looking = partial(self._look_ahead, root=self.root, head=self._stored(self.root))
            self._looking = asyncio.ensure_future(self._space.read(looking, deadline=self._timeout))
            self._looking.add_done_callback(self._looked)

    def _look_ahead(self, view: Reading, *, root: str, head: Head) -> None:
        """List for the claims that will follow, while the head is replaced."""
        additions, config = self.late.additions, names.config_key(self.address.queue)
        try:
            self.late.listed(intake.look_ahead(view, config, root, head, self.late.demand), additions)
        finally:
            self._no_list_under_way.set()

    def _looked(self, looking: asyncio.Future[None]) -> None:
        self._looking = None
        self._no_list_under_way.set()
        if not looking.cancelled():
            looking.exception()  # whoever needs a list asks again

    def _ended(self, taken: Group, committed: asyncio.Future[Committed]) -> None:
        head = committed.result()[0] if not committed.cancelled() and committed.exception() is None else None
        if head is not None:
            self._sure = (self._sure[0], head)
        super()._ended(taken, committed)

    # What runs inside the transaction.

    def _decoded(self, stored: bytes | None, root: str, calendar: Calendar) -> Head:
        head = super()._decoded(stored, root, calendar)
        self._sure = (root, head)
        return head

    def _stored(self, root: str) -> Head:
        """Not one that we tried to write, nor of the queue's life before: by its count lists are judged."""
        known, head = self._sure
        return head if known == root else Head()

    def ask_from_thread(self, *intents: Intent) -> Answer:
        self._extending += 1
        try:
            return super().ask_from_thread(*intents)
        finally:
            self._extending -= 1

    def _step(self, taken: Group, tx: Transaction) -> Committed:
        self._leave_to_owner(tx, taken)
        return super()._step(taken, tx)

    def _edit(self, tx: Transaction, change: Callable[[Session], T], demand: int) -> tuple[T, Head | None]:
        self._leave_to_owner(tx, [])
        cast(_Far, tx).afterwards(self.late.ownership.swapped)
        return super()._edit(tx, change, demand)

    def _commit(self, tx: Transaction, requests: list[Request]) -> Head | None:
        cast(_Far, tx).afterwards(self.late.ownership.swapped)
        return super()._commit(tx, requests)

    def _leave_to_owner(self, tx: Transaction, taken: list[Request]) -> None:
        """Wait while the head is another's, unless leases are extended; requests that arrive meanwhile join.

        An earlier attempt of this commit that may still happen is looked for before every step, not within one: then
        the head must not be read again here.
        """
        far, root, waited = cast(_Far, tx), self.root, False
        if far.is_unsettled:
            return
        if self.late.ownership.is_outdated and not far.is_fresh:
            far.read_again(root + "head")
            head = self._look_again(tx, taken).head
        else:
            head = self.look(tx).head if far.is_fresh else self._stored(root)
        while seconds := self.late.ownership.wait_s(
            head, seen_at=far.known_since(root + "head"), store_now=tx.now, waiting_since=far.began
        ):
            waited, extends = True, self._sleep(seconds, taken)
            far.read_again(root + "head")
            if extends:
                break
            head = self._look_again(tx, taken).head
        if waited and self.late.demand and self.late.is_aging() and self._loop is not None:
            self._loop.call_soon_threadsafe(self._list_meanwhile)  # claims will follow

    def _sleep(self, seconds: float, taken: list[Request]) -> bool:
        """True: it ended early, since there is a lease to extend."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._extending or any(
                type(each) is Extend for request in (*taken, *self._waiting) for each in request.intents
            ):
                return True
            time.sleep(min(left, _SLICE_S))
        return False

    def _look_again(self, tx: Transaction, taken: list[Request]) -> Seen:
        """Where messages are wanted, with a list in the same trip."""
        demand = sum(
            each.limit for request in (*taken, *self._waiting) for each in request.intents if type(each) is Claim
        )
        if demand and self.late.listing() is None:
            return intake.list_late(self._survey, tx, demand, self.late)[0]
        return self.look(tx)

    def _survey(self, view: Reading, ranges_of: intake.RangesOf | None = None) -> tuple[Seen, list[list[str]]]:
        seen, keys = super()._survey(view, ranges_of)
        return replace(seen, rules=replace(seen.rules, now=view.now)), keys

    def _rules(self, config: Config, calendar: Calendar) -> Rules:
        return replace(self.late.rules(super()._rules(config, calendar)), epoch=cast(Copyable, self._space).epoch)

    def _beside(self, head: Head) -> list[Intent]:
        return self.late.tidying(head)

    def _absorbable(self, tx: Transaction, demand: int) -> intake.Absorbable:
        if demand:
            if self.late.listing() is None:  # one that is on its way is sooner here than another
                self._no_list_under_way.wait(2 * self.late.ownership.trip_s)
            return intake.absorbable_late(self._survey, tx, demand, self.late, self.look)
        return super()._absorbable(tx, 0)

    def _put(self, session: Session) -> bytes:
        session.head, attempt = self.late.sign(session.head)
        data = self._writer.encode(session.head)
        proof = partial(self.late.is_signed, attempt=attempt)
        session.tx.put(session.seen.root + "head", data, proof=proof)
        return data

    def _answer(self, session: Session, requests: list[Request], results: list[Result], later: float | None) -> None:
        given = [each.block for result in results if isinstance(result, list) for each in result]
        claims = any(type(each) is Claim for request in requests for each in request.intents)
        self.late.ownership.goes_on = bool(given) or not claims
        keys = map(session.key_of, dict.fromkeys(given))
        far, missing = cast(_Far, session.tx), [key for key in keys if self._cache.get(key) is None]
        if self.late.ownership.lost <= _READ_BESIDE_LOST:
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

    @staticmethod
    def _fill(session: Session, request: Request, numbers: set[int], blocks: dict[int, tuple[Block, Rows]]) -> None:
        try:
            blocks.update((no, session.block(no)) for no in numbers)
        except HoldfastError as error:
            request.failure = error
        except Exception as error:  # noqa: BLE001  whatever a block is, the others of this commit have their answers
            request.failure = StoreError(f"a block of {session.seen.root} cannot be read: {type(error).__name__}")
            request.failure.__cause__ = error
