"""Claim batches in PostgreSQL: ranges of the queue's rows that carry one token. Decided in `stores/consumers.py`."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from .. import consumers
from ..base import PAGE_ROWS
from ..batches import WHOLE, Batch, ConsumerInfo, Ownership, Sizing, Slice
from ..consumers import Consumer
from . import rows, scanning
from .claiming import EXPIRED
from .notify import Bell
from .partition import Topic
from .pool import Pool
from .registry import Registry

T = TypeVar("T")
_decode = msgspec.json.Decoder(Consumer).decode
_encode = msgspec.json.Encoder().encode


class ClaimBatches:
    """The claim batches of all queues of a store; see `stores/batches.py`."""

    def __init__(
        self,
        pool: Pool,
        registry: Registry,
        topic: Callable[[str], Topic],
        bell: Bell,
        *,
        poll_interval: float,
        changed: Callable[[str], None],
    ) -> None:
        self._pool = pool
        self._registry = registry
        self._topic = topic
        self._bell = bell
        self._poll = poll_interval
        self._changed = changed

    async def own(
        self,
        queue: str,
        consumer: str,
        *,
        holder: str,
        lease: float,
        release_after: float = 0.0,
        instead_of: str | None = None,
    ) -> Ownership:
        holders = (holder,) if instead_of is None else (holder, instead_of)

        async def change(seen: _Seen) -> Ownership:
            owned = consumers.owned(seen.consumer, consumer, holders=holders, lease=lease, now=seen.now)
            await seen.keep(msgspec.structs.replace(owned, release_after=release_after))
            return consumers.ownership(queue, consumer, owned)

        return await self._change(queue, consumer, change)

    async def beat(self, owner: Ownership, lease: float) -> None:
        async def change(seen: _Seen) -> None:
            known = consumers.current(seen.consumer, owner)
            await seen.keep(msgspec.structs.replace(known, until=seen.now + lease if lease else 0.0))

        await self._change(owner.queue, owner.consumer, change)

    async def claim_batch(self, owner: Ownership, *, after: int, limit: int, wait: float = 0.0) -> Batch | None:
        deadline = time.monotonic() + wait
        while True:
            ticket = self._bell.ticket(owner.queue)
            found, spent = await self._change(
                owner.queue, owner.consumer, lambda seen: _claim(seen, owner, after, limit)
            )
            if spent:
                await self._topic(owner.queue).settler.end_expired(spent, EXPIRED)
            left = deadline - time.monotonic()
            if found is not None or left <= 0:
                return found
            await self._bell.wait(owner.queue, min(left, self._poll), since=ticket)

    async def settle_batch(self, owner: Ownership, upto: int) -> int:
        async def change(seen: _Seen) -> int:
            return (await _settle(seen, owner, consumers.current(seen.consumer, owner), upto))[1]

        return await self._change(owner.queue, owner.consumer, change)

    async def manifest(
        self, owner: Ownership, after: int, upto: int, *, sizing: Sizing = WHOLE
    ) -> tuple[list[Batch], list[Slice]]:
        usual = (await self._registry.must(owner.queue)).options.max_attempts

        async def change(seen: _Seen) -> tuple[list[Batch], list[Slice]]:
            known = consumers.current(seen.consumer, owner)
            consumers.check(known, owner, max(after, known.done))
            slices: list[Slice] = []
            for seq in range(after + 1, upto + 1):
                if known.batch(seq) is None:
                    raise consumers.not_open(known, owner.consumer, seq)
                known = consumers.taken_up(known, seq, owner.epoch)
                [row] = await seen.fetch("batch_look", owner.queue, owner.consumer, seq)
                slices += scanning.held(owner.queue, row, sizing, usual=usual)
            await seen.keep(known)
            return [consumers.batch(known, seq) for seq in range(after + 1, upto + 1)], slices

        return await self._change(owner.queue, owner.consumer, change)

    async def consumers(self, queue: str) -> list[ConsumerInfo]:
        found = await self._pool.fetch(self._topic(queue).sql["consumers"], queue, queue=queue)
        return [consumers.info(queue, name, _decode(state), now) for name, state, now in found]

    async def release(self, queue: str, consumer: str, *, force: bool = False) -> int:
        count = await self._release(queue, consumer, force=force)
        self._changed(queue)
        return count

    async def _release(self, queue: str, consumer: str, *, force: bool, abandoned: bool = False) -> int:
        async def change(seen: _Seen) -> int:
            known = seen.consumer
            if known is None:
                raise consumers.nobody(queue, consumer)
            if abandoned and not consumers.is_abandoned(known, seen.now):
                return 0
            if not force:
                consumers.owned(known, consumer, holders=("",), lease=0.0, now=seen.now)
            count = 0
            for each in known.open:
                count += (await seen.fetch("batch_release", queue, consumer, each.seq))[0][0]
            await seen.keep(consumers.released(known))
            return count

        count = await self._change(queue, consumer, change)
        self._topic(queue).claimer.bounds.reset()
        self._bell.ring(queue)
        return count

    async def release_abandoned(self, queue: str) -> int:
        """Give back the claims of consumers that have been without an owner for as long as they said."""
        held = [each for each in await self.consumers(queue) if each.batches]
        return sum([await self._release(queue, each.consumer, force=True, abandoned=True) for each in held])

    async def _change(self, queue: str, consumer: str, change: Callable[[_Seen], Awaitable[T]]) -> T:
        """One transaction, in which nobody else changes this consumer. A repeat after a lost answer is harmless:
        what it finds done it does not do again, and a new owner that has to own twice has only used up a number."""
        sql = self._topic(queue).sql

        async def step(connection: Any) -> T:
            await connection.fetch(sql["lock"], f"holdfast.consumer.{sql.schema}.{queue}.{consumer}")
            found = await connection.fetch(sql["consumer_look"], queue, consumer)
            if not found:
                raise consumers.missing_queue(queue)
            id, now, state = found[0]
            known = None if state is None else _decode(state)
            return await change(_Seen(connection, sql, consumer, id, now, known))

        return await self._pool.transact(step, queue=queue)


class _Seen:
    """A consumer inside a transaction."""

    def __init__(self, connection: Any, sql: Any, name: str, queue: int, now: float, consumer: Consumer | None) -> None:
        self._connection = connection
        self._sql = sql
        self._name = name
        self._queue = queue
        self.now = now
        self.consumer = consumer

    async def keep(self, consumer: Consumer) -> None:
        if consumer != self.consumer:
            await self.fetch("consumer_keep", self._queue, self._name, _encode(consumer).decode())
            self.consumer = consumer

    async def fetch(self, name: str, *args: Any) -> list[Any]:
        return list(await self._connection.fetch(self._sql[name], *args))


async def _claim(
    seen: _Seen, owner: Ownership, after: int, limit: int
) -> tuple[Batch | None, list[tuple[str, int, int]]]:
    """The batch, and messages found whose last lease is over."""
    known = consumers.current(seen.consumer, owner)
    consumers.check(known, owner, after)
    known, _ = await _settle(seen, owner, known, after)
    if known.batch(after + 1) is not None:  # what a crash left
        return consumers.batch(known, after + 1), []
    if limit <= 0:
        return None, []
    await seen.fetch("bring_due", owner.queue, limit)
    token = rows.fresh_token(os.urandom(8))
    seq = known.seq + 1
    [(count, ids, ranks, tokens)] = await seen.fetch(
        "batch_claim",
        owner.queue,
        limit,
        token,
        owner.consumer,
        seq,
        PAGE_ROWS,  # between the keys where it can be cut
    )
    spent = [(str(id), rank, held) for id, rank, held in zip(ids, ranks, tokens, strict=True)]
    if not count:
        return None, spent
    known = consumers.claimed(known, count)
    await seen.keep(known)
    return consumers.batch(known, seq), spent


async def _settle(seen: _Seen, owner: Ownership, known: Consumer, upto: int) -> tuple[Consumer, int]:
    consumers.check_read(known, owner.consumer, upto)
    count = 0
    for each in known.open:
        if each.seq <= upto:
            done = await seen.fetch("batch_settle", owner.queue, owner.consumer, each.seq, f"spark/{owner.consumer}")
            count += done[0][0]
    known = consumers.settled(known, upto)
    await seen.keep(known)
    return known, count
