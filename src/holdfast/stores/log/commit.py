"""One committer per log and process: requests that wait together are applied to the head, which is written once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import msgspec

from ...config import QueueOptions
from ...errors import QueueNotFound
from .. import formats
from . import damage, intake, names, queues, topics
from .cache import BlockCache
from .calendar import IN_STEP, Calendar
from .edit import Seen, Session
from .entries import Entry
from .head import codec
from .head.state import Block, Claim, Exhausted, Expire, Extend, Head, Intent, Result, Rules, Settle, Taken
from .queues import Address, Config
from .rows import Rows
from .space import Reading, Space, Transaction

if TYPE_CHECKING:
    from .repeat_window import RepeatWindow

T = TypeVar("T")
_PAGE = 1000
_LEASES = (Claim, Extend)


class _Known(msgspec.Struct, frozen=True):
    """The queue's options as last read."""

    data: bytes
    config: Config
    root: str


_NOTHING = _Known(b"", Config(incarnation="", created_at=0.0, options=QueueOptions()), "")


class Answer(msgspec.Struct, frozen=True):
    """What a request gets: a result per intent, the head that holds them, and the blocks a claim took from."""

    results: list[Result]
    head: Head
    now: float  # a head that did not change still has the time of its last change
    rules: Rules
    blocks: dict[int, tuple[Block, Rows]]
    next_delayed: float | None  # when the next block that nobody has absorbed is due
    expired: list[Exhausted]

    def next_due(self) -> float | None:
        """When a claim that found nothing should look again by itself."""
        return intake.next_due(self.head, self.rules, self.next_delayed)


Then: TypeAlias = Callable[[Session], None]


class Request(Entry[Answer]):
    """Intents of one caller; `then` writes more in the same transaction."""

    __slots__ = ("failure", "intents", "then")

    def __init__(self, owner: Committer, intents: Sequence[Intent], then: Then | None = None) -> None:
        # Leases and who held them go with the machine: nobody could miss them after it has failed.
        is_durable = then is not None or any(type(intent) not in _LEASES for intent in intents)
        super().__init__(owner, durable=is_durable)
        self.intents = intents
        self.then = then
        self.failure: Exception | None = None  # it was carried out, but its messages cannot be read


