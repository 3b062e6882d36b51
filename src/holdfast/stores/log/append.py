"""Producers: calls that arrive together share one block and one commit; nobody touches the head."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ... import ids
from ...errors import HoldfastError, Unavailable
from ...ids import Ids
from ..base import CallName
from ..records import PLAIN, Enqueued, Envelope, Terms, Uniform
from . import call_names, damage, drafts, names, queues, rows
from .calendar import Calendar
from .names import BlockName
from .space import Buffer, NewFiles, Reading, Space, Transaction
from .topics import work_topic

if TYPE_CHECKING:
    from .repeat_window import RepeatWindow

_NO_IDS: list[str] = []
_DEDUP_KEY = 4  # its place among the terms
_IN_FLIGHT = 3  # appends under way before further calls gather


class Call(msgspec.Struct, eq=False, gc=False):
    """What one caller appends, and who waits for its ids.

    There are many, so the garbage collector does not look at them: each lets go of its future with the answer.
    """

    messages: Sequence[Envelope]
    future: asyncio.Future[list[str]] | None = None
    ids: list[str] = _NO_IDS
    name: CallName | None = None  # by which a repeat is known
    news: list[bool] | None = None  # which messages are new; None: all of them

    def answer(self) -> None:
        future, self.future = self.future, None
        if future is not None and not future.done():
            future.set_result(self.ids)

    def refuse(self, error: BaseException) -> None:
        future, self.future = self.future, None
        if future is not None and not future.done():
            future.set_exception(error)

    @property
    def is_alone(self) -> bool:
        return True

    @property
    def has_dedup_keys(self) -> bool:
        messages = self.messages
        if len(messages) == 1:
            return messages[0].dedup_key is not None
        return type(messages) is not Uniform and any(each.dedup_key is not None for each in messages)


class Singles(Call, gc=False, kw_only=True):
    """Single calls with the same terms that came one after the other: one call to everybody but those who wait."""

    messages: Uniform
    futures: list[asyncio.Future[str]]

    @property
    def is_alone(self) -> bool:
        return len(self.futures) == 1

    def answer(self) -> None:
        for future, id in zip(self.futures, self.ids, strict=True):
            try:
                future.set_result(id)
            except asyncio.InvalidStateError:  # its caller gave up; to ask each first takes longer
                continue
        self.futures.clear()

    def refuse(self, error: BaseException) -> None:
        for future in self.futures:
            if not future.done():
                future.set_exception(error)
        self.futures.clear()


class Block(msgspec.Struct, frozen=True, gc=False):
    """A block ready to be written: its key, relative to the queue, and its bytes."""

    key: str
    data: Buffer
    kind: drafts.Kind
    number: int
    count: int


class Appender:
    """One per queue and process."""

    def __init__(
        self,
        space: Space,
        queue: str,
        maker: Ids,
        window: RepeatWindow,
        *,
        timeout: float,
        step: Callable[[str], Awaitable[None]] | None,
        linger: float = 0.0,
    ) -> None:
        """`linger`: seconds for which a single call waits for others."""
        self._linger = linger
        self._lingering: asyncio.TimerHandle | None = None
        self._space = space
        self._queue = queue
        self._ids = maker
        self._window = window
        self._timeout = timeout
        self._step = step
        self._waiting: list[Call] = []
        self._gathering: Singles | None = None  # the last that waits, if further single calls may join it
        self._under_way: set[asyncio.Future[Any]] = set()
        self._scheduled = False
        self._was_alone = True  # what was begun last had no company
        self._config = b""
        self._root = ""  # of the queue, as last seen
        self._window_s = 0.0  # of its dedup keys

    def append(self, messages: Sequence[Envelope], name: CallName | None = None) -> asyncio.Future[list[str]]:
        """Ids, once the messages are durable; those of the first call of this name, if it has one."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[str]] = loop.create_future()
        if not messages:
            future.set_result([])
            return future
        self._join(Call(messages, future, name=name), loop)
        return future

    async def append_once(self, messages: Sequence[Envelope]) -> list[Enqueued]:
        """The same, and which messages are new."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[str]] = loop.create_future()
        call = Call(messages, future)
        self._join(call, loop)
        made = await future
        return [Enqueued(id, new) for id, new in zip(made, call.news or [True] * len(made), strict=True)]

    def _join(self, call: Call, loop: asyncio.AbstractEventLoop) -> None:
        self._gathering = None  # who comes now comes later
        self._waiting.append(call)
        if self._linger and self._lingers(call, loop):
            return
        if not self._scheduled:
            self._gather_or_start(loop)

    def _lingers(self, call: Call, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it waits for others; one that does not takes those along that do."""
        if len(call.messages) == 1 and not call.has_dedup_keys and len(self._waiting) < drafts.BLOCK_MESSAGES:
            if not self._scheduled:
                self._scheduled, self._lingering = True, loop.call_later(self._linger, self._start)
            return True
        if self._lingering is not None:
            self._lingering.cancel()
            self._scheduled = False
        return False

    def append_one(self, payload: bytes, content_type: str, terms: Terms) -> asyncio.Future[str] | None:
        """The id of one message, once it is durable; None: with these terms it is a call of its own."""
        if terms is not PLAIN and (terms[_DEDUP_KEY] is not None or terms[-2:] != PLAIN[-2:]):
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = asyncio.Future(loop=loop)
        group = self._gathering
        if group is None or group.messages.terms != terms or group.messages.content_type != content_type:
            group = self._gathering = Singles(messages=Uniform([], content_type, terms), futures=[])
            self._waiting.append(group)
        group.messages.payloads.append(payload)
        group.futures.append(future)
        if not self._scheduled:
            self._gather_or_start(loop)
        return future

    def _gather_or_start(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._under_way and self._was_alone:
            self._start()  # a lone caller does not wait for others
        elif len(self._under_way) < _IN_FLIGHT:
            self._scheduled = True
            loop.call_soon(self._start)

    def _start(self) -> None:
        self._scheduled, self._lingering = False, None
        if not self._waiting:
            return
        calls, self._waiting, self._gathering = self._waiting, [], None
        before, self._was_alone = self._was_alone, len(calls) == 1 and calls[0].is_alone
        try:
            written = self._write(calls, alone=before and self._was_alone and not self._under_way)
        except Exception as error:  # noqa: BLE001  every caller must learn of it, whatever it is
            self._end_turn()
            _refuse(calls, error)
            return
        if written is None:
            self._end_turn()
            _tell(calls)
        else:
            self._under_way.add(written)
            written.add_done_callback(partial(self._finished, calls))

    def _end_turn(self) -> None:
        """What ends at once does so once per turn of the event loop: others have theirs, and calls can gather."""
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._start)

    def _finished(self, calls: list[Call], written: asyncio.Future[Any]) -> None:
        self._under_way.discard(written)
        if written.cancelled():
            _refuse(calls, Unavailable("the append was cancelled; whether it took effect is unknown"))
        elif (error := written.exception()) is not None:
            _refuse(calls, error)
        else:
            _tell(calls)
        if self._waiting and not self._scheduled:
            self._start()

    def _write(self, calls: list[Call], *, alone: bool) -> asyncio.Future[Any] | None:
        """Begin to write; no task where none is needed: a lone caller waits for every turn of the event loop.

        None: it is written already.
        """
        written = self._window.append(calls)
        if written is not None:
            return self._awaited(written)
        if any(call.name is not None for call in calls):
            return asyncio.ensure_future(self._write_named(calls))
        if any(call.has_dedup_keys for call in calls):
            return self._commit(partial(self._append_once, calls=calls))
        now, calendar = self._space.clock(), self._space.calendar()
        blocks = blocks_of(calls, self._ids, now, calendar)
        large = self._large(blocks)
        if alone and self._write_at_once(blocks, large):
            hand_out(calls, blocks, now, calendar)
            return None
        if large:
            return asyncio.ensure_future(
                self._write_large(blocks, large, meanwhile=partial(hand_out, calls, blocks, now, calendar))
            )
        written = self._commit(partial(self._publish, blocks=blocks, large=large, root=None))
        hand_out(calls, blocks, now, calendar)
        return written

    def _write_at_once(self, blocks: list[Block], large: list[Block]) -> bool:
        root = self._root if large else None
        if root == "" or self._step is not None:
            return False
        publish = partial(self._publish, blocks=blocks, large=large, root=root)
        done = self._space.at_once(publish, files=self._files(large))
        return done is not None and done[0]

    async def _write_named(self, calls: list[Call]) -> None:
        """Each call's name is noted with its messages; where one was made before, each is looked at alone."""
        if not any(call.has_dedup_keys for call in calls):
            now, calendar = self._space.clock(), self._space.calendar()
            blocks = blocks_of(calls, self._ids, now, calendar)
            hand_out(calls, blocks, now, calendar)
            try:
                return await self._write_large(blocks, self._large(blocks), calls=calls)
            except call_names.Known:
                pass
        for call in calls:
            try:
                await self._commit(partial(self._append_once, calls=[call]))
            except HoldfastError as error:
                call.refuse(error)

    def _large(self, blocks: list[Block]) -> list[Block]:
        threshold = self._space.file_threshold
        return [block for block in blocks if threshold is not None and len(block.data) >= threshold]

    def _files(self, large: list[Block]) -> NewFiles:
        return [(self._root + block.key, block.data) for block in large]

    def _commit(self, step: Callable[[Transaction], object], files: NewFiles = ()) -> asyncio.Future[Any]:
        return self._awaited(asyncio.ensure_future(self._space.transact(step, deadline=self._timeout, files=files)))

    def _awaited(self, written: asyncio.Future[Any]) -> asyncio.Future[Any]:
        return written if self._step is None else asyncio.ensure_future(self._stopped(written, self._step))

    @staticmethod
    async def _stopped(written: asyncio.Future[Any], step: Callable[[str], Awaitable[None]]) -> object:
        """For tests, which stop the engine between the commit and its answer."""
        result = await written
        await step("append.committed")
        return result

    async def _write_large(
        self,
        blocks: list[Block],
        large: list[Block],
        *,
        meanwhile: Callable[[], None] = lambda: None,
        calls: Sequence[Call] = (),
    ) -> None:
        """Large blocks are files, written where they belong as far as we know; then a transaction shows them all."""
        if not self._root:
            await self._space.read(self._look, deadline=self._timeout)
        written = self._commit_large(blocks, large, calls)
        meanwhile()  # the disk has begun
        while not await written:
            written = self._commit_large(blocks, large, calls)

    def _commit_large(self, blocks: list[Block], large: list[Block], calls: Sequence[Call]) -> asyncio.Future[Any]:
        publish = partial(self._publish, blocks=blocks, large=large, root=self._root, calls=calls)
        return self._commit(publish, self._files(large))

    def _look(self, view: Reading) -> None:
        """Find out where the queue lies now; the options are only read again when they have changed."""
        found = view.get(names.config_key(self._queue))
        if found is None or found.data != self._config:
            config = queues.read(view, self._queue)
            self._root, self._window_s = queues.address(self._queue).root(config), config.options.dedup_window
            self._config = found.data if found else b""

    def _publish(
        self,
        tx: Transaction,
        *,
        blocks: list[Block],
        large: list[Block],
        root: str | None,
        calls: Sequence[Call] = (),
    ) -> bool:
        """Show the blocks; False: the queue was made anew meanwhile, and the files lie under the old one."""
        self._look(tx)
        if root is not None and root != self._root:
            return False
        for call in calls:
            if call.name is not None:
                if call_names.find(tx, self._root, call.name) is not None:
                    raise call_names.Known
                call_names.note(tx, self._root, call.name, call.ids, window=self._window_s)
        for block in blocks:
            if block in large:
                tx.adopt(self._root + block.key)
            else:
                tx.create(self._root + block.key, block.data)
        tx.signal(work_topic(self._queue))
        return True

    def _append_once(self, tx: Transaction, calls: list[Call]) -> None:
        """With dedup keys: what is remembered is looked up where the new blocks are written."""
        config = queues.read(tx, self._queue)
        root = queues.address(self._queue).root(config)
        if calls[0].name is not None and (known_ids := call_names.find(tx, root, calls[0].name)) is not None:
            calls[0].ids = known_ids  # a named one is alone here
            return
        fresh: list[Call] = []
        answers: list[list[str | None]] = []
        noted: dict[str, str] = {}
        for call in calls:
            known = [_remembered(tx, root, each, config.options.dedup_window, noted) for each in call.messages]
            new = [each for each, id in zip(call.messages, known, strict=True) if id is None]
            fresh.append(Call(new, None))
            answers.append(known)
        blocks = blocks_of(fresh, self._ids, tx.now, tx.calendar)
        hand_out(fresh, blocks, tx.now, tx.calendar)
        for block in blocks:
            tx.create(root + block.key, block.data)
        for call, part, known in zip(calls, fresh, answers, strict=True):
            made = iter(part.ids)
            call.ids, call.news = [], [id is None for id in known]
            for message, id in zip(call.messages, known, strict=True):
                if id is None:
                    id = next(made)
                    _remember(tx, root, message, id)
                    noted[message.dedup_key or ""] = id
                call.ids.append(noted[id[1:]] if id.startswith("=") else id)
            if call.name is not None:
                call_names.note(tx, root, call.name, call.ids, window=config.options.dedup_window)
        tx.signal(work_topic(self._queue))


