"""Appends with dedup keys where a space has no transactions: each such message is a block of its own, promised."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .... import ids
from ....ids import Ids
from ...records import Enqueued, Envelope
from .. import drafts, queues, rows
from ..calendar import SAME
from ..head import repeat as margins
from ..head.state import lasting
from ..names import BlockName, due_of
from ..rows import Rows
from ..space import Transaction
from .promises import Promise, Promises

if TYPE_CHECKING:
    from .space import CloudSpace

_AT_ONCE = 16
_TIMELY = 3.0  # seconds for which a number can be used


class PromisedAppends:
    """One per queue and process."""

    def __init__(
        self,
        space: CloudSpace,
        queue: str,
        maker: Ids,
        promises: Promises,
        *,
        timeout: float,
        is_there: Callable[[str], Awaitable[bool]],
        added: Callable[[Sequence[str]], None],
    ) -> None:
        """`added` is told of every message, with its key if it is a delayed one that was written here."""
        self._space = space
        self._queue = queue
        self._ids = maker
        self._promises = promises
        self._timeout = timeout
        self._is_there = is_there
        self._added = added
        self._own = os.urandom(4).hex()  # in the promises that are made here
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def append(self, messages: Sequence[Envelope], name: Callable[[str, str], str]) -> list[Enqueued]:
        """In order; `name` makes the promise's key of the queue's root and a dedup key."""
        address, began = queues.address(self._queue), time.monotonic()
        config = await self._space.read(lambda view: queues.read(view, address.queue), deadline=self._timeout)
        left = max(0.0, self._timeout - (time.monotonic() - began))  # of the time that each promise has
        root, window = address.root(config), config.options.dedup_window
        shared = queues.address(address.queue).root(config)  # a key is remembered for all shards
        firsts = {each.dedup_key or "": each for each in reversed(messages)}
        now = self._space.clock()
        # Numbers are made before anything is sent: the order of the messages is the order of the call.
        numbers = {
            key: self._number(firsts[key], now) for key in dict.fromkeys(each.dedup_key or "" for each in messages)
        }

        async def one(key: str, number: int) -> tuple[str, Enqueued]:
            async with self._turns:
                return key, await self._one(root, name(shared, key), firsts[key], window, number, left)

        made = dict(await asyncio.gather(*(one(key, number) for key, number in numbers.items())))
        return [
            made[key] if firsts[key := each.dedup_key or ""] is each else Enqueued(made[key].id, False)
            for each in messages
        ]

    def _number(self, message: Envelope, now: float) -> int:
        return self._ids.block(now, message.priority, carried=_due(message, now) > 0)

    def _remembered(self, window: float, promise: Promise) -> float:
        """Seconds: clocks differ, and may run fast."""
        return lasting(window) + (0.0 if promise.by == self._own else margins.MARGIN)

    async def _one(
        self, root: str, name: str, message: Envelope, window: float, number: int, within: float
    ) -> Enqueued:
        own: set[str] = set()

        def decide(tx: Transaction, holds: Promise | None) -> Promise | None:
            if holds is not None and tx.now < holds.at + self._remembered(window, holds):
                return None
            timely = tx.now - ids.born_at(number) < _TIMELY
            made = _promise(tx.now, root, message, number if timely else self._number(message, tx.now))
            own.add(made.said)
            return replace(made, by=self._own)

        async def was_kept(promise: Promise) -> bool:
            return await self._is_there(promise.said)

        promise = await self._promises.keep(name, decide, was_kept, within=within)
        key = promise.key[len(root) :]
        self._added([key] if key and promise.by == self._own and due_of(key) else [])
        return Enqueued(str(promise.said), promise.said in own)


def _due(message: Envelope, now: float) -> float:
    """When it is visible; 0: at once."""
    due = message.at if message.at is not None else now + message.delay if message.delay > 0 else 0.0
    return due if due > now else 0.0


def _promise(now: float, root: str, message: Envelope, block: int) -> Promise:
    due = _due(message, now)
    until = drafts.end(message.expires, message.lifetime, now, SAME)
    name = BlockName(f"{block:032x}", 1, message.priority, message.max_attempts or 0, 0, expires=until)
    headers: list[dict[str, str] | None] | None = [message.headers] if message.headers else None
    data = bytes(rows.encode(Rows([message.payload], message.content_type, headers)))
    return Promise(now, ids.text(block), root + (name.later_key(due) if due else name.inbox_key()), data)
