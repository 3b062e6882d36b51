"""Producers: calls that arrive together share one block and one commit; nobody touches the head."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec

from ... import ids
from ...ids import Ids
from ..records import Envelope, Uniform
from . import drafts, names, queues, rows
from .calendar import Calendar
from .entries import Entry, Owner, Ready
from .names import BlockName
from .space import AtomicSpace, Buffer, Reading, Space, Transaction
from .topics import work_topic

if TYPE_CHECKING:
    from .repeat_window import RepeatWindow

_running_loop = asyncio._get_running_loop  # None instead of an error where there is none
_DEDUP_KEY = 4  # its place among the terms


class Call(Entry[list[str]]):
    """What one caller appends, or several with a message each; its result are the ids."""

    __slots__ = ("blocks", "joined", "messages", "root", "size")

    def __init__(self, owner: Owner, messages: Sequence[Envelope]) -> None:
        super().__init__(owner)
        self.messages = messages
        self.blocks: list[Block] = []  # if they were made before, since some of them are files
        self.root = ""  # where those lie
        self.joined: list[asyncio.Future[list[str]]] = []  # of the second caller and those after it
        payloads = messages.payloads if type(messages) is Uniform else [each.payload for each in messages]
        self.size = sum(map(len, payloads))

    @property
    def has_dedup_keys(self) -> bool:
        messages = self.messages
        if type(messages) is Uniform:
            return messages.terms[_DEDUP_KEY] is not None
        return any(each.dedup_key is not None for each in messages)

    def join(self, messages: Sequence[Envelope]) -> asyncio.Future[list[str]] | None:
        """One more message with the same terms; None: it is not, or this is no such call."""
        mine = self.messages
        if type(mine) is not Uniform or type(messages) is not Uniform or len(messages.payloads) > 1:
            return None
        if len(mine.payloads) != len(self.joined) + 1 or mine.terms != messages.terms or self.has_dedup_keys:
            return None
        if mine.content_type != messages.content_type:
            return None
        if not self.joined:
            self.messages = mine = Uniform([*mine.payloads], mine.content_type, mine.terms)  # ours to change
        payload = messages.payloads[0]
        mine.payloads.append(payload)
        self.size += len(payload)
        future = cast("asyncio.Future[list[str]]", self.future).get_loop().create_future()
        self.joined.append(future)
        return future

    @property
    def has_company(self) -> bool:
        return bool(self.joined)

    @property
    def is_cancelled(self) -> bool:
        return not self.joined and super().is_cancelled

    @property
    def is_over(self) -> bool:
        return super().is_over and all(future.done() for future in self.joined)

    def tell(self) -> None:
        if not self.joined:
            super().tell()
        elif self.error is not None:
            self.refuse(self.error)
        else:
            for future, id in zip(self._futures(), self.result, strict=True):
                if not future.done():  # its caller gave up
                    future.set_result([id])

    def refuse(self, error: BaseException) -> None:
        for future in self._futures():
            if not future.done():
                future.set_exception(error)

    def _futures(self) -> list[asyncio.Future[list[str]]]:
        return [cast("asyncio.Future[list[str]]", self.future), *self.joined]


class Block(msgspec.Struct, frozen=True, gc=False):
    """A block ready to be written: its key, relative to the queue, and its bytes."""

    key: str
    data: Buffer
    kind: tuple[int, float, int]
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
    ) -> None:
        self._space = space
        self._queue_name = queue
        self._ids = maker
        self._timeout = timeout
        self._step = step
        self._commits = window.calls()
        self._topic = work_topic(queue)
        self._config_key = names.config_key(queue)
        self._config = b""
        self._root = ""  # of the queue, as last seen

    def append(self, messages: Sequence[Envelope]) -> Awaitable[list[str]]:
        """Ids, once the messages are durable."""
        if not messages:
            return Ready([])
        loop = _running_loop()
        last = self._commits.gathered(loop) if loop is not None else None
        if type(last) is Call and last.owner is self and (joined := last.join(messages)) is not None:
            self._expect_joined(last)
            return joined
        call = Call(self, messages)
        if self._step is not None or (self._is_large(call.size) and not call.has_dedup_keys):
            return self._append(call)
        return self._commits.put(call, self._timeout)

    async def _append(self, call: Call) -> list[str]:
        if self._is_large(call.size) and not call.has_dedup_keys:
            await self._expect_files(call)
        made = await self._commits.put(call, self._timeout)
        if self._step is not None:
            await self._step("append.committed")
        return made

    async def _expect_files(self, call: Call) -> None:
        """Large blocks are files, which the leader writes where they belong as far as we know, before it shows them."""
        if not self._root:
            await self._space.read(self._look, deadline=self._timeout)
        await cast(AtomicSpace, self._space).expect_files(self._root)
        call.before = partial(self._write_files, call)

    def _expect_joined(self, call: Call) -> None:
        """The same for single messages that have become many, once files may be written there."""
        if call.before is None and self._is_large(call.size) and self._root:
            if cast(AtomicSpace, self._space).expects_files(self._root):
                call.before = partial(self._write_files, call)

    def _write_files(self, call: Call) -> None:
        now, calendar = self._space.clock(), self._space.calendar()
        call.root = self._root
        call.blocks = blocks_of([call], self._ids, now, calendar)
        hand_out([call], call.blocks, now, calendar)
        files = [(call.root + block.key, block.data) for block in call.blocks if self._is_file(block)]
        cast(AtomicSpace, self._space).write_files(files)

    def _is_file(self, block: Block) -> bool:
        return self._is_large(len(block.data))

    def _is_large(self, size: int) -> bool:
        threshold = self._space.file_threshold
        return threshold is not None and size >= threshold

    # As the owner of calls.

    def step(self, tx: Transaction, entries: Sequence[Call]) -> None:
        """All calls that wait share blocks and one commit."""
        fresh = []
        for call in entries:
            if call.blocks:
                self._publish(tx, blocks=call.blocks, written_at=call.root)
            else:
                fresh.append(call)
        if any([call.has_dedup_keys for call in fresh]):
            self._append_once(tx, fresh)
        elif fresh:
            blocks = blocks_of(fresh, self._ids, tx.now, tx.calendar)
            hand_out(fresh, blocks, tx.now, tx.calendar)
            self._publish(tx, blocks=blocks)

    def committed(self, entries: Sequence[Call]) -> None: ...

    def abandoned(self, entry: Call) -> None: ...

    # What runs inside the transaction.

    def _look(self, view: Reading) -> None:
        """Find out where the queue lies now; the options are only read again when they have changed."""
        found = view.get(self._config_key)
        if found is None or found.data != self._config:
            self._root = queues.address(self._queue_name).root(queues.read(view, self._queue_name))
            self._config = found.data if found else b""

    def _publish(self, tx: Transaction, *, blocks: list[Block], written_at: str = "") -> None:
        """Show the blocks; those that are files already lie below a root, which may be that of a queue of before."""
        self._look(tx)
        for block in blocks:
            if written_at == self._root and self._is_file(block):
                tx.adopt(self._root + block.key)
            else:
                tx.create(self._root + block.key, block.data)
        tx.signal(self._topic)

    def _append_once(self, tx: Transaction, calls: Sequence[Call]) -> None:
        """With dedup keys: what is remembered is looked up where the new blocks are written."""
        config = queues.read(tx, self._queue_name)
        root = queues.address(self._queue_name).root(config)
        fresh: list[Call] = []
        answers: list[list[str | None]] = []
        noted: dict[str, str] = {}
        for call in calls:
            known = [_remembered(tx, root, each, config.options.dedup_window, noted) for each in call.messages]
            new = [each for each, id in zip(call.messages, known, strict=True) if id is None]
            fresh.append(Call(self, new))
            answers.append(known)
        blocks = blocks_of(fresh, self._ids, tx.now, tx.calendar)
        hand_out(fresh, blocks, tx.now, tx.calendar)
        for block in blocks:
            tx.create(root + block.key, block.data)
        for call, part, known in zip(calls, fresh, answers, strict=True):
            made = iter(part.result)
            call.result = []
            for message, id in zip(call.messages, known, strict=True):
                if id is None:
                    id = next(made)
                    _remember(tx, root, message, id)
                    noted[message.dedup_key or ""] = id
                call.result.append(noted[id[1:]] if id.startswith("=") else id)
        tx.signal(self._topic)


def blocks_of(
    calls: Sequence[Call], maker: Ids, now: float, calendar: Calendar, *, carried: bool = False
) -> list[Block]:
    """Blocks for all messages of the calls, in order."""
    blocks = []
    for draft in drafts.drafts(joined(calls), now, calendar):
        block = maker.block(now, draft.priority, carried=carried or draft.due != 0)
        name = BlockName(f"{block:032x}", draft.count, draft.priority, draft.max_attempts, 0)
        key = name.later_key(draft.due) if draft.due else name.inbox_key()
        blocks.append(Block(key, rows.encode_at_once(draft.rows()), draft.kind, block, draft.count))
    return blocks


def joined(calls: Sequence[Call]) -> list[Sequence[Envelope]]:
    """Their messages; calls in a row with the same terms become one, for most are of one message."""
    if len(calls) == 1:
        return [calls[0].messages]
    found: list[Sequence[Envelope]] = []
    last: Uniform | None = None
    for call in calls:
        each = call.messages
        if type(each) is not Uniform:
            last = None
        elif last is not None and each.terms == last.terms and each.content_type == last.content_type:
            last.payloads += each.payloads
            continue
        else:
            each = last = Uniform(list(each.payloads), each.content_type, each.terms)
        found.append(each)
    return found


def hand_out(calls: Sequence[Call], blocks: list[Block], now: float, calendar: Calendar) -> None:
    """Give each call the ids of its messages, in the order of its messages."""
    made: dict[tuple[int, float, int], list[str]] = {}
    for block in blocks:
        made.setdefault(block.kind, []).extend(ids.texts(block.number, block.count))
    if len(made) == 1:
        (every,) = made.values()
        start = 0
        for call in calls:
            call.result = every[start : start + len(call.messages)]
            start += len(call.messages)
        return
    rest = {kind: iter(texts) for kind, texts in made.items()}
    for call in calls:
        call.result = [next(rest[drafts.kind(each, now, calendar)]) for each in call.messages]


def dedup_key(root: str, key: str) -> str:
    return f"{root}dedup/{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}"


def _remembered(tx: Transaction, root: str, message: Envelope, window: float, noted: dict[str, str]) -> str | None:
    """The id that a dedup key stands for, `=key` when it is new earlier in this very write, None when it is new."""
    key = message.dedup_key
    if key is None:
        return None
    if key in noted:
        return "=" + key
    found = tx.get(dedup_key(root, key))
    if found is not None:
        at, id = msgspec.msgpack.decode(found.data, type=tuple[float, str])
        if tx.now < at + window:
            return id
    noted[key] = ""
    return None


def _remember(tx: Transaction, root: str, message: Envelope, id: str) -> None:
    if message.dedup_key is not None:
        tx.put(dedup_key(root, message.dedup_key), msgspec.msgpack.encode((tx.now, id)))