def blocks_of(calls: list[Call], maker: Ids, now: float, calendar: Calendar, *, carried: bool = False) -> list[Block]:
    """Blocks for all messages of the calls, in order."""
    blocks = []
    for draft in drafts.drafts([call.messages for call in calls], now, calendar):
        block = maker.block(now, draft.priority, carried=carried or draft.due != 0)
        name = BlockName(f"{block:032x}", draft.count, draft.priority, draft.max_attempts, 0, expires=draft.expires)
        key = name.later_key(draft.due) if draft.due else name.inbox_key()
        blocks.append(Block(key, rows.encode_at_once(draft.rows()), draft.kind, block, draft.count))
    return blocks


def _tell(calls: list[Call]) -> None:
    for call in calls:
        call.answer()


def _refuse(calls: list[Call], error: BaseException) -> None:
    for call in calls:
        call.refuse(error)


def hand_out(calls: list[Call], blocks: list[Block], now: float, calendar: Calendar) -> None:
    """Give each call the ids of its messages, in the order of its messages."""
    made: dict[drafts.Kind, list[str]] = {}
    for block in blocks:
        made.setdefault(block.kind, []).extend(ids.texts(block.number, block.count))
    if len(made) == 1:
        (every,) = made.values()
        start = 0
        for call in calls:
            call.ids = every[start : start + len(call.messages)]
            start += len(call.messages)
        return
    rest = {kind: iter(texts) for kind, texts in made.items()}
    for call in calls:
        call.ids = [next(rest[drafts.kind(each, now, calendar)]) for each in call.messages]


_MARK = msgspec.msgpack.Decoder(tuple[float, str])  # of a dedup key: when it was written, and the id


def _remembered(tx: Transaction, root: str, message: Envelope, window: float, noted: dict[str, str]) -> str | None:
    """The id that a dedup key stands for, `=key` when it is new earlier in this very write, None when it is new."""
    key = message.dedup_key
    if key is None:
        return None
    if key in noted:
        return "=" + key
    id = remembered(tx, root, key, window)
    if id is None:
        noted[key] = ""
    return id


def remembered(tx: Transaction, root: str, key: str, window: float) -> str | None:
    """The id that a dedup key stands for; Damaged: it would be a guess whether the message is new."""
    mark = names.dedup_key(root, key)
    found = tx.get(mark)
    at, id = damage.read(mark, _MARK.decode, found.data) if found is not None else (0.0, None)
    return id if tx.now < at + window else None


def _remember(tx: Transaction, root: str, message: Envelope, id: str) -> None:
    if message.dedup_key is not None:
        tx.put(names.dedup_key(root, message.dedup_key), msgspec.msgpack.encode((tx.now, id)))
