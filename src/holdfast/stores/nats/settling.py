"""Settlements: the holder's decision goes into the fence first; everything after it can be done again by anybody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ...errors import HoldfastError
from ...escaping import logger_named
from ...v1.task_pb2 import Record, Task
from ..base import QueueInfo
from ..records import Answer, Settlement
from . import damage, deadline, state, tasks, wire
from .blobs import RESULT
from .connection import WINDOW
from .counters import Counts, Slot
from .deadline import ANSWER_S, POLL_S
from .faults import Denied, Lost, Nobody, Refused
from .names import gone_stream
from .partition import OUTLASTS_S, Lease, Partition, is_id, read_trace
from .priority_consumers import Handed, nak
from .wire import Post

if TYPE_CHECKING:
    from .copying import Copier

_LOG = logger_named("holdfast.nats")
_ACK = b"+ACK"


class _Work(msgspec.Struct, gc=False):
    """What a lease becomes."""

    index: int  # of the settlement
    lease: Lease
    new: Record
    body: bytes | None = None  # the record as bytes, where many share it
    place: int = 0  # of the task in its stream, where nobody holds it and it has to be removed

    @property
    def is_gone(self) -> bool:
        return self.new.gone and self.new.place == state.ARCHIVE

    @property
    def is_removed(self) -> bool:
        return self.new.gone and self.place > 0


class Settler:
    """Ends, retries and releases messages of one queue, or of its dead letters."""

    def __init__(self, partition: Partition, copier: Copier) -> None:
        self._partition = partition
        self._copier = copier

    async def lease(self, id: str, token: str) -> Lease | None:
        """The message under this token, from memory or from the store; None: there is no record of it."""
        if (lease := self._partition.leases.get((id, token))) is not None:
            return lease
        return await self._load(id) if is_id(id) else None

    async def _load(self, id: str) -> Lease | None:
        found = await self._partition.record(id)
        if found is None:
            return None
        sequence, record = found
        if record.HasField("task"):
            raw = record.task.SerializeToString()
            return Lease(id, record, sequence, record.task, raw, record.ack, record.token)
        live = (await self._partition.tasks([id])).get(id)
        if live is None:
            return Lease(id, record, sequence, Task(id=id), b"", record.ack, record.token)
        return Lease(id, record, sequence, live[1], damage.raw_of(*live), record.ack, record.token)

    def is_held_by(self, lease: Lease, token: str) -> bool:
        """Whether this token is that of the current lease, given here: a record that nobody holds has an empty one."""
        return bool(token) and lease.token == token and (lease.record.place == state.DEAD) == self._partition.dead

    # ------------------------------------------------------------------ settling

    async def settle(self, settlements: Sequence[Settlement]) -> list[Answer]:
        info = await self._partition.info()
        answers: list[Answer | None] = [None] * len(settlements)
        todo = list(range(len(settlements)))
        while todo and not deadline.is_over():
            todo = await self._round(info, settlements, todo, answers)
        if settlements:
            await self._partition.note(b"done")
            self._partition.wake()
        return [answer or "lost" for answer in answers]

    async def _round(
        self, info: QueueInfo, settlements: Sequence[Settlement], todo: Sequence[int], answers: list[Answer | None]
    ) -> list[int]:
        """Try these once; the indexes that another was quicker with, and that must be looked at again."""
        moment = self._partition.connection.moment()
        later: list[int] = []
        work: list[_Work] = []
        seen: set[str] = set()
        shared: dict[tuple[object, ...], tuple[Record, bytes]] = {}
        for index in todo:
            s = settlements[index]
            if s.id in seen:
                later.append(index)
                continue
            seen.add(s.id)
            if (lease := self._partition.leases.get((s.id, s.token))) is None:
                lease, answer = await self._find(s)
                if lease is None:
                    answers[index] = answer
                    continue
            # Messages that were claimed together and have nothing to say of their own end in the same words.
            kind = (id(lease.record), s.keep, s.worker, s.error) if s.action == "complete" and s.result is None else ()
            if kind in shared and self._partition.blobs.fits(len(lease.raw)):
                work.append(_Work(index, lease, *shared[kind]))
                continue
            new = state.settled(lease.record, lease.task, s, info.options, moment)
            work.append(_Work(index, lease, await self._fit(new, lease)))
            if kind:
                shared[kind] = (new, new.SerializeToString())
        written: list[bool] = []
        for start in range(0, len(work), WINDOW):
            written += await self._do(work[start : start + WINDOW])
        for one, ok in zip(work, written, strict=True):
            index, s = one.index, settlements[one.index]
            self._partition.leases.pop((s.id, s.token), None)
            if ok:
                answers[index] = "ok"
                self._partition.remember(s.id, s.token, s.action)
            else:
                later.append(index)
        return later

    async def _find(self, s: Settlement) -> tuple[Lease | None, Answer]:
        """The lease that this settlement is about, or the answer that can be given at once."""
        done = self._partition.settled.get((s.id, s.token))
        if done is not None:
            return None, "ok" if done == s.action else "lost"
        lease = await self.lease(s.id, s.token)
        if lease is None:
            return None, await self._answer_without(s)
        if self.is_held_by(lease, s.token):
            return lease, "ok"
        return None, "ok" if state.repeat(lease.record, s.token, s.action) else "lost"

    async def _answer_without(self, s: Settlement) -> Answer:
        """No record: never claimed, ended and not kept, or never there."""
        if not is_id(s.id):
            return "unknown"
        if s.id in await self._partition.tasks([s.id]):
            return "lost"
        stream = gone_stream(self._partition.register.prefix)
        found = await self._partition.reader.last_exact(stream, self._partition.names.gone + s.id)
        if found is None:
            return "unknown"
        return "ok" if s.token and (found.note(read_trace) or [])[:2] == [s.token, s.action] else "lost"

    async def _fit(self, record: Record, lease: Lease) -> Record:
        """A result too large for its record goes to the object store, and so does a task."""
        partition = self._partition
        if record.place == state.LIVE or partition.blobs.fits(len(lease.raw) + len(record.result)):
            return record
        if record.result:
            record.result_blob = await partition.blobs.put(lease.id + RESULT, record.result)
            record.ClearField("result")
        lease.task, lease.raw = await partition.blobs.fitted(lease.task, lease.raw)
        if record.HasField("task"):
            record.task.CopyFrom(lease.task)
        return record

    async def _do(self, work: Sequence[_Work]) -> list[bool]:
        """Into the fence, after the word of what is about to end, and what follows from it."""
        partition, slot = self._partition, self._partition.counters.take()
        ended = [(one.lease.id, one.new) for one in work if one.new.place == state.ARCHIVE]
        fresh = any(one.lease.sequence == 0 for one in work)
        slot.removing = [one.lease.id for one in work if one.is_removed]
        posts = [partition.post(one.lease, one.new, one.body) for one in work]
        sequences, announced = await partition.fence.write(posts, slot.post(ended, fresh=fresh) if ended else None)
        took = [sequence is not None for sequence in sequences]
        for one, sequence in zip(work, sequences, strict=True):
            one.lease.sequence = sequence or one.lease.sequence
        if ended:
            more = _counts([one.new for one, ok in zip(work, took, strict=True) if ok])
            slot = await partition.counters.count(slot, more, announced, sure=all(took) and not fresh)
        await self._carry_out([one for one, ok in zip(work, took, strict=True) if ok])
        gone = [one for one, ok in zip(work, took, strict=True) if ok and one.is_gone]
        if any(one.is_removed for one in gone):
            await self._clean([(gone, slot)])
        elif gone:
            await partition.clean_soon((gone, slot), self._clean_behind)
        else:
            partition.counters.give_back(slot)
        return took

    async def bury(self, info: QueueInfo, lease: Lease, reason: str) -> bool:
        """End a message whose last lease ran out; False: another was quicker."""
        new = Record()
        new.CopyFrom(lease.record)
        return await self.end(lease, state.buried(new, reason, info.options, self._partition.connection.now()))

    async def give_up(self, task: Task, reason: str) -> bool:
        """End a message of which only what stands for it is left; False: it has ended, or another was quicker."""
        info, found = await self._partition.info(), await self._partition.record(task.id)
        sequence, record = found or (0, Record())
        if record.place != state.LIVE:
            return False
        lease = Lease(task.id, Record(format=tasks.FORMAT), sequence, task, task.SerializeToString(), "")
        return await self.bury(info, lease, reason)

    async def end(self, lease: Lease, new: Record, place: int = 0) -> bool:
        """Write what nobody's lease decided, and carry it out; False: another was quicker. `place`: of its task."""
        [took] = await self._do([_Work(0, lease, await self._fit(new, lease), place=place)])
        if took:
            await self._partition.note(b"done")
            self._partition.wake()
        return took

    async def purge(self, free: Sequence[tuple[Lease, int]]) -> list[bool]:
        """Remove messages that nobody holds, with the places of their tasks; False: another was quicker."""
        now = self._partition.connection.now()
        return await self._do([_Work(0, lease, state.purged(lease.record, now), place=place) for lease, place in free])

    # ------------------------------------------------------------------ what follows

    async def _carry_out(self, work: Sequence[_Work]) -> None:
        """What the records say, in the streams of tasks and dead letters. A crash in between is made good later."""
        partition, now = self._partition, self._partition.connection.now()
        died = [one.lease for one in work if one.new.place == state.DEAD and one.lease.record.place != state.DEAD]
        if died:
            await self._copier.keep_dead([(lease.task, lease.raw) for lease in died])
        words: list[tuple[str, bytes]] = []  # for the server: acknowledged, or to be handed out again when
        for lease, record in [(one.lease, one.new) for one in work]:
            if record.moving_to and record.place == state.ARCHIVE:
                await self._copier.move(lease.task, record)
            if record.place == state.ARCHIVE and record.gone:
                continue  # its trace comes first
            if record.place == state.ARCHIVE or lease.record.place != record.place:
                words += [(lease.ack, _ACK)] if lease.ack else []
            else:
                words.append((lease.ack, nak(record.visible_at - now)))
                partition.expect(record.visible_at)
        await self._say(words)
        ended = [one for one in work if one.new.place == state.ARCHIVE]
        letters = [_sequence(one.lease.ack) for one in ended if one.lease.record.place == state.DEAD]
        if letters:
            await partition.delete_each(partition.names.dead_stream, letters)
        if places := [one.place for one in work if one.place]:
            await partition.delete_each(partition.names.task_stream, places)

    async def _clean(self, settlements: Sequence[tuple[Sequence[_Work], Slot]]) -> None:
        """Behind what is not kept: a trace, and once its task has left its stream no record. The slots tell of both."""
        gone = [one for works, _ in settlements for one in works]
        await self._leave(gone)
        await self._say([(one.lease.ack, _ACK) for one in gone if one.lease.ack])
        if any(one.is_removed for one in gone):
            await asyncio.sleep(OUTLASTS_S)  # others may have been handed it, and know of no record
        if await self._have_left([one.lease.ack for one in gone if one.lease.ack]):
            await self._forget([(one.lease, one.new) for one in gone])
            for _, slot in settlements:
                self._partition.counters.give_back(slot)

    async def _clean_behind(self, settlements: Sequence[tuple[Sequence[_Work], Slot]]) -> None:
        """The same while callers go on; what is left is for maintenance."""
        try:
            await self._clean(settlements)
        except (Refused, Lost, Nobody, Denied, HoldfastError) as error:
            _LOG.debug("nats: %s: not cleaned up: %s", self._partition.queue, type(error).__name__)

    async def _say(self, words: Sequence[tuple[str, bytes]]) -> None:
        """Acknowledgements are not answered: the records tell. Of what is given back the last word of each consumer is.

        An answered acknowledgement makes the server search a long stream anew for its next message.
        """
        last = {ack.rsplit(".", 5)[0]: (ack, word) for ack, word in words if word is not _ACK}
        ends = list(last.values())
        rest = [wire.frame(*each) for each in words if each not in ends]
        if rest:
            await self._partition.connection.say(b"".join(rest))
        await asyncio.gather(*[self.say_one(*each) for each in ends])

    async def say_one(self, ack: str, word: bytes) -> None:
        """Once this has returned, whoever asks next is handed it again."""
        try:
            await self._partition.connection.request(ack, word, within=ANSWER_S)
        except (Lost, Nobody):
            pass  # it is handed out once more, and whoever gets it reads its record

    async def _have_left(self, acks: Sequence[str]) -> bool:
        """Whether tasks that were acknowledged have left their stream: what a consumer hears it does in that order."""
        if self._partition.dead:
            return True  # they were removed by their places
        last = {ack.rsplit(".", 5)[0]: ack for ack in acks}
        until, pause = deadline.until(ANSWER_S), POLL_S
        for ack in last.values():
            await asyncio.sleep(pause)
            while await self._partition.reader.at(self._partition.names.task_stream, _sequence(ack)) is not None:
                if time.monotonic() >= until:
                    return False
                pause *= 2  # each look costs as much as ten messages
                await asyncio.sleep(pause)
        return True

    async def _leave(self, gone: Sequence[_Work]) -> None:
        """Before the tasks go: a trace of what is not kept."""
        await self._partition.store_each([Post(self._partition.names.gone + one.lease.id, _trace(one)) for one in gone])

    async def _forget(self, gone: Sequence[tuple[Lease, Record]]) -> None:
        """Remove what is not kept."""
        await self._partition.drop_records({lease.id: lease.sequence for lease, _ in gone})
        await self._partition.blobs.delete(
            [name for lease, record in gone for name in (lease.task.blob, record.result_blob) if name]
        )

    async def finish_ended(self, handed: Handed, task: Task, raw: bytes, record: Record | None) -> None:
        """A message was handed out that has ended: somebody stopped between the fence and the rest."""
        partition = self._partition
        if partition.dead:
            await partition.delete(partition.names.dead_stream, handed.sequence)
        elif record is not None and record.place == state.DEAD:
            await self._copier.keep_dead([(task, raw)])
        elif record is not None and record.moving_to:
            await self._copier.move(task, record)
        await self.say_one(handed.ack, _ACK)
        if record is None or not record.gone or record.status == state.PURGED:
            return  # of what is purged the record must outlast the task
        if (found := await partition.record(task.id)) is not None:
            await self._forget([(Lease(task.id, record, found[0], task, b"", handed.ack), record)])


def _counts(records: Sequence[Record]) -> Counts:
    ended = [record.status for record in records if record.place == state.ARCHIVE]
    return Counts(ended.count("completed"), ended.count("failed"))


def _trace(one: _Work) -> bytes:
    """Its own token: the record may be shared, and name that of another."""
    return f"{one.lease.token or one.new.last_token} {one.new.last_action} {one.new.finished_at!r}".encode()


def _sequence(ack: str) -> int:
    """The place in its stream of the message that an acknowledgement is for."""
    words = ack.split(".")
    return int(words[5 if len(words) == 9 else 7])