class Committer:
    """See the module. `written` is called with the head after every commit that wrote it."""

    def __init__(
        self,
        space: Space,
        address: Address,
        cache: BlockCache,
        window: RepeatWindow,
        *,
        timeout: float,
        written: Callable[[Head], None],
    ) -> None:
        self._space = space
        self.address = address
        self.window = window
        self._cache = cache
        self._timeout = timeout
        self._written = written
        self._wrote: Head | None = None  # by the last step
        self._writer = codec.HeadWriter()
        self._known = _NOTHING
        self._head: tuple[bytes, Head, Calendar] = (b"", Head(), IN_STEP)
        self._sure = ("", Head())  # the log's root, and its head as read, or written for certain
        window.serve(self)
        self._commits = window.requests()

    # What callers use.

    async def ask(self, *intents: Intent, then: Then | None = None) -> Answer:
        """The answers once they are there for all to see. Requests that wait together share one commit."""
        request = Request(self, intents, then)
        try:
            return await self._commits.put(request, self._timeout)
        except asyncio.CancelledError:
            if request.is_told:
                self.abandoned(request)
            raise

    async def edit(self, change: Callable[[Session], T], *, demand: int = 0) -> T:
        """Run a change that must look before it decides, in a transaction of its own.

        `demand` is how many messages it may want to claim: so many are absorbed before, as far as they are listed.
        """
        answer, head = await self._space.transact(
            lambda tx: self._edit(tx, change, demand), deadline=self._timeout, lane=self.address.text
        )
        if head is not None:
            self._written(head)
        return answer

    # As the owner of requests.

    def step(self, tx: Transaction, entries: Sequence[Request]) -> None:
        self._wrote = self.commit(tx, entries)

    def committed(self, entries: Sequence[Request]) -> None:
        self.answered(entries, self._wrote)

    def answered(self, requests: Sequence[Request], head: Head | None) -> None:
        """They were carried out, and `head` was written for them, unless nothing has changed."""
        if head is not None:
            self._sure = (self._sure[0], head)
        for request in requests:
            if request.failure is not None:
                self.abandoned(request)
                request.error = request.failure
            else:
                self._end_damaged(request)
        if head is not None:
            self._written(head)

    def abandoned(self, entry: Request) -> None:
        """Nobody waits for this claim any more: its messages go back without costing an attempt."""
        for intent, result in zip(entry.intents, entry.result.results, strict=True):
            if isinstance(intent, Claim) and isinstance(result, list):
                for taken in result:
                    self._commits.post(Request(self, [Settle(intent.token, taken.block, taken.mask, "release")]))

    def _end_damaged(self, request: Request) -> None:
        """Messages that cannot be read any more are nobody's to handle: they end as dead, the others are delivered."""
        answer = request.result
        lost = {no: rows.why for no, (_, rows) in answer.blocks.items() if isinstance(rows, damage.Substitute)}
        if not lost:
            return
        ended = list(answer.expired)
        for at, intent in enumerate(request.intents):
            taken = answer.results[at]
            if isinstance(intent, Claim) and isinstance(taken, list):
                for each in taken:
                    if isinstance(each, Taken) and each.block in lost:
                        end = Settle(intent.token, each.block, each.mask, "dead", error=lost[each.block])
                        self._commits.post(Request(self, [end]))
                        ended.append(Exhausted(each.block, each.mask, each.attempt))
                answer.results[at] = cast(Result, [each for each in taken if each.block not in lost])
        request.result = msgspec.structs.replace(answer, expired=ended)

    # What runs inside the transaction.

    @property
    def shards(self) -> int:
        """Of the queue, as last seen; 0: not yet."""
        return self._known.config.options.shards if self._known.root else 0

    def next_block(self) -> str | None:
        """The full key of the block in the head that nobody has begun, and that comes first."""
        fresh = [block for block in self._head[1].blocks.values() if block.next == 0 and not block.due]
        return self.root + min(fresh, key=lambda block: block.order).key if fresh else None

    @property
    def root(self) -> str:
        """Of the log, as last seen."""
        return self._known.root

    def seen(self, answer: Answer) -> Seen:
        """The log as an answer shows it."""
        return Seen(self._known.config, answer.rules, self._known.root, answer.head, answer.head.ticket(), self.window)

    def look(self, view: Reading) -> Seen:
        """The log as this view shows it."""
        return self.survey(view, intake.no_ranges)[0]

    def survey(self, view: Reading, ranges_of: intake.RangesOf) -> tuple[Seen, list[list[str]]]:
        """The log, and the keys of ranges that depend on its root and on how many blocks it holds; in one trip."""
        known = self._known  # a local: the reading and the committing thread are both here, on snapshots of their own
        while True:
            before = self.stored(known.root)
            ranges = ranges_of(known.root, before.held) if known.root else []
            heads = [known.root + "head"] if known.root else []
            (stored, *found), keys = view.survey([names.config_key(self.address.queue), *heads], ranges)
            if stored is None:
                raise QueueNotFound(f"there is no queue {self.address.queue!r}")
            if known.data != stored:  # new to us, changed, or made anew
                root, known = known.root, self._known_from(stored)
                if root != known.root:
                    continue
            head = self._decoded(found[0], known.root, view.calendar)
            ticket = before.ticket() if ranges else head.ticket()
            if ticket != head.ticket():
                continue  # what was listed may be older than what has been forgotten
            if ranges and head.held > before.held:  # absorbed blocks must not hide the ones behind them
                keys = view.survey([], ranges_of(known.root, head.held))[1]
            return Seen(known.config, self._rules(known.config, view), known.root, head, ticket, self.window), keys

    def stored(self, root: str) -> Head:
        """Not one that we tried to write, nor of the queue's life before: by its count lists are judged."""
        known, head = self._sure
        return head if known == root else Head()

    def _rules(self, config: Config, view: Reading) -> Rules:
        rules = self.address.rules(config)
        if self._space.format < formats.RETRIES_NAME_WORKERS:
            rules = msgspec.structs.replace(rules, names_workers=False)
        if view.calendar != IN_STEP:
            rules = msgspec.structs.replace(rules, calendar=view.calendar)
        return self.window.rules(rules, view.now)

    def _known_from(self, stored: bytes) -> _Known:
        config = queues.decode(stored, self.address.queue)
        if config.closing is not None:
            raise QueueNotFound(f"there is no queue {self.address.queue!r}")
        self._known = _Known(stored, config, self.address.root(config))
        return self._known

    def _decoded(self, stored: bytes | None, root: str, calendar: Calendar) -> Head:
        data, head, dated = self._head
        if stored is None:
            head = Head()
        elif data != stored or dated != calendar:  # no tags: what a failed commit left here can never look current
            head = damage.read(root + "head", partial(codec.decode, calendar=calendar), stored)
            self._head = (stored, head, calendar)
        self._sure = (root, head)
        return head

    def commit(self, tx: Transaction, requests: Sequence[Request]) -> Head | None:
        """All requests that wait: one look, one `apply`; the new head, or None when nothing changed."""
        demand = sum(each.limit for request in requests for each in request.intents if type(each) is Claim)
        seen, absorbed, next_due = self.window.intake(self.survey, tx, min(demand, _PAGE))
        session = Session(tx, seen, self._cache)
        intents: list[Intent] = [absorbed, Expire()]
        for request in requests:
            intents += request.intents
        intents += self.window.tidying(seen.head)
        results = session.do(intents)
        self.window.given(session, results)
        self._answer(session, requests, results, next_due)
        return self._save(session)

    def _edit(self, tx: Transaction, change: Callable[[Session], T], demand: int) -> tuple[T, Head | None]:
        self.window.begin_step(tx)
        seen, absorbed, _ = self.window.intake(self.survey, tx, demand)
        session = Session(tx, seen, self._cache)
        if absorbed.keys:
            session.do([absorbed])
        return change(session), self._save(session)

    def _save(self, session: Session) -> Head | None:
        if not session.changed:
            return None
        tx, root = session.tx, session.seen.root
        self._head = (self._put(session), session.head, session.seen.rules.calendar)
        for key in session.finished:
            tx.delete(root + key)
            self._cache.forget(root + key)
        for topic in session.topics:
            tx.signal(topics.topic(self.address.text, topic))
        return session.head

    def let_go(self, keys: Sequence[str]) -> None:
        """Blocks that are finished: nobody asks for their rows again."""
        for key in keys:
            self._cache.forget(self.root + key)

    def _put(self, session: Session) -> bytes:
        proof = self.window.sign(session)
        data = self._writer.encode(session.head)
        session.tx.put(session.seen.root + "head", data, proof=proof)
        return data

    def _answer(
        self, session: Session, requests: Sequence[Request], results: list[Result], later: float | None
    ) -> None:
        place = 2
        expired = cast(list[Exhausted], results[1])
        for request in requests:
            own = results[place : place + len(request.intents)]
            place += len(request.intents)
            taken = [each for result in own if isinstance(result, list) for each in result]
            blocks = self.window.load(session, request, {each.block for each in [*taken, *expired]})
            now = max(session.head.now, session.tx.now)
            request.result = Answer(own, session.head, now, session.seen.rules, blocks, later, expired)
            expired = []  # told once, to the first
            if request.then is not None:
                request.then(session)
