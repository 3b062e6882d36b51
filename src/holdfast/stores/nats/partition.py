"""One queue, or its dead letters: what all its operations stand on."""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ...ids import number, priority_of
from ...v1.task_pb2 import Record, Task
from ..base import DEAD, QueueInfo
from . import damage, deadline, state
from .calls import Calls
from .connection import WINDOW, Connection
from .counters import Counters
from .deadline import ANSWER_S, RECOVERY_S
from .faults import NO_ROOM, NOT_THERE, Code, Ignored, Lost, Nobody, Refused, missing, of_queue
from .fence import Fence
from .lapsing import Lapses
from .names import LATER, gone_stream, id_of
from .priority_consumers import HAND_OUT_S, PriorityConsumers
from .reading import Found, Reader
from .tasks import field
from .wire import Post

if TYPE_CHECKING:
    from .blobs import Blobs
    from .clock import Moment
    from .queues import Register
    from .reserve import Reserve


_Ended = TypeVar("_Ended")


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


BEHIND_S = 0.1  # a consumer may hear of a message so much later than its stream stores it
# A record that is deleted looks to a claim like one that was never written. So the record of what was removed while
# nobody held it outlasts its task by so long, and a claim that took more than half of it looks at its tasks once more.
OUTLASTS_S = 0.2
_UNCLEAN = 4  # settlements may wait to be cleaned up behind: each holds up to 256 messages in memory, and a slot
_REMEMBERED = 10_000  # settlements, and instants of visibility, that need no look at the server: some MB


