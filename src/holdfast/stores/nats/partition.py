"""One queue, or its dead letters: what all its operations stand on."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ...errors import CodecError, StoreError
from ...ids import number, priority_of
from ...v1.task_pb2 import Record, Task
from ..base import DEAD, QueueInfo
from ..records import Stored
from . import deadline, state, tasks
from .blobs import Blobs
from .calls import Calls
from .clock import Moment
from .connection import Link
from .faults import NO_ROOM, STREAM_NOT_FOUND, WRONG_SEQUENCE, Lost, Nobody, Refused
from .fence import Fence
from .names import LATER, gone_stream, id_of
from .priority_consumers import Lanes
from .queues import Register, missing
from .reading import Found, Reader
from .reserve import Reserve
from .tally import Tally
from .wire import Post


class Lease(msgspec.Struct):
    """A message in hand: its record as we last wrote it, and what is needed to end it."""

    id: str
    record: Record  # may be shared by messages that were claimed together: never changed, token and ack lie here
    sequence: int  # of the record
    task: Task
    raw: bytes  # the task as it lies in its stream
    ack: str  # where the holder's acknowledgement goes
    token: str = ""
    told: float = 0.0  # the end that its holder was told: before that of the record, by all that we may be wrong
    ahead: float = 0.0  # when it was given, see Moment.ahead


BEHIND = 0.1  # seconds a consumer may be behind its stream
# A record that is deleted looks to a claim like one that was never written. So the record of what was removed while
# nobody held it outlasts its task by so long, and a claim that took longer looks at its tasks once more.
OUTLASTS = 0.2  # seconds
SURE = OUTLASTS / 2  # seconds since a message was asked for: within them its record is still there


_CLEANING = 4  # settlements, each of up to 255 messages, behind which is cleaned up at once
_DROPPED = 256  # removals that are asked for in one go
_CLEANED = 2.0  # seconds that this is waited for
_SETTLED_KEPT = 10_000  # settlements whose repeats are known here


class Log:
    """The parts of one queue (`dead`: of its dead letters), shared by everything that works on it."""

    def __init__(
        self, name: str, link: Link, reader: Reader, register: Register, blobs: Blobs, reserve: Reserve
    ) -> None:
        self.name = name
        self.queue = name.removesuffix(DEAD)
        self.dead = name.endswith(DEAD)
        self.link = link
        self.reader = reader
        self.register = register
        self.blobs = blobs
        self.reserve = reserve
        self.names = register.names(self.queue)
        self.lanes = Lanes(link, self.stream, self.subject, self.queue)
        self.fence = Fence(link, reader, reserve, self.names.done_stream, self.queue)
        self.tally = Tally(
            link, reader, self.names.done_stream, self.names.tally, records=self.records, traces=self.traces
        )
        self.calls = Calls(link, reader, reserve, self.names)
        self.leases: dict[tuple[str, str], Lease] = {}
        self.settled: OrderedDict[tuple[str, str], str] = OrderedDict()  # by id and token: what was done here last
        self.changed = asyncio.Event()
        self._cleaning: set[asyncio.Task[None]] = set()  # what follows settlements, while their callers go on
        self.swept_at = float("-inf")  # by our own clock
        self.stored_at = float("-inf")  # by our own clock: when this process last stored a message that is visible
        self._tidy_at = 0.0

    @property
    def stream(self) -> str:
        """The stream that messages are claimed from."""
        return self.names.dead_stream if self.dead else self.names.task_stream

    @property
    def subject(self) -> str:
        """That of messages that are claimed, before their priority."""
        return self.names.dead if self.dead else self.names.task

    async def info(self) -> QueueInfo:
        """The queue; every operation begins with it, and so with a clock that is known well."""
        if self.link.must_ask_clock():
            await self.reserve.look()
        return await self.register.get(self.queue)

    # ------------------------------------------------------------------ what is in hand

    def keep(self, leases: Sequence[Lease]) -> None:
        """Remember what is held."""
        for lease in leases:
            self.leases[lease.id, lease.token] = lease
        now = time.monotonic()
        if now > self._tidy_at:
            self._tidy(now)

    def _tidy(self, now: float) -> None:
        """Leases that nobody settled must not stay in memory for ever."""
        self._tidy_at = now + 10
        over = self.link.now() - 60
        self.leases = {key: lease for key, lease in self.leases.items() if lease.record.lease_end > over}

    def remember(self, id: str, token: str, action: str) -> None:
        """What this process has settled, so that a repeat is known without a look."""
        self.settled[id, token] = action
        while len(self.settled) > _SETTLED_KEPT:
            self.settled.popitem(last=False)

    def seen(self, id: str, record: Record | None, moment: Moment | None = None) -> Moment:
        """The time as it counts for a message: whoever gave its lease knows better than others when it is over."""
        moment = moment or self.link.moment()
        own = self.leases.get((id, record.token)) if record is not None and record.token else None
        if own is None or record is None or own.record.lease_end != record.lease_end:
            return moment
        return moment.of_own(own.ahead)

    # ------------------------------------------------------------------ records

    def post(self, lease: Lease, record: Record, body: bytes | None = None) -> Post:
        """The record as it is written: what is already bytes is put in as such, the task or `body`, a shared record."""
        if body is None:
            data = record.SerializeToString()
        else:
            data = body + _field(_TOKEN if record.token else _LAST_TOKEN, lease.token.encode())
        if lease.ack:
            data += _field(_ACK, lease.ack.encode())
        kept = record.place != state.LIVE and (not record.gone or bool(lease.task.blob))
        if lease.raw and kept and not record.HasField("task"):
            data = _field(_TASK, lease.raw) + data
        return Post(self.names.done + lease.id, data, "", lease.sequence)

    async def records(self, ids: Sequence[str]) -> dict[str, tuple[int, Record]]:
        """What is written of each, with its sequence."""
        start = self.names.done
        try:
            found = await self.reader.last(self.names.done_stream, [start + id for id in ids])
        except Nobody:
            raise missing(self.queue) from None
        return {subject[len(start) :]: (one.sequence, read_record(one.data)) for subject, one in found.items()}

    async def traces(self, ids: Sequence[str]) -> dict[str, float]:
        """When those ended that are not kept, as long as that is remembered."""
        start = self.names.gone
        try:
            found = await self.reader.last(gone_stream(self.register.prefix), [start + id for id in ids])
        except Nobody:
            return {}
        words = {subject[len(start) :]: one.data.decode().split(" ") for subject, one in found.items()}
        return {id: float(said[2]) if len(said) > 2 else math.nan for id, said in words.items()}

    async def record(self, id: str) -> tuple[int, Record] | None:
        """The same from the leader: never an old one."""
        found = await self._exact(self.names.done_stream, self.names.done + id)
        return None if found is None else (found.sequence, read_record(found.data))

    async def _exact(self, stream: str, subject: str) -> Found | None:
        try:
            return await self.reader.last_exact(stream, subject)
        except Refused as error:
            if error.code == STREAM_NOT_FOUND:
                raise missing(self.queue) from None
            raise

    async def tasks(self, ids: Sequence[str]) -> dict[str, tuple[Found, Task]]:
        """The live tasks among these ids, waiting or not due."""
        subjects = [subject for id in ids for subject in self._places(id)]
        try:
            found = await self.reader.last(self.names.task_stream, subjects)
        except Nobody:
            raise missing(self.queue) from None
        pairs = [(one, tasks.read_task(one.data)) for one in found.values()]
        return {task.id: (one, task) for one, task in pairs}

    def _places(self, id: str) -> tuple[str, str]:
        place = f"{self.names.task}{_priority(id)}{id}"
        return place, place + LATER

    def _letter(self, id: str) -> str:
        return self.names.dead + _priority(id) + id

    async def letters(self, ids: Sequence[str]) -> dict[str, int]:
        """The places of these in the stream of dead letters."""
        subjects = [self._letter(id) for id in ids]
        found = await self.reader.last(self.names.dead_stream, subjects) if subjects else {}
        return {id_of(subject): one.sequence for subject, one in found.items()}

    # ------------------------------------------------------------------ what is told

    async def stored(self, info: QueueInfo, task: Task, record: Record | None) -> Stored:
        """What is known of one message."""
        status = state.status(record, task, self.seen(task.id, record), dead=self.dead)
        due = state.wait_until(record, task) if status in ("processing", "delayed", "retry") else None
        rest = record or Record()
        result = rest.result if rest.HasField("result") else None
        if rest.result_blob:
            result = await self.blobs.get(rest.result_blob)
        return Stored(
            task.id,
            status,
            await tasks.payload(task, self.blobs),
            tasks.content_type(task),
            tasks.headers(task),
            task.metadata.priority,
            rest.attempts,
            tasks.most(task, info.options),
            tasks.enqueued_at(task),
            due,
            rest.finished_at or None,
            result,
            rest.error if rest.HasField("error") else None,
            rest.worker if rest.HasField("worker") else None,
            rest.claimed_at or None if rest.finished_at else None,
        )

    async def store(self, post: Post) -> int | None:
        """Store what ends or moves a message, with the reserve if need be; None: another was first."""
        for again in (False, True):
            try:
                return (await self.link.store([post]))[0]
            except Refused as error:
                if error.code == WRONG_SEQUENCE:
                    return None
                if again or error.code not in NO_ROOM or not await self.reserve.give_up():
                    raise
        return None

    async def clean_soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Let this follow; where too much of it is under way, wait for some."""
        if len(self._cleaning) >= _CLEANING:
            await asyncio.wait(self._cleaning, timeout=deadline.left(_CLEANED), return_when="FIRST_COMPLETED")
        task = deadline.apart(work)
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)

    async def cleaned(self) -> None:
        """What follows the settlements of this process is done, or takes too long."""
        if self._cleaning:
            await asyncio.wait(set(self._cleaning), timeout=deadline.left(_CLEANED))

    async def note(self, word: bytes) -> None:
        """Tell everybody who has this queue open that something changed."""
        try:
            await self.link.send(self.names.note, word)
        except Lost:
            pass  # it is a help: whoever does not hear it looks again before long

    def wake(self) -> None:
        """Everybody here who waits looks again."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def delete_each(self, stream: str, sequences: Sequence[int]) -> list[bool]:
        """Remove stored messages; False for one that is not there."""
        answers = await self.link.delete_each(stream, sequences)
        return [
            answer if isinstance(answer, bool) else await self.delete(stream, sequence)
            for sequence, answer in zip(sequences, answers, strict=True)
        ]

    async def are_there(self, sequences: Sequence[int]) -> list[bool]:
        """Whether messages are still in the stream that they are claimed from, by its leader."""
        answers = await self.link.are_there(self.stream, sequences)
        return [
            answer if isinstance(answer, bool) else await self.reader.at(self.stream, sequence) is not None
            for sequence, answer in zip(sequences, answers, strict=True)
        ]

    async def drop_records(self, places: dict[str, int]) -> list[str]:
        """Remove records by their ids and sequences; the ids that have none now."""
        ids, kept = list(places), set[str]()
        for start in range(0, len(ids), _DROPPED):
            part = ids[start : start + _DROPPED]
            heard = await self.link.remove_each(self.names.done_stream, [places[id] for id in part])
            left = list(await self.records(part)) if heard else part
            went = await asyncio.gather(*[self._drop_record(id, places[id]) for id in left])
            kept |= {id for id, ok in zip(left, went, strict=True) if not ok}
        return [id for id in ids if id not in kept]

    async def _drop_record(self, id: str, sequence: int) -> bool:
        """The same for one that may be there; False: another has written it anew."""
        found = await self.record(id)
        if found is None or found[0] != sequence:
            return found is None
        return await self.delete(self.names.done_stream, sequence)

    async def drop_letters(self, ids: Sequence[str]) -> None:
        """Remove dead letters by their subjects: they need not be read for that."""
        for start in range(0, len(ids), _DROPPED):
            part = ids[start : start + _DROPPED]
            await self.link.remove_each(self.names.dead_stream, [self._letter(id) for id in part])
            await self.delete_each(self.names.dead_stream, list((await self.letters(part)).values()))

    async def store_each(self, posts: Sequence[Post]) -> None:
        """Store what ends or moves messages, as `store` does."""
        for post, answer in zip(posts, await self.link.store_each(posts), strict=True):
            if isinstance(answer, Exception) and not _is_there(answer):
                await self.store(post)

    async def delete(self, stream: str, sequence: int) -> bool:
        """Remove one stored message; False: it is not there."""
        try:
            await self.link.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})
        except Refused as error:
            if error.code in (10043, 10057, 10037):
                return False
            raise
        return True


def _is_there(answer: Exception) -> bool:
    return isinstance(answer, Refused) and answer.code == WRONG_SEQUENCE


def is_id(id: str) -> bool:
    """Only our own ids go into subjects."""
    return number(id) is not None


def _priority(id: str) -> str:
    bits = number(id)
    return f"{priority_of(bits or 0)}."


def read_record(data: bytes) -> Record:
    """A record from its bytes; StoreError for a newer format."""
    try:
        record: Record = Record.FromString(data)
    except Exception as error:
        raise CodecError("nats: a message in the stream of records is no record") from error
    if record.format > state.FORMAT:
        raise StoreError(f"nats: a record of format {record.format}; this version reads up to {state.FORMAT}")
    return record


def _field(number: int, data: bytes) -> bytes:
    """A field of bytes, as Protocol Buffers write it; of two in one message the later counts."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


_TASK, _TOKEN = Record.TASK_FIELD_NUMBER, Record.TOKEN_FIELD_NUMBER
_LAST_TOKEN, _ACK = Record.LAST_TOKEN_FIELD_NUMBER, Record.ACK_FIELD_NUMBER


@lru_cache(4096)
def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
