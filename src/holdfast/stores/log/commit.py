"""One committer per log and process: it gathers everything that waits, applies it to the head and writes it once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import msgspec

from ...config import QueueOptions
from ...errors import QueueNotFound, Unavailable, UnsafeStore
from . import damage, intake, names, queues, topics
from .cache import BlockCache
from .calendar import IN_STEP, Calendar
from .edit import Seen, Session
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
    since: float = 0.0  # when that was first read, by the monotonic clock


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
Committed: TypeAlias = tuple[Head | None, list[Answer | None]]  # the head if it was written, and the answers


class Request:
    """Intents of one caller; `then` writes more in the same transaction."""

    __slots__ = ("answer", "failure", "future", "intents", "then")

    def __init__(self, intents: Sequence[Intent], then: Then | None = None) -> None:
        self.intents = intents
        self.then = then
        self.future: asyncio.Future[Answer] | None = None
        self.answer: Answer | None = None
        self.failure: Exception | None = None  # it was carried out, but its messages cannot be read

    @property
    def is_lasting(self) -> bool:
        """Somebody could miss it after the machine has failed; leases and who held them go with the machine."""
        return self.then is not None or any(type(intent) not in _LEASES for intent in self.intents)

    @property
    def is_abandoned(self) -> bool:
        """Nobody waits for it any more, so it need not happen."""
        return self.future is not None and self.future.cancelled()


class Group(list[Request]):
    """What one commit carries out; more joins while it has not begun to write."""

    is_over = False  # its callers have been told; nobody else may join


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
        self._waiting: list[Request] = []
        self._joining = threading.Lock()  # held while a commit takes what waits, or is over
        self._under_way = False
        self._had_turn = False  # of the event loop
        self._was_alone = True  # what was begun last had no company
        self._writer = codec.HeadWriter()
        self._known = _NOTHING
        self._head: tuple[bytes, Head, Calendar] = (b"", Head(), IN_STEP)
        self._ruled: tuple[queues.Basis | None, Rules] = (None, Rules())  # as last made, and what of
        self._new_root = ""  # of the log, if it had no head when it was last looked at, and never had one
        self._sure = ("", Head())  # the log's root, and its head as read, or written for certain
        window.serve(self)

    # What callers use.

    async def ask(self, *intents: Intent, then: Then | None = None) -> Answer:
        """The answers once they are durable. Requests that wait together share one commit."""
        request = Request(intents, then)
        request.future = asyncio.get_running_loop().create_future()
        self._submit(request)
        try:
            return await request.future
        except asyncio.CancelledError:
            if request.answer is not None:
                self._give_back(request)
            raise

    def _submit(self, request: Request) -> None:
        self._waiting.append(request)
        if not self._under_way and not self._had_turn:
            self._begin_soon()

    def _begin_soon(self) -> None:
        pause = self.window.gather_s()
        if pause is None:
            self._begin()
        else:
            self._under_way = True
            asyncio.get_running_loop().call_later(pause, self._begin)

    def _give_back(self, request: Request) -> None:
        """Nobody waits for this claim any more: its messages go back without costing an attempt."""
        assert request.answer is not None
        for intent, result in zip(request.intents, request.answer.results, strict=True):
            if isinstance(intent, Claim) and isinstance(result, list):
                for taken in result:
                    self._submit(Request([Settle(intent.token, taken.block, taken.mask, "release")]))

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

    def ask_from_thread(self, *intents: Intent) -> Answer:
        """The same, blocking, from any thread."""
        request = Request(intents)
        self._space.transact_from_thread(
            lambda tx: self._commit(tx, [request]), deadline=self._timeout, lane=self.address.text
        )
        assert request.answer is not None
        return request.answer

    def _begin(self) -> None:
        """Commit what waits; requests that arrive meanwhile share the next."""
        self.window.begins(self._waiting)
        taken = Group()
        alone, self._was_alone = self._was_alone, len(self._waiting) == 1
        try:
            if alone and self._was_alone and self._at_once(taken):
                return
            lasting = any(request.is_lasting for request in self._waiting)
            committed = asyncio.ensure_future(
                self._space.transact(
                    partial(self._step, taken, lasting), deadline=self._timeout, lane=self.address.text, lasting=lasting
                )
            )
        except Exception as error:  # noqa: BLE001  every caller must learn of it, whatever it is
            self._under_way = False
            self._refuse(taken or self._take(), error)
            return
        if isinstance(committed, asyncio.Task):  # what is given back while its loop ends comes too late: say nothing
            committed._log_destroy_pending = False  # type: ignore[attr-defined] # as `asyncio.gather` does
        committed.add_done_callback(partial(self._ended, taken))
        self._under_way = True

    def _at_once(self, taken: Group) -> bool:
        """One such commit per turn of the event loop, so that others have theirs and requests can gather."""
        try:
            lasting = self._waiting[0].is_lasting
            done = self._space.at_once(partial(self._step, taken, lasting), lasting=lasting)
        except Exception:  # who tries again and again leaves turns to others too
            self._end_turn()
            raise
        if done is None:
            return False
        self._end_turn()
        self._tell_all(taken, *done[0])
        return True

    def _end_turn(self) -> None:
        self._had_turn = True
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._had_turn = False
        if self._waiting and not self._under_way:
            self._begin_soon()

    def _ended(self, taken: Group, committed: asyncio.Future[Committed]) -> None:
        self._under_way = False
        with self._joining:  # a step that outlived its deadline may still be running
            taken.is_over = True
        error = Unavailable("the commit was cancelled") if committed.cancelled() else committed.exception()
        if error is not None:
            self._refuse(taken or self._take(), error)
        else:
            self._tell_all(taken, *committed.result())
        if self._waiting and not self._under_way:
            self._begin_soon()

    def _tell_all(self, taken: list[Request], head: Head | None, answered: list[Answer | None]) -> None:
        if head is not None:
            self._sure = (self._sure[0], head)
        # A step may have run several times; only the requests of the run that counts are answered.
        self._waiting[:0] = taken[len(answered) :]
        for request, answer in zip(taken, answered, strict=False):
            request.answer = answer
            self._tell(request)
        if head is not None:
            self._written(head)

    def _tell(self, request: Request) -> None:
        assert request.answer is not None
        if request.future is None:
            return
        if request.future.cancelled() or request.failure is not None:
            self._give_back(request)
        if request.future.cancelled():
            return
        if request.failure is not None:
            request.future.set_exception(request.failure)
        else:
            self._end_damaged(request)
            request.future.set_result(request.answer)

    def _end_damaged(self, request: Request) -> None:
        """Messages that cannot be read any more are nobody's to handle: they end as dead, the others are delivered."""
        answer = cast(Answer, request.answer)
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
                        self._submit(Request([end]))
                        ended.append(Exhausted(each.block, each.mask, each.attempt))
                answer.results[at] = cast(Result, [each for each in taken if each.block not in lost])
        request.answer = msgspec.structs.replace(answer, expired=ended)

    def _take(self) -> list[Request]:
        taken, self._waiting = self._waiting, []
        return taken

    def _take_leases(self) -> list[Request]:
        """Up to the first request that must last: it waits for a commit that does."""
        waiting = self._waiting
        end = next((at for at, request in enumerate(waiting) if request.is_lasting), len(waiting))
        taken = waiting[:end]
        del waiting[:end]
        return taken

    @staticmethod
    def _refuse(requests: list[Request], error: BaseException) -> None:
        for request in requests:
            if request.future is not None and not request.future.done():
                request.future.set_exception(error)

    # What runs inside the transaction.

    def _step(self, taken: Group, lasting: bool, tx: Transaction) -> Committed:
        with self._joining:
            if taken.is_over:
                raise Unavailable("nobody waits for this commit any more")
            joining = self._take() if lasting else self._take_leases()
            taken.extend(request for request in joining if not request.is_abandoned)
        head = self._commit(tx, taken) if taken else None
        return head, [request.answer for request in taken]

    @property
    def shards(self) -> int:
        """Of the queue, as last seen; 0: not yet."""
        return self._known.config.options.shards if self._known.root else 0

    @property
    def known_config(self) -> tuple[float, Config] | None:
        """Of the queue, as last seen, and since when; None: not yet."""
        return (self._known.since, self._known.config) if self._known.root else None

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
            ranges = ranges_of(known.root, before) if known.root else []
            heads = [known.root + "head"] if known.root else []
            (stored, *found), keys = view.survey([names.config_key(self.address.queue), *heads], ranges)
            if stored is None:
                raise QueueNotFound(f"there is no queue {self.address.queue!r}")
            if known.data != stored:  # new to us, changed, or made anew
                root, known = known.root, self._known_from(stored)
                if root != known.root:
                    continue
            if found[0] is None and not self._is_new(view, known):
                continue
            head = self._decoded(found[0], known.root, view.calendar)
            ticket = before.ticket() if ranges else head.ticket()
            if ticket != head.ticket():
                continue  # what was listed may be older than what has been forgotten
            if ranges and head.held > before.held:  # absorbed blocks must not hide the ones behind them
                keys = view.survey([], ranges_of(known.root, head))[1]
            return Seen(known.config, self._rules(known.config, view), known.root, head, ticket, self.window), keys

    def _is_new(self, view: Reading, known: _Known) -> bool:
        """Of a log without a head: Damaged if it had one. False: by a second look it has, or is of another queue."""
        if known.root == self._new_root:
            return True
        if not queues.is_used(view, known.root, known.config):
            self._new_root = known.root
            return True
        now = queues.read_current(view, self.address.queue)
        if now.incarnation == known.config.incarnation and view.get(known.root + "head") is None:
            raise queues.lost_head(known.root)
        return False

    def stored(self, root: str) -> Head:
        """Not one that we tried to write, nor of the queue's life before: by its count lists are judged."""
        known, head = self._sure
        return head if known == root else Head()

    def _rules(self, config: Config, view: Reading) -> Rules:
        basis, rules = self._ruled  # a local, as in `survey`
        if basis != (config, self._space.format, view.calendar):
            basis = config, self._space.format, view.calendar
            rules = self.address.rules(*basis)
            self._ruled = basis, rules
        return self.window.rules(rules, view.now)

    def _known_from(self, stored: bytes) -> _Known:
        config = queues.decode(stored, self.address.queue)
        if config.closing is not None:
            raise QueueNotFound(f"there is no queue {self.address.queue!r}")
        if config.store and self._space.store_id and config.store != self._space.store_id:
            raise UnsafeStore(
                f"queue {self.address.queue!r} is of the store {config.store}, this is {self._space.store_id}: "
                "parts of two stores were put together; restore either from a backup"
            )
        self._known = _Known(stored, config, self.address.root(config), time.monotonic())
        return self._known

    def _decoded(self, stored: bytes | None, root: str, calendar: Calendar) -> Head:
        data, head, dated = self._head
        if stored is None:
            head = Head()
        elif data != stored or dated != calendar:  # no tags: what a failed commit left here can never look current
            head = damage.read(root + "head", partial(codec.decode, calendar=calendar), stored)
            self._head = (stored, head, calendar)
            self._new_root = ""
        self._sure = (root, head)
        return head

    def _commit(self, tx: Transaction, requests: list[Request]) -> Head | None:
        """Apply everything; the new head, or None when nothing changed."""
        demand = sum(each.limit for request in requests for each in request.intents if type(each) is Claim)
        seen, absorbed, next_due = self.window.intake(self.survey, tx, min(demand, _PAGE))
        session = Session(tx, seen, self._cache)
        intents: list[Intent] = [Expire()]
        for request in requests:
            intents += request.intents
        intents += self.window.tidying(seen.head)
        if absorbed.keys or absorbed.spent:
            intents.append(absorbed)
        results = session.do(intents)
        self.window.given(session, results)
        self._answer(session, requests, results, next_due)
        return self._save(session)

    def _edit(self, tx: Transaction, change: Callable[[Session], T], demand: int) -> tuple[T, Head | None]:
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

    def _answer(self, session: Session, requests: list[Request], results: list[Result], later: float | None) -> None:
        place = 1
        expired = cast(list[Exhausted], results[0])
        for request in requests:
            own = results[place : place + len(request.intents)]
            place += len(request.intents)
            given = [*expired, *(each for result in own if isinstance(result, list) for each in result)]
            blocks = self.window.load(session, request, {each.block for each in given}) if given else {}
            now = max(session.head.now, session.tx.now)
            request.answer = Answer(own, session.head, now, session.seen.rules, blocks, later, expired)
            expired = []  # told once, to the first
            if request.then is not None:
                request.then(session)
