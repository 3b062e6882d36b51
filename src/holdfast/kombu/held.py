"""What this process has claimed and not settled: its leases are renewed, and settlements go out in batches."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Literal, TypeAlias

from ..deliveries import Delivery
from ..errors import Damaged, HoldfastError, QueueNotFound, StoreError
from ..escaping import logger_named
from ..queue import Queue
from .requeue import requeue

if TYPE_CHECKING:
    from .link import Link

_LOG = logger_named("holdfast.kombu")
Word: TypeAlias = Literal["ack", "release", "requeue", "kill"]
Said: TypeAlias = tuple[Queue[bytes], Delivery[bytes], Word]
_RENEWALS = 6  # of a lease within its time: several may fail
_TRY_AGAIN_S = 0.5  # after a settlement that did not go through
_REJECTED = "rejected by its consumer"


class Held:
    """`begin`, `has` and `settle` are for any thread; the rest runs in the loop."""

    def __init__(self) -> None:
        self._leases: dict[str, tuple[Queue[bytes], Delivery[bytes], float]] = {}
        self._words: list[Said] = []
        self._saying: set[str] = set()  # tokens of which a word is on its way
        self._news: asyncio.Event | None = None
        self._idle: asyncio.Event | None = None
        self._back: asyncio.Event | None = None  # nothing is to be requeued
        self._is_away = False  # the store has not answered the last time

    def begin(self, link: Link) -> None:
        """From any thread."""
        link.start(self._renew())
        link.start(self._settle())

    def hold(self, queue: Queue[bytes], delivery: Delivery[bytes], lease: float) -> None:
        self._leases[delivery.token] = (queue, delivery, lease)

    def has(self, delivery: Delivery[bytes]) -> bool:
        """Whether its lease is still ours, as far as we know."""
        return delivery.token in self._leases

    def settle(self, link: Link, queue: Queue[bytes], delivery: Delivery[bytes], word: Word) -> None:
        """From any thread; it is done soon. A process that dies before it has not said it."""
        link.loop.call_soon_threadsafe(self.settle_soon, queue, delivery, word)

    def settle_soon(self, queue: Queue[bytes], delivery: Delivery[bytes], word: Word) -> None:
        self._words.append((queue, delivery, word))
        self._saying.add(delivery.token)
        if self._idle is not None:
            self._idle.clear()
        if self._back is not None and word == "requeue":
            self._back.clear()
        if self._news is not None:
            self._news.set()

    async def requeued(self) -> None:
        """What was given back until now is there again: what is published after it must not come before it."""
        await self._until(self._back)

    async def settled(self) -> None:
        """Everything that was said until now is done, or the store has not answered for the time of a lease."""
        await self._until(self._idle)

    async def _until(self, event: asyncio.Event | None) -> None:
        if event is None:
            return
        longest = max((lease for _, _, lease in self._leases.values()), default=_TRY_AGAIN_S)
        try:
            await asyncio.wait_for(event.wait(), longest)
        except TimeoutError:
            _LOG.error("the store does not answer: messages that are not settled come again when their leases end")

    async def _settle(self) -> None:
        self._news, self._idle, self._back = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._back.set()
        if self._words:
            self._news.set()
        while True:
            if not self._words:
                self._idle.set()
            await self._news.wait()
            self._news.clear()
            words, self._words = self._words, []
            groups: dict[tuple[int, Word], list[Said]] = defaultdict(list)
            for said in words:
                groups[id(said[0]), said[2]].append(said)
            left = await asyncio.gather(*(self._say(group) for group in groups.values()))
            again = [said for group in left for said in group]
            self._is_away = bool(again)
            self._words = again + self._words
            if not any(word == "requeue" for _, _, word in self._words):
                self._back.set()
            if again:
                self._news.set()
                await asyncio.sleep(_TRY_AGAIN_S)

    async def _say(self, group: list[Said]) -> list[Said]:
        """Of one queue and one word; what is to be said again. It is, as long as the store may come back.

        Until then the leases are renewed, or are lost; the store knows which, and refuses a word that comes too late.
        """
        queue, word = group[0][0], group[0][2]
        deliveries = [delivery for _, delivery, _ in group]
        try:
            done = await _said(queue, deliveries, word)
        except QueueNotFound:
            done = [True] * len(group)  # it was deleted with all that was in it
        except HoldfastError as error:
            if isinstance(error, StoreError) and not isinstance(error, Damaged):
                if not self._is_away:  # once is enough
                    _LOG.warning("%s: %d messages could not be settled yet: %s", queue.name, len(group), error)
                return group
            _LOG.error("%s: %d messages could not be settled and will come again: %s", queue.name, len(group), error)
            done = [True] * len(group)
        for delivery, is_done in zip(deliveries, done, strict=True):
            self._leases.pop(delivery.token, None)
            self._saying.discard(delivery.token)
            if not is_done:
                _LOG.warning("%s: the lease of %s was lost before its %s", queue.name, delivery.id, word)
        return []

    async def _renew(self) -> None:
        renewed: dict[str, float] = {}  # by token: when
        while True:
            leases = [lease for _, _, lease in self._leases.values()]
            await asyncio.sleep(min(leases, default=1.0) / _RENEWALS)
            now = time.monotonic()
            due: dict[tuple[int, float], list[tuple[Queue[bytes], Delivery[bytes]]]] = defaultdict(list)
            for token, (queue, delivery, lease) in self._leases.items():
                is_over = token in self._saying and not self._is_away  # nearly: its word comes before the lease ends
                if not is_over and now - renewed.setdefault(token, now) >= lease / _RENEWALS:
                    due[id(queue), lease].append((queue, delivery))
            for (_, lease), pairs in due.items():
                if await self._extend(pairs[0][0], [delivery for _, delivery in pairs], lease):
                    renewed.update((delivery.token, now) for _, delivery in pairs)
            renewed = {token: at for token, at in renewed.items() if token in self._leases}

    async def _extend(self, queue: Queue[bytes], deliveries: list[Delivery[bytes]], lease: float) -> bool:
        try:
            kept = await queue.extend_many(deliveries, lease)
        except HoldfastError as error:
            _LOG.warning("%s: %d leases could not be renewed yet: %s", queue.name, len(deliveries), error)
            return False
        for delivery, is_kept in zip(deliveries, kept, strict=True):
            if is_kept or delivery.token in self._saying:  # whose word says it, if it comes too late
                continue
            if self._leases.pop(delivery.token, None) is not None:
                _LOG.warning("%s: the lease of %s was lost; it may run twice", queue.name, delivery.id)
        return True


async def _said(queue: Queue[bytes], deliveries: list[Delivery[bytes]], word: Word) -> list[bool]:
    if word == "ack":
        return await queue.complete_many(deliveries, keep=False)
    if word == "release":
        return await queue.release_many(deliveries)
    if word == "requeue":
        return await requeue(queue, deliveries)
    return await queue.kill_many(deliveries, _REJECTED)
