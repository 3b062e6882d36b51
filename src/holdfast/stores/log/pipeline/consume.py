"""Claim batches of the log engine: each step is one change of the head, decided in `head/pipelines.py`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar, cast

import msgspec

from ....errors import ConfigError
from ... import consumers
from ...batches import WHOLE, Batch, ConsumerInfo, Ownership, Sizing, Slice
from ...consumers import Consumer
from .. import records
from ..edit import Seen, Session
from ..head import pipelines
from ..head.state import Claim, Expire, Settle, Taken
from ..partition import Log
from ..space import Reading, Space
from ..topics import work_topic
from . import scan
from .scan import Part, Plan

T = TypeVar("T")


class Consuming:
    """The claim batches of all queues of a store."""

    def __init__(self, space: Space, log: Callable[[str], Log], *, poll_interval: float, timeout: float) -> None:
        self._space = space
        self._log = log
        self._poll = poll_interval
        self._timeout = timeout

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

        def change(session: Session) -> Ownership:
            if session.seen.window.partitions(session.seen.config) > 1:
                raise ConfigError(f"queue {queue!r} has several shards: a stream reads a queue with one")
            known = session.head.pipes.consumers.get(consumer)
            owned = consumers.owned(known, consumer, holders=holders, lease=lease, now=_now(session))
            owned = msgspec.structs.replace(owned, release_after=release_after)
            _keep(session, consumer, owned)
            return consumers.ownership(queue, consumer, owned)

        return await self._log(queue).committer.edit(change)

    async def beat(self, owner: Ownership, lease: float) -> None:
        def change(session: Session) -> None:
            known = _current(session, owner)
            _keep(
                session, owner.consumer, msgspec.structs.replace(known, until=_now(session) + lease if lease else 0.0)
            )

        await self._log(owner.queue).committer.edit(change)

    async def claim_batch(self, owner: Ownership, *, after: int, limit: int, wait: float = 0.0) -> Batch | None:
        deadline = time.monotonic() + wait
        topic = work_topic(owner.queue)
        while True:
            ticket = self._space.ticket(topic)
            found = await self._log(owner.queue).committer.edit(
                lambda session: _claim(session, owner, after, limit), demand=limit
            )
            left = deadline - time.monotonic()
            if found is not None or left <= 0:
                return found
            await self._space.watch(topic, min(left, self._poll), since=ticket)

    async def settle_batch(self, owner: Ownership, upto: int) -> int:
        return await self._log(owner.queue).committer.edit(
            lambda session: _settle(session, owner, _current(session, owner), upto)[1]
        )

    async def manifest(
        self, owner: Ownership, after: int, upto: int, *, sizing: Sizing = WHOLE
    ) -> tuple[list[Batch], list[Slice]]:
        committer = self._log(owner.queue).committer
        batches = await committer.edit(lambda session: _take_up(session, owner, after, upto))

        def step(view: Reading) -> Plan:
            seen = committer.look(view)
            parts = [part for each in batches for part in _parts(seen, owner.consumer, each.seq)]
            return scan.sampled(view, seen, parts)

        plan = await self._space.read(step, deadline=self._timeout)
        return batches, plan.slices(owner.queue, "processing", sizing)

    async def all(self, queue: str) -> list[ConsumerInfo]:
        committer = self._log(queue).committer
        seen, now = await self._space.read(lambda view: (committer.look(view), view.now), deadline=self._timeout)
        return [consumers.info(queue, name, each, now) for name, each in sorted(seen.head.pipes.consumers.items())]

    async def release(self, queue: str, consumer: str, *, force: bool = False) -> int:
        def change(session: Session) -> int:
            known = session.head.pipes.consumers.get(consumer)
            if known is None:
                raise consumers.nobody(queue, consumer)
            if not force:
                consumers.owned(known, consumer, holders=("",), lease=0.0, now=_now(session))
            return _release(session, consumer, known)

        return await self._log(queue).committer.edit(change)

    async def give_back(self, queue: str) -> int:
        """Give back the claims of consumers that have been without an owner for as long as they said."""

        def change(session: Session) -> int:
            now = _now(session)
            over = [
                (name, each) for name, each in session.head.pipes.consumers.items() if consumers.is_abandoned(each, now)
            ]
            return sum(_release(session, name, each) for name, each in over)

        return await self._log(queue).committer.edit(change)


def _now(session: Session) -> float:
    return max(session.head.now, session.tx.now)


def _current(session: Session, owner: Ownership) -> Consumer:
    return consumers.current(session.head.pipes.consumers.get(owner.consumer), owner)


def _keep(session: Session, name: str, consumer: Consumer) -> None:
    if session.head.pipes.consumers.get(name) != consumer:
        session.head = msgspec.structs.replace(session.head, pipes=session.head.pipes.with_consumer(name, consumer))
        session.changed = True


def _claim(session: Session, owner: Ownership, after: int, limit: int) -> Batch | None:
    known = _current(session, owner)
    consumers.check(known, owner, after)
    known, _ = _settle(session, owner, known, after)
    if known.batch(after + 1) is not None:  # what a crash left
        return consumers.batch(known, after + 1)
    seq = known.seq + 1
    lease = pipelines.FOREVER - _now(session)
    claim = Claim(pipelines.token(owner.consumer, seq), limit, lease, _worker(owner))
    _, found = session.do([Expire(), claim])
    count = sum(each.mask.bit_count() for each in cast(list[Taken], found))
    if not count:
        return None
    known = consumers.claimed(known, count)
    _keep(session, owner.consumer, known)
    return consumers.batch(known, seq)


def _worker(owner: Ownership) -> str:
    return f"spark/{owner.consumer}"


def _settle(session: Session, owner: Ownership, known: Consumer, upto: int) -> tuple[Consumer, int]:
    """Complete what the batches still hold: messages may have been settled one by one before."""
    consumers.check_read(known, owner.consumer, upto)
    count = 0
    for each in known.open:
        if each.seq <= upto:
            held = pipelines.leases(session.head, owner.consumer, each.seq)
            worker = _worker(owner)
            session.do([Settle(lease.token, lease.block, lease.mask, "complete", worker=worker) for lease in held])
            count += sum(lease.mask.bit_count() for lease in held)
    known = consumers.settled(known, upto)
    _keep(session, owner.consumer, known)
    return known, count


def _take_up(session: Session, owner: Ownership, after: int, upto: int) -> list[Batch]:
    known = _current(session, owner)
    consumers.check(known, owner, max(after, known.done))
    for seq in range(after + 1, upto + 1):
        if known.batch(seq) is None:
            raise consumers.not_open(known, owner.consumer, seq)
        known = consumers.taken_up(known, seq, owner.epoch)
    _keep(session, owner.consumer, known)
    return [consumers.batch(known, seq) for seq in range(after + 1, upto + 1)]


def _release(session: Session, name: str, known: Consumer) -> int:
    held = [lease for each in known.open for lease in pipelines.leases(session.head, name, each.seq)]
    session.do([Settle(lease.token, lease.block, lease.mask, "release") for lease in held])
    _keep(session, name, consumers.released(known))
    return sum(lease.mask.bit_count() for lease in held)


def _parts(seen: Seen, consumer: str, seq: int) -> list[Part]:
    """The messages of a batch as the head has leased them."""
    head, parts = seen.head, []
    for lease in pipelines.leases(head, consumer, seq):
        block = head.blocks[lease.block]
        state = records.State("processing", lease.attempts, token=lease.token)
        group = records.plain_group(seen.rules, block, state, lease.mask)
        hold = f"{lease.token}.{block.no}"
        parts.append(Part(seen.root + block.key, lease.mask.bit_count(), [group], hold))
    return parts