class Partition:
    """The parts of one queue (`dead`: of its dead letters), shared by everything that works on it."""

    def __init__(
        self, name: str, connection: Connection, reader: Reader, register: Register, blobs: Blobs, reserve: Reserve
    ) -> None:
        self.name = name
        self.queue = name.removesuffix(DEAD)
        self.dead = name.endswith(DEAD)
        self.connection = connection
        self.reader = reader
        self.register = register
        self.blobs = blobs
        self.reserve = reserve
        self.names = register.names(self.queue)
        self.consumers = PriorityConsumers(connection, reader, self.stream, self.subject, self.queue)
        self.fence = Fence(connection, reader, reserve, self.names.done_stream, self.queue)
        self.counters = Counters(
            connection, reader, self.names.done_stream, self.names.tally, records=self.records, traces=self.traces
        )
        self.calls = Calls(connection, reader, reserve, self.names)
        self.leases: dict[tuple[str, str], Lease] = {}
        self.settled: OrderedDict[tuple[str, str], str] = OrderedDict()  # by id and token: what was done here last
        self.changed = asyncio.Event()
        self.stirred_at = time.monotonic()  # when something happened here, as far as this process knows
        self._unclean: list[Any] = []  # settlements of what is not kept, behind which is cleaned up while callers go on
        self._cleaning: asyncio.Task[None] | None = None
        self.swept_at = float("-inf")  # by our own clock
        self.lapses = Lapses(self)
        self.stored_at = float("-inf")  # by our own clock: when this process last stored a message that is visible
        self._tidy_at = 0.0
        self._is_stored = False  # since the last claim that found nothing
        self._visible: set[int] = set()  # in these spans of BEHIND_S something becomes visible, as far as we know

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
        if self.connection.must_ask_clock():
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
        self._tidy_at = now + RECOVERY_S
        over = self.connection.now() - RECOVERY_S
        self.leases = {key: lease for key, lease in self.leases.items() if lease.record.lease_end > over}

    def remember(self, id: str, token: str, action: str) -> None:
        """What this process has settled, so that a repeat is known without a look."""
        self.settled[id, token] = action
        while len(self.settled) > _REMEMBERED:
            self.settled.popitem(last=False)

    def seen(self, id: str, record: Record | None, moment: Moment | None = None) -> Moment:
        """The time as it counts for a message: whoever gave its lease knows better than others when it is over."""
        moment = moment or self.connection.moment()
        own = self.leases.get((id, record.token)) if record is not None and record.token else None
        if own is None or record is None or own.record.lease_end != record.lease_end:
            return moment
        return moment.of_own(own.ahead)

    # ------------------------------------------------------------------ what becomes visible

    def expect(self, instant: float) -> None:
        """Something becomes visible then."""
        self._visible.add(int(instant / BEHIND_S))
        if len(self._visible) > _REMEMBERED:
            past = int((self.connection.now() - HAND_OUT_S) / BEHIND_S)
            left = {span for span in self._visible if span > past}
            self._visible = set(heapq.nsmallest(_REMEMBERED // 2, left))  # beyond some, punctuality is the server's

    def enqueued(self) -> None:
        """This process has stored a message: a claim must find it, although consumers hear of it a little later."""
        self.stored_at = time.monotonic()
        self._is_stored = True

    def patience(self) -> float:
        """How long a claim waits for what became visible just now, by what this process itself decided or stored."""
        now = self.connection.now()
        due = any(now - HAND_OUT_S - BEHIND_S < span * BEHIND_S <= now for span in self._visible)
        self._visible = {span for span in self._visible if span * BEHIND_S > now}
        stored, self._is_stored = self._is_stored, False
        if due:
            return HAND_OUT_S
        return BEHIND_S if stored and time.monotonic() - self.stored_at < BEHIND_S else 0.0

    # ------------------------------------------------------------------ records

    def post(self, lease: Lease, record: Record, body: bytes | None = None) -> Post:
        """The record as it is written: what is already bytes is put in as such, the task or `body`, a shared record."""
        if body is None:
            data = record.SerializeToString()
        else:
            data = body + field(_TOKEN if record.token else _LAST_TOKEN, lease.token.encode())
        if lease.ack:
            data += field(_ACK, lease.ack.encode())
        kept = record.place != state.LIVE and (not record.gone or bool(lease.task.blob))
        if lease.raw and kept and not record.HasField("task"):
            data = field(_TASK, lease.raw) + data
        return Post(self.names.done + lease.id, data, "", lease.sequence)

    async def records(self, ids: Sequence[str]) -> dict[str, tuple[int, Record]]:
        """What is written of each, with its sequence."""
        start = self.names.done
        try:
            found = await self.reader.last(self.names.done_stream, [start + id for id in ids])
        except Nobody:
            raise missing(self.queue) from None
        return {subject[len(start) :]: (one.sequence, damage.record_of(one)) for subject, one in found.items()}

    async def traces(self, ids: Sequence[str]) -> dict[str, float]:
        """When those ended that are not kept, as long as that is remembered."""
        start = self.names.gone
        try:
            found = await self.reader.last(gone_stream(self.register.prefix), [start + id for id in ids])
        except Nobody:
            return {}
        words = {subject[len(start) :]: one.note(read_trace) or () for subject, one in found.items()}
        return {id: float(said[2]) if len(said) > 2 else math.nan for id, said in words.items()}

    async def record(self, id: str) -> tuple[int, Record] | None:
        """The same from the leader: never an old one."""
        with of_queue(self.queue):
            found = await self.reader.last_exact(self.names.done_stream, self.names.done + id)
        return None if found is None else (found.sequence, damage.record_of(found))

    async def tasks(self, ids: Sequence[str]) -> dict[str, tuple[Found, Task]]:
        """The live tasks among these ids, waiting or not due."""
        subjects = [subject for id in ids for subject in self._places(id)]
        try:
            found = await self.reader.last(self.names.task_stream, subjects)
        except Nobody:
            raise missing(self.queue) from None
        pairs = [(one, damage.task_of(one)) for one in found.values()]
        return {task.id: (one, task) for one, task in pairs}

    async def letters(self, ids: Sequence[str]) -> dict[str, Task]:
        """The dead letters among these ids, as they lie in their stream."""
        subjects = [self.names.dead + _priority(id) + id for id in ids]
        found = await self.reader.last(self.names.dead_stream, subjects)
        return {id_of(subject): damage.task_of(one) for subject, one in found.items()}

    def _places(self, id: str) -> tuple[str, str]:
        place = f"{self.names.task}{_priority(id)}{id}"
        return place, place + LATER

    async def store(self, post: Post) -> int | None:
        """Store what ends or moves a message, with the reserve if need be; None: another was first."""
        for again in (False, True):
            try:
                return (await self.connection.store([post]))[0]
            except Refused as error:
                if error.code == Code.WRONG_SEQUENCE:
                    return None
                if again or error.code not in NO_ROOM or not await self.reserve.give_up():
                    raise
        return None

    async def clean_soon(self, ended: _Ended, clean: Callable[[Sequence[_Ended]], Coroutine[Any, Any, None]]) -> None:
        """Let `clean` follow a settlement, in one go for all that wait for it; where too many do, wait for some."""
        self._unclean.append(ended)
        if self._cleaning is None:
            self._clean_next(clean)
        elif len(self._unclean) > _UNCLEAN:
            await asyncio.wait({self._cleaning}, timeout=deadline.left(ANSWER_S))

    def _clean_next(self, clean: Callable[[Sequence[Any]], Coroutine[Any, Any, None]]) -> None:
        ended, self._unclean = self._unclean, []
        self._cleaning = deadline.apart(clean(ended)) if ended else None
        if self._cleaning is not None:
            self._cleaning.add_done_callback(lambda _: self._clean_next(clean))

    async def cleaned(self) -> None:
        """What follows the settlements of this process until now is done, or takes too long."""
        for _ in range(2):  # what is under way, and what waits for that
            if self._cleaning is not None:
                await asyncio.wait({self._cleaning}, timeout=deadline.left(ANSWER_S))

    async def note(self, word: bytes) -> None:
        """Tell everybody who has this queue open that something changed."""
        try:
            await self.connection.send(self.names.note, word)
        except Lost:
            pass  # it is a help: whoever does not hear it looks again before long

    def wake(self) -> None:
        """Everybody here who waits looks again."""
        self.stirred_at = time.monotonic()
        self.changed.set()
        self.changed = asyncio.Event()

    async def delete_each(self, stream: str, sequences: Sequence[int]) -> list[bool]:
        """Remove stored messages; False for one that is not there."""
        answers = await self.connection.delete_each(stream, sequences)
        return [
            answer if isinstance(answer, bool) else await self.delete(stream, sequence)
            for sequence, answer in zip(sequences, answers, strict=True)
        ]

    async def are_there(self, sequences: Sequence[int]) -> list[bool]:
        """Whether messages are still in the stream that they are claimed from, by its leader."""
        answers = await self.connection.are_there(self.stream, sequences)
        return [
            answer if isinstance(answer, bool) else await self.reader.at(self.stream, sequence) is not None
            for sequence, answer in zip(sequences, answers, strict=True)
        ]

    async def drop_records(self, places: dict[str, int]) -> list[str]:
        """Remove records by their ids and sequences; the ids that have none now."""
        ids, kept = list(places), set[str]()
        for start in range(0, len(ids), WINDOW):
            part = ids[start : start + WINDOW]
            heard = await self.connection.remove_each(self.names.done_stream, [places[id] for id in part])
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
        stream, letters = self.names.dead_stream, [self.names.dead + _priority(id) + id for id in ids]
        for start in range(0, len(letters), WINDOW):
            part = letters[start : start + WINDOW]
            await self.connection.remove_each(stream, part)
            left = await self.reader.last(stream, part)
            await self.delete_each(stream, [one.sequence for one in left.values()])

    async def store_each(self, posts: Sequence[Post]) -> None:
        """Store what ends or moves messages, as `store` does."""
        for post, answer in zip(posts, await self.connection.store_each(posts), strict=True):
            is_there = isinstance(answer, Refused) and answer.code == Code.WRONG_SEQUENCE
            if isinstance(answer, Exception) and not is_there:
                await self.store(post)

    async def delete(self, stream: str, sequence: int) -> bool:
        """Remove one stored message; False: it is not there."""
        with Ignored(*NOT_THERE):
            await self.connection.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})
            return True
        return False


def read_trace(data: bytes) -> list[str]:
    """Token, action and instant of what ended and is not kept."""
    return data.decode().split(" ")


def is_id(id: str) -> bool:
    """Only our own ids go into subjects."""
    return number(id) is not None


def _priority(id: str) -> str:
    bits = number(id)
    return f"{priority_of(bits or 0)}."


_TASK, _TOKEN = Record.TASK_FIELD_NUMBER, Record.TOKEN_FIELD_NUMBER
_LAST_TOKEN, _ACK = Record.LAST_TOKEN_FIELD_NUMBER, Record.ACK_FIELD_NUMBER
