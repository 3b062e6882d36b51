"""Claims: what the consumers hand out, judged by its record, and taken by writing a fresh lease into the fence."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ...errors import Damaged, StoreError
from ...v1.task_pb2 import Record, Task
from ..base import LONG_POLL_S, QueueInfo
from ..records import LAPSED, Claimed, Claims, Expired
from . import damage, deadline, state, tasks, wire
from .clock import Moment
from .connection import WINDOW
from .deadline import RETRY_S, TRY_S
from .faults import Denied, Lost, Nobody, Refused
from .partition import OUTLASTS_S, Lease, Partition
from .priority_consumers import HAND_OUT_S, Handed, PriorityConsumer, nak
from .wire import BATCH_MESSAGES, Post

if TYPE_CHECKING:
    from .settling import Settler


class _Candidate(msgspec.Struct):
    """A message that was handed to us."""

    consumer: PriorityConsumer
    handed: Handed
    task: Task
    raw: bytes  # the task as it lies in its stream
    damage: str = ""  # why it cannot be read: the task is what stands for it
    record: Record | None = None
    sequence: int = 0  # of the record; 0: there is none
    seen: float = 0.0  # by our own clock: its task was there after that


class _Wish(msgspec.Struct, frozen=True):
    """What is asked for."""

    limit: int
    lease: float
    worker: str | None


class Claimer:
    """Claims of one queue, or of its dead letters."""

    def __init__(self, partition: Partition, settler: Settler) -> None:
        self._partition = partition
        self._settler = settler
        self._passed = 0  # messages of open calls that the last look passed over
        self._unheard: Lost | None = None  # the server did not answer the last look
        self._quiet = 0  # waits in a row in which nothing came
        self._not_due = 0  # messages not due that the last look was the first to see: there may be a run of them

    async def claim(self, limit: int, lease: float, *, wait: float = 0.0, worker: str | None = None) -> Claims:
        """As the seam says; waits are long polls on every consumer at once."""
        partition, started, heard = self._partition, time.monotonic(), False
        wish = _Wish(limit, lease, worker)
        info = await partition.info()
        while True:
            claims = Claims([])
            if not info.paused:
                claims = await self._now(info, wish)
            heard = heard or self._unheard is None
            left = started + wait - time.monotonic()
            if not _is_empty(claims):
                self._quiet, partition.stirred_at = 0, time.monotonic()
            if not _is_empty(claims) or (left <= 0 and heard):
                await partition.consumers.rest()
                return claims
            if self._unheard is not None and deadline.is_over():
                raise self._unheard
            left = max(left, RETRY_S)
            seconds = min(left, self._pause(), RETRY_S if self._passed else left)
            await self._wait(seconds, quietly=info.paused or self._passed > 0)
            info = await partition.info()

    async def _now(self, info: QueueInfo, wish: _Wish) -> Claims:
        claims = await self._once(info, wish)
        until = time.monotonic() + self._partition.patience() if _is_empty(claims) else 0.0
        while _is_empty(claims) and (left := until - time.monotonic()) > 0:
            # The server's own timers are some milliseconds late, and a lease is over when it is so beyond doubt.
            await self._partition.consumers.stand(HAND_OUT_S)
            await self._partition.consumers.wait(left)
            info = await self._partition.info()
            if info.paused:
                break
            claims = await self._once(info, wish)
        return claims

    def _pause(self) -> float:
        """Seconds between two looks, rarer and rarer: the server hands out what comes, they are for what it did not."""
        interval = self._partition.connection.options.poll_interval
        return max(interval, min(LONG_POLL_S / 4, interval * 2.0 ** min(self._quiet, 10)))

    async def _wait(self, seconds: float, *, quietly: bool) -> None:
        """For a message, or `quietly` for a word that something has changed."""
        partition = self._partition
        if quietly:
            try:
                await asyncio.wait_for(partition.changed.wait(), seconds)
            except TimeoutError:
                pass
            return
        started = time.monotonic()
        await partition.consumers.stand(max(seconds, RETRY_S))
        await partition.consumers.wait(seconds)
        if time.monotonic() - started >= partition.connection.options.poll_interval * 0.9:
            is_starved = await partition.consumers.looks_starved()
            self._quiet = 0 if is_starved else self._quiet + 1

    # ------------------------------------------------------------------ one look

    async def _once(self, info: QueueInfo, wish: _Wish) -> Claims:
        """As many as are asked for, while anything is handed out: what others hold or have ended is passed over."""
        messages: list[Claimed] = []
        expired: list[Expired] = []
        self._passed = self._not_due = 0
        self._unheard = None
        while (
            len(messages) < wish.limit
            and self._passed < BATCH_MESSAGES
            and not any(message.alone for message in messages)
        ):
            asked = wish.limit - len(messages)
            try:
                found = await self._partition.consumers.fetch(asked, ahead=min(2 * self._not_due, WINDOW))
            except Lost as error:  # the connection broke, or a server does not answer; whoever waits looks again
                self._unheard = error
                break
            claims, stop = await self._look(info, found, wish, joining=bool(messages))
            deadline.renew()  # there may be any number that cannot be taken
            messages += claims.messages
            expired += claims.expired
            if stop or len(found) < asked:
                break
        return Claims(messages, expired)

    async def _look(
        self, info: QueueInfo, found: Sequence[tuple[PriorityConsumer, Handed]], wish: _Wish, *, joining: bool
    ) -> tuple[Claims, bool]:
        sums = self._partition.connection.sums
        candidates = [
            _Candidate(consumer, handed, *damage.handed_task(sums, handed.subject, handed.data), seen=handed.asked)
            for consumer, handed in found
        ]
        if any(one.task.call for one in candidates) and not self._partition.dead:
            candidates = [one for one in candidates if not one.task.call or await self._counts(one)]
        await self._read([one for one in candidates if one.handed.delivered > 1 or self._partition.dead or one.damage])
        return await self._judge(info, candidates, wish, joining=joining)

    async def _counts(self, one: _Candidate) -> bool:
        """Whether a part of a larger call counts; if not, it is passed over or thrown away."""
        partition = self._partition
        try:
            verdict = await partition.calls.verdict(one.task.call)
        except Damaged as error:  # nobody knows
            one.damage = str(error)
            return True
        if verdict == "waits":
            self._passed += 1
            await partition.connection.send(one.handed.ack, nak(min(RETRY_S * 2 ** (one.handed.delivered - 1), TRY_S)))
        elif verdict == "dropped":
            await partition.blobs.delete([one.task.blob] if one.task.blob else [])
            await partition.connection.send(one.handed.ack, b"+ACK")
        return verdict == "counts"

    async def _read(self, candidates: Sequence[_Candidate]) -> None:
        if not candidates:
            return
        records = await self._partition.records([one.handed.id for one in candidates])
        for one in candidates:
            one.sequence, one.record = records.get(one.handed.id, (0, None))
            if one.damage and one.record is not None and one.record.HasField("task"):  # it ended: there it is sound
                one.task, one.raw, one.damage = one.record.task, one.record.task.SerializeToString(), ""
        await self._recall([one for one in candidates if one.record is None and not self._partition.dead])

    async def _recall(self, candidates: Sequence[_Candidate]) -> None:
        """One without a record may have been handed to us just before it ended, was not kept and left nothing else."""
        traces = await self._partition.traces([one.handed.id for one in candidates]) if candidates else {}
        for one in candidates:
            if one.handed.id in traces:
                one.record = Record(format=tasks.FORMAT, place=state.ARCHIVE, gone=True)

    async def _judge(
        self, info: QueueInfo, candidates: Sequence[_Candidate], wish: _Wish, *, joining: bool
    ) -> tuple[Claims, bool]:
        """Sort out what can be taken, the rest is ended, buried or given back; and whether one had to stay behind."""
        partition, moment = self._partition, self._partition.connection.moment()
        takes: list[_Candidate] = []
        expired: list[Expired] = []
        too_early: list[bytes] = []  # what the server hears of those that are not due
        full = stop = False
        for one in candidates:
            seen = moment if one.record is None else partition.seen(one.handed.id, one.record, moment)
            what = state.sight(one.record, one.task, info.options, seen, dead=partition.dead)
            if what == "unread" or (one.damage and what in ("take", "expired", "lapsed")):
                expired += await self._give_up(info, one)
            elif what == "take":
                alone = not partition.dead and state.must_be_alone(one.record, one.task, info.options)
                if full or stop or (alone and (takes or joining)):
                    stop = True
                    await partition.connection.request(one.handed.ack, b"-NAK")
                else:
                    takes.append(one)
                    full = alone
            elif what == "wait":
                self._not_due += one.handed.delivered == 1
                seconds = state.wait(one.record, one.task, seen)
                self._partition.expect(moment.now + seconds)
                too_early.append(wire.frame(one.handed.ack, nak(seconds)))
            elif what in ("expired", "lapsed"):
                expired += await (self._expire if what == "expired" else self._lapse)(info, one)
            else:
                await self._settler.finish_ended(one.handed, one.task, one.raw, one.record)
        if too_early:
            await partition.connection.say(b"".join(too_early))
        payloads = await self._payloads(takes)
        unread = {one.handed.id for one in takes if isinstance(payloads.get(one.handed.id), StoreError)}
        for one in takes:
            if one.handed.id in unread and await partition.are_there([one.handed.sequence]) == [True]:
                one.damage = str(payloads[one.handed.id])
                expired += await self._give_up(info, one)
        takes = [one for one in takes if one.handed.id not in unread]
        return Claims(await self._take(info, takes, payloads, wish), expired), stop

    async def _expire(self, info: QueueInfo, one: _Candidate) -> list[Expired]:
        """A lease ran out and no attempt is left."""
        assert one.record is not None
        return await self._bury(info, one, one.record, state.EXPIRED)

    async def _lapse(self, info: QueueInfo, one: _Candidate) -> list[Expired]:
        """It has expired, and nobody holds it."""
        record, now = one.record or Record(format=tasks.FORMAT), self._partition.connection.now()
        old = Lease(one.handed.id, record, one.sequence, one.task, one.raw, one.handed.ack)
        if not await self._settler.end(old, state.lapsed(record, info.options, now), one.handed.sequence):
            await self._lost(info, one)
            return []
        return [Expired(one.handed.id, record.attempts, "failed", LAPSED)]

    async def _give_up(self, info: QueueInfo, one: _Candidate) -> list[Expired]:
        """What cannot be read is never delivered. The bytes of a task are kept beside its letter."""
        partition, record = self._partition, one.record
        if partition.dead:  # it is a dead letter already
            damage.logger.error("%s", one.damage or (record.error if record else ""))
            await partition.connection.send(one.handed.ack, nak(info.options.lease))
            return []
        if damage.HEADER in one.task.headers:
            await partition.blobs.put(one.handed.id + damage.KEPT, one.handed.data)
        why = record.error if record is not None and state.is_unread(record) else one.damage
        fresh = record is None or state.is_unread(record)
        return await self._bury(info, one, Record(format=tasks.FORMAT) if fresh or record is None else record, why)

    async def _bury(self, info: QueueInfo, one: _Candidate, record: Record, why: str) -> list[Expired]:
        old = Lease(one.handed.id, record, one.sequence, one.task, one.raw, one.handed.ack)
        if not await self._settler.bury(info, old, why):
            return []
        return [Expired(one.handed.id, record.attempts, "dead" if info.options.dead_letter else "failed", why)]

    # ------------------------------------------------------------------ taking

    async def _take(
        self, info: QueueInfo, takes: Sequence[_Candidate], payloads: dict[str, bytes | StoreError], wish: _Wish
    ) -> list[Claimed]:
        partition, lease, removed = self._partition, wish.lease, await self._removed(takes)
        takes = [one for one in takes if one.handed.id not in removed]
        if not takes:
            return []
        # The server's timer for each; the usual lease needs no word.
        timers = [wire.frame(one.handed.ack, nak(lease)) for one in takes if one.consumer.lease != lease]
        if timers:
            await partition.connection.say(b"".join(timers))
        moment = partition.connection.moment()
        leases, posts = self._leases(takes, wish, moment)
        try:
            sequences, _ = await partition.fence.write(posts)
        except (Refused, Denied):  # no room for our leases, or no right to write them; others may have both
            for one in takes:
                await partition.connection.send(one.handed.ack, b"-NAK")
            raise
        claimed: list[Claimed] = []
        kept: list[Lease] = []
        removed = await self._removed(takes)
        for one, each, sequence in zip(takes, leases, sequences, strict=True):
            if sequence is None:  # another was quicker
                await self._lost(info, one)
                continue
            if one.handed.id in removed:  # before we wrote this record of it
                await partition.delete(partition.names.done_stream, sequence)
                continue
            each.sequence = sequence
            kept.append(each)
            payload = payloads.get(each.id, each.task.data)
            assert isinstance(payload, bytes)  # who has none is not taken
            claimed.append(_claimed(info, each, payload))
            if one.record is not None:
                claimed[-1].recovered = bool(one.record.token)
                claimed[-1].alone = state.must_be_alone(one.record, one.task, info.options) and not partition.dead
        partition.keep(kept)
        if claimed:
            self._partition.expect(moment.now + lease)
        return claimed

    async def _payloads(self, takes: Sequence[_Candidate]) -> dict[str, bytes | StoreError]:
        """What lies in the object store, or why it cannot be read; before the lease is given: a long read is no part
        of it.
        """
        found: dict[str, bytes | StoreError] = {}
        for one in takes:
            if one.task.blob:
                try:
                    found[one.handed.id] = await self._partition.blobs.get(one.task.blob)
                except StoreError as error:
                    found[one.handed.id] = error
                except (Lost, Nobody, Refused, Denied):
                    for other in takes:
                        await self._partition.connection.send(other.handed.ack, b"-NAK")
                    raise
        return found

    async def _removed(self, takes: Sequence[_Candidate]) -> set[str]:
        """Ids of those that may have been removed since they were handed to us, so that no record tells, and were."""
        now = time.monotonic()
        unsure = [one for one in takes if one.record is None and now - one.seen > OUTLASTS_S / 2]
        if not unsure:
            return set()
        there = await self._partition.are_there([one.handed.sequence for one in unsure])
        for one in unsure:
            one.seen = now
        return {one.handed.id for one, ok in zip(unsure, there, strict=True) if not ok}

    def _leases(self, takes: Sequence[_Candidate], wish: _Wish, moment: Moment) -> tuple[list[Lease], list[Post]]:
        """Leases as they are to be, and what has to be written for that. What nobody held before shares a record."""
        end, secret = state.lease_end(moment, wish.lease), os.urandom(8).hex()
        first = state.taken(None, secret, end, moment.now, wish.worker)
        told, ahead = state.told_end(end, moment), moment.ahead
        body = first.SerializeToString()
        leases: list[Lease] = []
        posts: list[Post] = []
        for place, one in enumerate(takes):
            handed, fresh, token = one.handed, one.record is None, f"{secret}{place:x}"
            record = first if fresh else state.taken(one.record, token, end, moment.now, wish.worker)
            made = Lease(handed.id, record, one.sequence, one.task, one.raw, handed.ack, token, told, ahead)
            leases.append(made)
            posts.append(self._partition.post(made, record, body if fresh else None))
        return leases, posts

    async def _lost(self, info: QueueInfo, one: _Candidate) -> None:
        """Another wrote the record since we looked: it tells what this message is now."""
        found = await self._partition.record(one.handed.id)
        one.sequence, one.record = found if found is not None else (0, None)
        moment = self._partition.connection.moment()
        what = state.sight(one.record, one.task, info.options, moment, dead=self._partition.dead)
        if what in ("ended", "dead"):
            await self._settler.finish_ended(one.handed, one.task, one.raw, one.record)
        else:
            await self._partition.connection.send(one.handed.ack, nak(state.wait(one.record, one.task, moment)))

    # ------------------------------------------------------------------ longer

    async def extend(self, held: Sequence[tuple[str, str]], seconds: float) -> list[float | None]:
        """New ends of these leases; None for one that is lost."""
        await self._partition.info()
        return list(await asyncio.gather(*[self._extend(id, token, seconds) for id, token in held]))

    async def _extend(self, id: str, token: str, seconds: float) -> float | None:
        partition = self._partition
        while True:
            lease = await self._settler.lease(id, token)
            if lease is None or not self._settler.is_held_by(lease, token):
                return None
            record = Record()
            record.CopyFrom(lease.record)
            record.token = token
            moment = partition.connection.moment()
            record.lease_end = max(record.lease_end, state.lease_end(moment, seconds))
            lease.told = max(lease.told, state.told_end(record.lease_end, moment))
            # Written also where it ends no later: only so does the holder learn that somebody took the message back.
            [sequence], _ = await partition.fence.write([partition.post(lease, record)])
            if sequence is None:
                partition.leases.pop((id, token), None)
                continue
            lease.record, lease.sequence, lease.ahead = record, sequence, moment.ahead
            partition.keep([lease])
            await partition.connection.send(lease.ack, nak(record.lease_end - moment.earliest))
            self._partition.expect(record.lease_end)
            return lease.told


def _claimed(info: QueueInfo, lease: Lease, payload: bytes) -> Claimed:
    task = lease.task
    about = task.metadata
    return Claimed(
        lease.id,
        lease.token,
        payload,
        tasks.content_type(task),
        tasks.headers(task),
        about.priority,
        state.attempt(lease.record),
        tasks.most(task, info.options),
        about.timestamp / 1000,
        lease.told,
        expires=None if lease.record.place == state.DEAD else task.expires or None,
    )


def _is_empty(claims: Claims) -> bool:
    return not claims.messages and not claims.expired
