"""Claim batches of a queue with several shards: the steps of `spread.py` in the order that a crash may cut anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from ....errors import Fenced
from ... import consumers
from ...batches import Ownership
from ...consumers import Consumer
from .. import queues
from ..commit import Committer
from ..edit import Session
from ..head.state import Head
from ..partition import Log
from ..space import Space
from . import spread

T = TypeVar("T")


class Shards:
    """The heads of all queues of a store that have several."""

    def __init__(self, space: Space, log: Callable[[str], Log], *, timeout: float) -> None:
        self._space = space
        self._log = log
        self._timeout = timeout
        self._torn: set[Ownership] = set()  # whose claim was cut: some of it may still arrive

    async def count(self, queue: str) -> int:
        """How many heads a queue has."""
        log = self._log(queue)
        known = log.committer.known_config
        if known is None:
            seen = await self._space.read(log.committer.look, deadline=self._timeout)
            return log.window.partitions(seen.config)
        return log.window.partitions(known[1])

    def committers(self, queue: str, count: int) -> list[Committer]:
        """One for each shard."""
        return [self._log(queues.shard(queue, number)).committer for number in range(count)]

    async def heads(self, queue: str, count: int) -> list[Head]:
        """All heads, in one look."""
        each = self.committers(queue, count)
        return await self._space.read(lambda view: [one.look(view).head for one in each], deadline=self._timeout)

    async def follow(self, queue: str, name: str, leader: Consumer, count: int) -> int:
        """All other shards come to where the first one stands; how many messages went back. Fenced."""

        def step(number: int) -> Callable[[Session], int]:
            return lambda session: spread.follow(session, name, number, leader)

        return sum(await self._each(queue, range(1, count), step))

    async def complete(self, owner: Ownership, done: int, count: int) -> int:
        """What the first head has settled, in the others; how many messages. Fenced."""

        def step(number: int) -> Callable[[Session], int]:
            return lambda session: _completed(session, owner, number, done)

        return sum(await self._each(owner.queue, range(1, count), step))

    async def gather(self, owner: Ownership, count: int, *, done: int, seq: int, limit: int) -> int:
        """Settle up to `done`, and claim for a batch from all shards alike; those that have more are asked again."""
        rich, total = list(range(count)), 0
        asked = spread.shares(limit, rich, seq)  # with those that are asked for nothing: all have to settle
        while asked:
            found = await self._claim(owner, asked, done, seq)
            total += sum(found.values())
            rich = [shard for shard in rich if shard not in asked or found[shard] >= asked[shard]]
            shares = spread.shares(limit - total, rich, seq) if rich and total < limit else {}
            asked = {shard: share for shard, share in shares.items() if share}
        return total

    async def _claim(self, owner: Ownership, asked: dict[int, int], done: int, seq: int) -> dict[int, int]:
        def step(number: int) -> Callable[[Session], int]:
            return lambda session: _claimed(session, owner, number, done=done, seq=seq, limit=asked[number])

        found = await self._each(owner.queue, list(asked), step, demand=asked)
        return dict(zip(asked, found, strict=True))

    async def _each(
        self,
        queue: str,
        numbers: Sequence[int],
        step: Callable[[int], Callable[[Session], T]],
        *,
        demand: dict[int, int] | None = None,
    ) -> list[T]:
        """A change of several heads; all of them have ended when this returns or raises."""
        changes = [
            self._log(queues.shard(queue, number)).committer.edit(step(number), demand=(demand or {}).get(number, 0))
            for number in numbers
        ]
        done = await asyncio.gather(*changes, return_exceptions=True)
        for each in done:
            if isinstance(each, BaseException):
                raise each
        return done  # type: ignore[return-value]  # those that are exceptions were raised

    def tear(self, owner: Ownership) -> None:
        """A claim of this owner was cut: what it asked for may still come into the heads, after we have looked."""
        self._torn.add(owner)

    def check_whole(self, owner: Ownership) -> None:
        """Fenced: only the next owner, whom all heads know, can tell what belongs to a batch."""
        if owner in self._torn:
            raise Fenced(f"a claim of the consumer {owner.consumer!r} was cut off: start the query again")


def _completed(session: Session, owner: Ownership, shard: int, done: int) -> int:
    consumers.current(session.head.pipes.consumers.get(owner.consumer), owner)
    return spread.end(session, owner.consumer, shard, "complete", lambda seq: seq <= done)


def _claimed(session: Session, owner: Ownership, shard: int, *, done: int, seq: int, limit: int) -> int:
    _completed(session, owner, shard, done)
    return spread.claim(session, owner.consumer, shard, seq=seq, limit=limit)
