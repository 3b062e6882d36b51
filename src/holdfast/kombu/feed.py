"""What one channel gets: claimed ahead of its consumers, as much as they may have."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..deliveries import Delivery
from ..errors import HoldfastError, QueueNotFound
from ..queue import Queue
from ..stores.base import LONG_POLL_S
from .names import queue_name

if TYPE_CHECKING:
    from .link import Link

Item = tuple[str, Queue[bytes], Delivery[bytes]]  # the first is the queue's name in kombu


class Feed:
    """`want`, `take`, `close` are for kombu's threads; the rest runs in the loop."""

    def __init__(self, link: Link, *, lease: float, ring: Callable[[], None]) -> None:
        self.error: HoldfastError | None = None  # why it has ended
        self._link = link
        self._lease = lease
        self._ring = ring  # there is something to take
        self._process = os.getpid()
        self._items: deque[Item] = deque()
        self._queues: tuple[str, ...] = ()
        self._room = 0  # how many more may be claimed
        self._last = ""  # the queue of which something was claimed last
        self._changed: asyncio.Event | None = None
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._items)

    def want(self, queues: Sequence[str], room: int) -> None:
        """So many more messages, of these queues."""
        wanted = tuple(dict.fromkeys(queues))
        if self._task is None:
            if not wanted:
                return
            self._queues, self._room = wanted, room
            self._link.keep_house()
            self._task = self._link.start(self._run())
        elif (wanted, room) != (self._queues, self._room):
            self._link.loop.call_soon_threadsafe(self._want, wanted, room)

    def _want(self, queues: tuple[str, ...], room: int) -> None:
        self._queues, self._room = queues, room
        if self._changed is not None:
            self._changed.set()

    def take(self) -> Item | None:
        try:
            return self._items.popleft()
        except IndexError:
            return None

    def give_back(self, queues: Sequence[str]) -> None:
        """What was claimed of queues that nobody consumes any more."""
        if self._task is not None and self._process == os.getpid():
            self._link.run(self._give_back(set(queues)))

    async def _give_back(self, queues: set[str]) -> None:
        kept = [item for item in self._items if item[0] not in queues]
        back = [item for item in self._items if item[0] in queues]
        self._items.clear()
        self._items.extend(kept)
        for _, queue, delivery in back:
            self._link.held.settle_soon(queue, delivery, "release")
        if back:
            await self._link.held.settled()

    def close(self) -> None:
        """What nobody took goes back."""
        if self._task is None or self._process != os.getpid():
            return
        task, self._task = self._task, None
        self._link.run(self._close(task))

    async def _close(self, task: asyncio.Task[None]) -> None:
        self._closed = True
        if self._changed is not None:
            self._changed.set()
        await asyncio.wait({task})
        await self._give_back({name for name, _, _ in self._items})

    async def _run(self) -> None:
        self._changed = asyncio.Event()
        try:
            while not self._closed:
                self._changed.clear()
                if self._room <= 0 or not self._queues:
                    await self._changed.wait()
                    continue
                for name in self._in_turn(await self._ready()):
                    await self._claim(name)
        except HoldfastError as error:
            self.error = error
            self._ring()

    async def _ready(self) -> list[str]:
        """Those of the queues that may have something; nothing: what is wanted has changed."""
        assert self._changed is not None
        stored = {queue_name(name): name for name in self._queues}
        looking = asyncio.ensure_future(self._link.store.ready(list(stored), wait=LONG_POLL_S))
        changing = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({looking, changing}, return_when=asyncio.FIRST_COMPLETED)
            return [stored[name] for name in await looking] if looking.done() else []
        finally:
            looking.cancel()
            changing.cancel()
            await asyncio.gather(looking, changing, return_exceptions=True)

    def _in_turn(self, ready: list[str]) -> list[str]:
        """The queue that gave something last comes last: a full one must not keep the others waiting."""
        if self._last not in ready:
            return ready
        after = ready.index(self._last) + 1
        return ready[after:] + ready[:after]

    async def _claim(self, name: str) -> None:
        if self._closed or self._room <= 0 or name not in self._queues:
            return
        try:
            queue = await self._link.queue(name)
            found = await queue.dequeue_many(self._room, lease=self._lease)
        except QueueNotFound:  # swept or deleted: who consumes has it made again
            if name in self._queues:
                await self._link.routing.restore(name)
            return
        for delivery in found:
            self._link.held.hold(queue, delivery, self._lease)
            self._items.append((name, queue, delivery))
        self._room -= len(found)
        if found:
            self._last = name
            self._ring()
