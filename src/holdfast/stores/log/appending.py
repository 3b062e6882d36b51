"""Producers: calls that arrive together share one block and one commit; nobody touches the head."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter

import msgspec

from ... import ids
from ...ids import Ids
from ...messages import Envelope
from . import queues, rows
from .committer import work_topic
from .names import BlockName
from .rows import Rows
from .space import Buffer, Space, Transaction

BLOCK_MESSAGES = 1000
BLOCK_BYTES = 4 << 20
_IN_FLIGHT = 3  # appends under way before further calls gather


class _Call:
    __slots__ = ("future", "ids", "messages")

    def __init__(self, messages: Sequence[Envelope], future: asyncio.Future[list[str]]) -> None:
        self.messages = messages
        self.future = future
        self.ids: list[str] = []


class Draft(msgspec.Struct, gc=False):
    """A block that is being filled: messages that share priority, due time and attempts."""

    priority: int
    due: float
    max_attempts: int
    messages: list[Envelope]
    size: int = 0

    def fill(self, messages: list[Envelope], drafts: list[Draft]) -> Draft:
        """Add messages of this kind, opening further drafts as they fill up; the last one."""
        sizes = [len(each.payload) for each in messages]
        if len(self.messages) + len(messages) <= BLOCK_MESSAGES and self.size + sum(sizes) <= BLOCK_BYTES:
            self.messages += messages
            self.size += sum(sizes)
            return self
        draft = self
        for message, size in zip(messages, sizes, strict=True):
            full = len(draft.messages) >= BLOCK_MESSAGES or draft.size + size > BLOCK_BYTES
            if draft.messages and full:
                draft = Draft(self.priority, self.due, self.max_attempts, [])
                drafts.append(draft)
            draft.messages.append(message)
            draft.size += size
        return draft

    def rows(self) -> Rows:
        messages = self.messages
        content_types = {each.content_type for each in messages}
        headers = [each.headers for each in messages]
        return Rows(
            list(map(_payload, messages)),
            content_types.pop() if len(content_types) == 1 else [each.content_type for each in messages],
            headers if any(headers) else None,
        )


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
        self, space: Space, queue: str, maker: Ids, *, timeout: float, step: Callable[[str], Awaitable[None]]
    ) -> None:
        self._space = space
        self._queue = queue
        self._ids = maker
        self._timeout = timeout
        self._step = step
        self._waiting: list[_Call] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self._root = ""  # of the queue, as last seen

    async def append(self, messages: Sequence[Envelope]) -> list[str]:
        """Ids, once the messages are durable."""
        if not messages:
            return []
        loop = asyncio.get_running_loop()
        call = _Call(messages, loop.create_future())
        self._waiting.append(call)
        if not self._scheduled and len(self._under_way) < _IN_FLIGHT:
            self._scheduled = True
            loop.call_soon(self._start)
        return await call.future

    def _start(self) -> None:
        self._scheduled = False
        if not self._waiting:
            return
        calls, self._waiting = self._waiting, []
        task = asyncio.get_running_loop().create_task(self._write(calls))
        self._under_way.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if self._waiting and not self._scheduled:
            self._start()

    async def _write(self, calls: list[_Call]) -> None:
        try:
            if any(any(map(_dedup_key, call.messages)) for call in calls):
                await self._space.transact(lambda tx: self._append_once(tx, calls), deadline=self._timeout)
            else:
                await self._append_all(calls)
        except Exception as error:  # noqa: BLE001  every caller must learn of it, whatever it is
            for call in calls:
                if not call.future.done():
                    call.future.set_exception(error)
            return
        await self._step("append.committed")
        for call in calls:
            if not call.future.done():
                call.future.set_result(call.ids)

    async def _append_all(self, calls: list[_Call]) -> None:
        """The common way: blocks are made first, large ones written as files, then one transaction shows them."""
        now = self._space.clock()
        blocks = self._blocks(calls, now)
        threshold = self._space.file_threshold
        large = [block for block in blocks if threshold is not None and len(block.data) >= threshold]
        root = await self._write_files(large, partial(_hand_out, calls, blocks, now))
        while not await self._space.transact(
            partial(self._publish, blocks=blocks, large=large, root=root), deadline=self._timeout
        ):
            root = await self._write_files(large)

    async def _write_files(self, large: list[Block], meanwhile: Callable[[], None] | None = None) -> str | None:
        """Write the large blocks where they belong as far as we know; the root they lie under."""
        if large and not self._root:
            config = await self._space.read(lambda view: queues.read(view, self._queue), deadline=self._timeout)
            self._root = queues.address(self._queue).root(config)
        root = self._root
        writing = asyncio.gather(*(self._space.write_file(root + block.key, block.data) for block in large))
        if large:
            await asyncio.sleep(0)  # the disk has begun
        if meanwhile is not None:
            meanwhile()
        await writing
        return root if large else None

    def _publish(self, tx: Transaction, *, blocks: list[Block], large: list[Block], root: str | None) -> bool:
        """Show the blocks; False: the queue was made anew meanwhile, and the files lie under the old one."""
        self._root = queues.address(self._queue).root(queues.read(tx, self._queue))
        if root is not None and root != self._root:
            return False
        for block in blocks:
            if block in large:
                tx.adopt(self._root + block.key)
            else:
                tx.create(self._root + block.key, block.data)
        tx.signal(work_topic(self._queue))
        return True

    def _append_once(self, tx: Transaction, calls: list[_Call]) -> None:
        """With dedup keys: what is remembered is looked up where the new blocks are written."""
        config = queues.read(tx, self._queue)
        root = queues.address(self._queue).root(config)
        fresh: list[_Call] = []
        answers: list[list[str | None]] = []
        noted: dict[str, str] = {}
        for call in calls:
            known = [_remembered(tx, root, each, config.options.dedup_window, noted) for each in call.messages]
            new = [each for each, id in zip(call.messages, known, strict=True) if id is None]
            fresh.append(_Call(new, call.future))
            answers.append(known)
        blocks = self._blocks(fresh, tx.now)
        _hand_out(fresh, blocks, tx.now)
        for block in blocks:
            tx.create(root + block.key, block.data)
        for call, part, known in zip(calls, fresh, answers, strict=True):
            made = iter(part.ids)
            call.ids = []
            for message, id in zip(call.messages, known, strict=True):
                if id is None:
                    id = next(made)
                    _remember(tx, root, message, id)
                    noted[message.dedup_key or ""] = id
                call.ids.append(noted[id[1:]] if id.startswith("=") else id)
        tx.signal(work_topic(self._queue))

    def _blocks(self, calls: list[_Call], now: float) -> list[Block]:
        """Blocks for all messages of the calls, in order."""
        blocks = []
        for draft in _drafts(calls, now):
            block = self._ids.block(now, draft.priority, carried=draft.due > 0)
            name = BlockName(f"{block:032x}", len(draft.messages), draft.priority, draft.max_attempts, 0)
            key = name.later_key(draft.due) if draft.due else name.inbox_key()
            kind = (draft.priority, draft.due, draft.max_attempts)
            blocks.append(Block(key, rows.encode(draft.rows()), kind, block, len(draft.messages)))
        return blocks


_dedup_key = attrgetter("dedup_key")
_payload = attrgetter("payload")
_terms = attrgetter("priority", "delay", "at", "max_attempts")


def _due(delay: float, at: float | None, now: float) -> float:
    """When it is visible; 0: at once."""
    due = at if at is not None else now + delay if delay > 0 else 0.0
    return due if due > now else 0.0


def _kind(message: Envelope, now: float) -> tuple[int, float, int]:
    return message.priority, _due(message.delay, message.at, now), message.max_attempts or 0


def _drafts(calls: list[_Call], now: float) -> list[Draft]:
    """Messages in blocks of a bounded size that share everything the key says.

    Within a priority another kind starts another block, so that ids and order follow the input.
    """
    current: dict[int, Draft] = {}
    drafts: list[Draft] = []
    for call in calls:
        for terms, messages in groupby(call.messages, key=_terms):
            priority, delay, at, max_attempts = terms
            due = _due(delay, at, now)
            draft = current.get(priority)
            if draft is None or (draft.due, draft.max_attempts) != (due, max_attempts or 0):
                draft = Draft(priority, due, max_attempts or 0, [])
                drafts.append(draft)
            current[priority] = draft.fill(list(messages), drafts)
    return drafts


def _hand_out(calls: list[_Call], blocks: list[Block], now: float) -> None:
    """Give each call the ids of its messages, in the order of its messages."""
    made: dict[tuple[int, float, int], list[str]] = {}
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
        call.ids = [next(rest[_kind(each, now)]) for each in call.messages]


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
