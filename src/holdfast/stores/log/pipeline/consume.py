"""Claim batches of the log engine: each step is one change of the head, decided in `stores/consumers.py`.

Where a queue has several shards the first head decides, and the others follow: `shards.py`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

import msgspec

from ....errors import Fenced
from ... import consumers
from ...batches import WHOLE, Batch, ConsumerInfo, Ownership, Sizing, Slice
from ...consumers import Consumer
from ...records import Action
from .. import records
from ..edit import Seen, Session
from ..head import pipelines
from ..head.state import Claim, Expire, Settle, Taken
from ..partition import Log
from ..space import Reading, Space
from ..topics import work_topic
from . import scan, spread
from .scan import Part, Plan
from .shards import Shards

T = TypeVar("T")
_RELEASE = "a release"  # who owns a consumer of several shards while it is released


class Consuming:
    """The claim batches of all queues of a store."""

    def __init__(self, space: Space, log: Callable[[str], Log], *, poll_interval: float, timeout: float) -> None:
        self._space = space
        self._log = log
        self._poll = poll_interval
        self._timeout = timeout
        self._shards = Shards(space, log, timeout=timeout)

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

        def change(session: Session) -> tuple[Consumer, int]:
            known = session.head.pipes.consumers.get(consumer)
            owned = consumers.owned(known, consumer, holders=holders, lease=lease, now=_now(session))
            owned = msgspec.structs.replace(owned, release_after=release_after)
            spread.keep(session, consumer, owned)
            count = spread.shards(session)
            if count > 1:
                spread.roll(session, consumer, 0, owned)
            return owned, count

        owned, count = await self._log(queue).committer.edit(change)
        await self._shards.follow(queue, consumer, owned, count)
        return consumers.ownership(queue, consumer, owned)

    async def beat(self, owner: Ownership, lease: float) -> None:
        def change(session: Session) -> None:
            known = _current(session, owner)
            spread.keep(
                session, owner.consumer, msgspec.structs.replace(known, until=_now(session) + lease if lease else 0.0)
            )

        await self._log(owner.queue).committer.edit(change)

    async def claim_batch(self, owner: Ownership, *, after: int, limit: int, wait: float = 0.0) -> Batch | None:
        deadline = time.monotonic() + wait
        topic = work_topic(owner.queue)
        while True:
            ticket = self._space.ticket(topic)
            found = await self._claim(owner, after, limit)
            left = deadline - time.monotonic()
            if found is not None or left <= 0:
                return found
            await self._space.watch(topic, min(left, self._poll), since=ticket)

    async def _claim(self, owner: Ownership, after: int, limit: int) -> Batch | None:
        committer, count = self._log(owner.queue).committer, await self._shards.count(owner.queue)
        if count == 1:
            return await committer.edit(lambda session: _claim(session, owner, after, limit), demand=limit)
        self._shards.check_whole(owner)
        known = await committer.edit(lambda session: _begin(session, owner, after))
        if known.batch(after + 1) is not None:  # what a crash left
            await self._shards.complete(owner, known.done, count)
            return consumers.batch(known, after + 1)
        try:
            total = await self._shards.gather(owner, count, done=known.done, seq=known.seq + 1, limit=limit)
            if not total:
                return None
            return await committer.edit(lambda session: _found(session, owner, known.seq + 1, total))
        except BaseException:
            self._shards.tear(owner)
            raise

    async def settle_batch(self, owner: Ownership, upto: int) -> int:
        known, settled = await self._log(owner.queue).committer.edit(
            lambda session: _settle(session, owner, _current(session, owner), upto)
        )
        count = await self._shards.count(owner.queue)
        return settled + await self._shards.complete(owner, known.done, count)

    async def manifest(
        self, owner: Ownership, after: int, upto: int, *, sizing: Sizing = WHOLE
    ) -> tuple[list[Batch], list[Slice]]:
        batches = await self._log(owner.queue).committer.edit(lambda session: _take_up(session, owner, after, upto))
        committers = self._shards.committers(owner.queue, await self._shards.count(owner.queue))

        def step(view: Reading) -> Plan:
            shards = [each.look(view) for each in committers]
            parts = [part for each in batches for part in _parts(shards, owner.consumer, each.seq)]
            return scan.sampled(view, shards[0], parts)

        plan = await self._space.read(step, deadline=self._timeout)
        return batches, plan.slices(owner.queue, "processing", sizing)

    async def all(self, queue: str) -> list[ConsumerInfo]:
        committer = self._log(queue).committer
        seen, now = await self._space.read(lambda view: (committer.look(view), view.now), deadline=self._timeout)
        return [consumers.info(queue, name, each, now) for name, each in sorted(seen.head.pipes.consumers.items())]

    async def release(self, queue: str, consumer: str, *, force: bool = False) -> int:
        """Where there are several shards, nobody may settle or take over meanwhile: the release owns the consumer."""
        committer, count = self._log(queue).committer, await self._shards.count(queue)
        if count == 1:
            return (await committer.edit(lambda session: _release(session, queue, consumer, force=force)))[1]
        lease = self._timeout
        leader, released = await committer.edit(lambda session: _seize(session, queue, consumer, lease, force=force))
        released += await self._shards.follow(queue, consumer, leader, count)
        owner = consumers.ownership(queue, consumer, leader)

        def change(session: Session) -> tuple[Consumer, int]:
            _current(session, owner)
            return _release(session, queue, consumer, force=True)  # it is ours

        leader, some = await committer.edit(change)
        with contextlib.suppress(Fenced):  # it is released; somebody owns it since, and has brought the shards along
            some += await self._shards.follow(queue, consumer, leader, count)
        return released + some

    async def give_back(self, queue: str) -> int:
        """Give back the claims of consumers that have been without an owner for as long as they said."""
        count = await self._shards.count(queue)
        if count > 1:
            return await self._give_back_all(queue, count)

        def change(session: Session) -> int:
            now = _now(session)
            over = [name for name, each in session.head.pipes.consumers.items() if consumers.is_abandoned(each, now)]
            return sum(_release(session, queue, name, force=False)[1] for name in over)

        return await self._log(queue).committer.edit(change)

    async def _give_back_all(self, queue: str, count: int) -> int:
        """The same for several shards; and the end of a release that was cut off."""
        heads = await self._shards.heads(queue, count)
        released = 0
        for name, leader in heads[0].pipes.consumers.items():
            with contextlib.suppress(Fenced):  # somebody owns it now
                if spread.is_abandoned(heads, name, self._space.clock()):
                    released += await self.release(queue, name)
                elif spread.is_behind(heads, name):
                    released += await self._shards.follow(queue, name, leader, count)
        return released


def _now(session: Session) -> float:
    return max(session.head.now, session.tx.now)


def _current(session: Session, owner: Ownership) -> Consumer:
    return consumers.current(session.head.pipes.consumers.get(owner.consumer), owner)


def _claim(session: Session, owner: Ownership, after: int, limit: int) -> Batch | None:
    known = _current(session, owner)
    consumers.check(known, owner, after)
    known, _ = _settle(session, owner, known, after)
    if known.batch(after + 1) is not None:  # what a crash left
        return consumers.batch(known, after + 1)
    seq = known.seq + 1
    lease = pipelines.FOREVER - _now(session)
    claim = Claim(pipelines.token(owner.consumer, seq), limit, lease, spread.worker(owner.consumer))
    _, found = session.do([Expire(), claim])
    count = sum(each.mask.bit_count() for each in cast(list[Taken], found))
    if not count:
        return None
    known = consumers.claimed(known, count)
    spread.keep(session, owner.consumer, known)
    return consumers.batch(known, seq)


def _begin(session: Session, owner: Ownership, after: int) -> Consumer:
    """With several shards: settle, before anything is claimed."""
    known = _current(session, owner)
    consumers.check(known, owner, after)
    return _settle(session, owner, known, after)[0]


def _found(session: Session, owner: Ownership, seq: int, count: int) -> Batch:
    """With several shards: from here on it is a batch. One that is there already is ours: the answer was lost."""
    known = _current(session, owner)
    if known.batch(seq) is None:
        known = consumers.claimed(known, count)
        spread.keep(session, owner.consumer, known)
    return consumers.batch(known, seq)


def _settle(session: Session, owner: Ownership, known: Consumer, upto: int) -> tuple[Consumer, int]:
    """Complete what the batches still hold: messages may have been settled one by one before."""
    consumers.check_read(known, owner.consumer, upto)
    count = 0
    for each in known.open:
        if each.seq <= upto:
            count += _end(session, owner.consumer, each.seq, "complete")
    known = consumers.settled(known, upto)
    spread.keep(session, owner.consumer, known)
    return known, count


def _end(session: Session, name: str, seq: int, action: Action) -> int:
    """End what a batch holds in this head; how many messages."""
    if spread.shards(session) > 1:
        return spread.end(session, name, 0, action, lambda each: each == seq)
    held = pipelines.leases(session.head, name, seq)
    by = spread.worker(name) if action == "complete" else None
    session.do([Settle(lease.token, lease.block, lease.mask, action, worker=by) for lease in held])
    return sum(lease.mask.bit_count() for lease in held)


def _take_up(session: Session, owner: Ownership, after: int, upto: int) -> list[Batch]:
    known = _current(session, owner)
    consumers.check(known, owner, max(after, known.done))
    for seq in range(after + 1, upto + 1):
        if known.batch(seq) is None:
            raise consumers.not_open(known, owner.consumer, seq)
        known = consumers.taken_up(known, seq, owner.epoch)
    spread.keep(session, owner.consumer, known)
    return [consumers.batch(known, seq) for seq in range(after + 1, upto + 1)]


def _release(session: Session, queue: str, name: str, *, force: bool) -> tuple[Consumer, int]:
    known = _not_in_use(session, queue, name, force=force)
    count = sum(_end(session, name, each.seq, "release") for each in known.open)
    released = consumers.released(known)
    spread.keep(session, name, released)
    return released, count


def _not_in_use(session: Session, queue: str, name: str, *, force: bool) -> Consumer:
    known = session.head.pipes.consumers.get(name)
    if known is None:
        raise consumers.nobody(queue, name)
    if not force:
        consumers.owned(known, name, holders=("",), lease=0.0, now=_now(session))
    return known


def _seize(session: Session, queue: str, name: str, lease: float, *, force: bool) -> tuple[Consumer, int]:
    """With several shards: from here on nobody settles, and what never became a batch goes back."""
    known = _not_in_use(session, queue, name, force=force)
    seized = msgspec.structs.replace(known, epoch=known.epoch + 1, holder=_RELEASE, until=_now(session) + lease)
    count = spread.roll(session, name, 0, seized)
    spread.keep(session, name, seized)
    return seized, count


def _parts(shards: Sequence[Seen], consumer: str, seq: int) -> Iterator[Part]:
    """The messages of a batch as the heads have leased them."""
    for number, seen in enumerate(shards):
        held = (
            pipelines.leases(seen.head, consumer, seq)
            if len(shards) == 1
            else spread.batches(seen.head, consumer, number).get(seq, [])
        )
        for lease in held:
            block = seen.head.blocks[lease.block]
            state = records.State("processing", lease.attempts, token=lease.token)
            group = records.plain_group(seen.rules, block, state, lease.mask)
            hold = f"{lease.token}.{block.no}"
            yield Part(seen.root + block.key, lease.mask.bit_count(), [group], hold)
