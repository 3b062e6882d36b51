"""`holdfast scrub` on JetStream: every message of every stream of ours is read again, and what it names elsewhere.

What looks wrong is looked at once more before it is told: messages leave between a page and a look.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import msgspec

from ...config import QueueOptions
from ...errors import Damaged, QueueExists
from ...v1.task_pb2 import Record, Task
from ..base import Check, QueueInfo, Reread
from . import (
    appending,
    calls,
    copying,
    counters,
    damage,
    maintenance,
    names,
    partition,
    queues,
    schedules,
    state,
    stream_ends,
    tasks,
    worker_reports,
)
from .backup_spool import verb
from .blobs import Blobs
from .connection import WINDOW, Connection
from .faults import Code, Ignored, Refused
from .names import Names
from .partition import OUTLASTS_S, Partition
from .queues import Register, stray
from .reading import Found, Reader
from .settling import Settler
from .sums import damaged
from .wire import Post

_LAST = "holdfast_scrubbed"  # in the metadata of the stream of queues
_KEPT = "damaged."  # before the subject, in the object store: bytes that were moved there


class Last(msgspec.Struct, frozen=True):
    """What the last scrub of the whole store found."""

    at: float
    messages: int
    bytes: int
    without: int  # messages that have no sum
    wrong: int
    first: list[str]  # the first subjects of those


class Scrub:
    """One look at everything, or at one queue."""

    def __init__(
        self,
        connection: Connection,
        reader: Reader,
        register: Register,
        blobs: Blobs,
        partition: Callable[[str], Partition],
        settler: Callable[[str], Settler],
        *,
        quarantine: bool,
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._register = register
        self._blobs = blobs
        self._partition = partition
        self._settler = settler
        self._quarantine = quarantine
        self._open: dict[str, int] = {}  # by id: where the record says a message of this queue is
        self._timeout = connection.options.operation_timeout

    async def run(self, queue: str | None) -> AsyncIterator[Reread]:
        told: list[Reread] = []
        count = size = without = 0
        with verb("scrubbing", self._timeout):
            infos = await self._register.all() if queue is None else [await self._register.get(queue)]
        async for each in self._everything(infos, shared=queue is None):
            count, size, without = count + bool(each.size), size + each.size, without + (not each.has_sum)
            if each.problem:
                told.append(each)
            yield each
        if queue is None:
            keys = [each.key for each in told[:3]]
            await self._note(Last(self._connection.now(), count, size, without, len(told), keys))

    async def _note(self, last: Last) -> None:
        with verb("scrubbing", self._timeout):
            await self._register.remember(_LAST, msgspec.json.encode(last).decode())

    async def _everything(self, infos: list[QueueInfo], *, shared: bool) -> AsyncIterator[Reread]:
        if shared:
            async for each in self._shared():
                yield each
        for info in infos:
            for said in await self._cut_off(info.name):
                yield Reread(info.name, "", 0, problem=said)
            for stream in self._register.names(info.name).streams():
                async for each in self._stream(stream):
                    yield each
            for lone in await self._lone(info.name):
                yield lone

    async def _shared(self) -> AsyncIterator[Reread]:
        for stream in names.shared_streams(self._register.prefix):
            if stream != names.reserve_stream(self._register.prefix):
                async for each in self._stream(stream):
                    yield each
        for said in await self._strays():
            yield said

    async def _strays(self) -> list[Reread]:
        found: list[Reread] = []
        with verb("scrubbing", self._timeout):
            for queue, count in (await self._register.all_strays()).items():
                problem = stray(count)
                if self._quarantine and not await self._register.is_restored(queue):
                    with suppress(QueueExists):
                        await self._register.restore(QueueInfo(queue, QueueOptions(), True, self._connection.now()))
                    problem = f"made anew, and the queue paused: {problem}"
                found.append(Reread(queue, names.queue_subject(self._register.prefix, queue), 0, problem=problem))
        return found

    async def _lone(self, queue: str) -> list[Reread]:
        """Records of messages that have not ended and whose task is gone, or that are dead and have no letter."""
        open, self._open = self._open, {}
        with verb("scrubbing", self._timeout):
            lone = await self._without_task(queue, open) if open else []
            if lone:  # what is removed loses its record so much later than its task
                await asyncio.sleep(OUTLASTS_S)
                lone = await self._without_task(queue, {id: open[id] for id in lone})
        done = self._register.names(queue).done
        what = {id: "its dead letter is gone" if open[id] == state.DEAD else "its task is gone" for id in lone}
        return [Reread(queue, done + id, 0, problem=problem) for id, problem in what.items()]

    async def _without_task(self, queue: str, open: dict[str, int]) -> list[str]:
        own, gone = self._register.names(queue), set(open)
        for stream, pattern in ((own.task_stream, f"{own.task}*.>"), (own.dead_stream, f"{own.dead}*.*")):
            with Ignored(Code.STREAM_NOT_FOUND):  # that is told
                gone -= set(map(names.id_of, await self._reader.subjects(stream, pattern)))
        now = await self._partition(queue).records(sorted(gone))
        return [id for id, (_, record) in now.items() if record.place == open[id] and not record.gone]

    async def _cut_off(self, queue: str) -> list[str]:
        with verb("scrubbing", self._timeout):
            partition = self._partition(queue)
            said = await stream_ends.check(partition)
            if said and self._quarantine:
                await stream_ends.accept(partition)
        return said

    async def _stream(self, stream: str) -> AsyncIterator[Reread]:
        start, queue = 1, names.queue_of_stream(stream) or ""
        with verb("scrubbing", self._timeout):
            info: dict[str, Any] | None = None
            with Ignored(Code.STREAM_NOT_FOUND):
                info = await self._connection.api(f"STREAM.INFO.{stream}")
        if info is None:
            return
        if lost := (info["state"].get("lost") or {}).get("msgs"):
            problem = f"the server found {len(lost):,} of its messages damaged, and has dropped them"
            yield Reread(queue, stream, 0, problem=problem)
        seen = set[str]()
        while True:
            with verb("scrubbing", self._timeout):
                page = await self._reader.run(stream, ">", start, WINDOW)
                found = [await self._one(stream, one) for one in page]
            seen |= {one.subject for one in page}
            for each in found:
                if each is not None:
                    yield each
            if not page:
                break
            start = page[-1].sequence + 1
        with verb("scrubbing", self._timeout):
            listed = await self._reader.subjects(stream, ">")
            unread = [await self._unreadable(stream, subject) for subject in listed if subject not in seen]
        for each in unread:
            if each is not None:
                yield each

    async def _unreadable(self, stream: str, subject: str) -> Reread | None:
        """One that the server lists and has not given; what came since is there, what left is not listed any more."""
        if await self._is_there(stream, subject) or subject not in await self._reader.subjects(stream, subject):
            return None
        queue, problem = names.queue_of_subject(subject), "the server has it, and cannot read it"
        if subject.startswith(Names(self._register.prefix, queue).task):
            found = await self._partition(queue).record(names.id_of(subject))
            if found is not None and found[1].place != state.LIVE:
                return None  # it has ended; the server itself does not let go of it
            if self._quarantine:
                why, problem = str(damaged(subject, "the server cannot read it")), f"{problem}: ended as dead"
                await self._settler(queue).give_up(damage.substitute(subject), why)
        return Reread(queue, subject, 0, problem=problem)

    async def _is_there(self, stream: str, subject: str) -> bool:
        try:
            return await self._reader.last_exact(stream, subject) is not None
        except Refused:  # of the bytes that it has, the server says so in several ways
            return False

    async def _one(self, stream: str, found: Found) -> Reread | None:
        problem = await self._problem(found)
        if problem:
            again = await self._reader.at(stream, found.sequence)
            if again is None:
                return None
            problem = await self._problem(again)
        if problem and self._quarantine and await self._moved(stream, found):
            problem = f"moved out of the way: {problem}"
        queue, size = names.queue_of_subject(found.subject), len(found.stored)
        return Reread(queue, found.subject, size, has_sum=found.has_sum, problem=problem)

    async def _problem(self, found: Found) -> str:
        """What is wrong with a message, or with the payload or result that it names."""
        try:
            said = found.read(decoder(found.subject))
            if isinstance(said, Record) and said.place != state.ARCHIVE and not said.gone:
                self._open[names.id_of(found.subject)] = said.place
            for name in _named(said):
                await self._blobs.get(name)
        except Damaged as error:
            return error.why
        return ""

    async def _moved(self, stream: str, found: Found) -> bool:
        """What nobody can read, or work without; not tasks and what belongs to them: the next claim ends those."""
        own = Names(self._register.prefix, names.queue_of_subject(found.subject))
        if found.subject.startswith(own.done):
            return await self._mended(stream, found, own)
        if not found.subject.startswith((own.key, own.tally, own.once)) or found.subject in (own.marks, own.expiring):
            return False
        await self._set_aside(stream, found)
        return True

    async def _mended(self, stream: str, found: Found, own: Names) -> bool:
        """A record: of a dead letter it is made anew, of a waiting message the next claim decides."""
        id, partition = names.id_of(found.subject), self._partition(own.queue)
        try:
            found.read(tasks.read_record)
            return False  # what it names elsewhere is gone; the rest of it is sound
        except Damaged as error:
            why = str(error)
        if await partition.tasks([id]):
            return False
        letter = (await partition.letters([id])).get(id)
        if letter is None:
            await self._set_aside(stream, found)
            return True
        now = self._connection.now()
        record = Record(task=letter, place=state.DEAD, error=why, finished_at=now, visible_at=now, format=tasks.FORMAT)
        await self._blobs.put(_KEPT + found.subject, found.stored)
        return await partition.store(Post(found.subject, record.SerializeToString(), "", found.sequence)) is not None

    async def _set_aside(self, stream: str, found: Found) -> None:
        await self._blobs.put(_KEPT + found.subject, found.stored)
        body = {"seq": found.sequence, "no_erase": True}
        with Ignored(Code.MESSAGE_NOT_FOUND, Code.SEQUENCE_NOT_FOUND):
            await self._connection.api(f"STREAM.MSG.DELETE.{stream}", body)


def decoder(subject: str) -> Callable[[bytes], object]:
    """What reads a message of this subject."""
    family = subject.split(".")[2] if subject.split(".")[1] == "_" else "task"
    if family == "lock" and subject.split(".")[3].startswith("~"):
        return stream_ends.read_ends
    if family == "key" and subject.endswith(".schedules"):
        return schedules.read_marks
    if family == "key" and subject.endswith(".expiring"):  # that it is there says all
        return bytes
    found: Callable[[bytes], object] | None = _DECODERS.get(family)
    return found or bytes


_DECODERS: dict[str, Callable[[bytes], object]] = {
    "task": tasks.read_task,
    "dead": tasks.read_task,
    "done": tasks.read_record,
    "key": appending.read_key,
    "call": calls.read_mark,
    "once": copying.read_made,
    "tally": counters.read_entry,
    "queue": queues.read_entry,
    "lock": maintenance.read_lock,
    "schedule": schedules.read_kept,
    "gone": partition.read_trace,
    "worker": worker_reports.read_report,
}


def _named(said: object) -> list[str]:
    """What a message names in the object store."""
    if isinstance(said, Record):
        return [name for name in (said.task.blob, said.result_blob) if name and not said.gone]
    return [said.blob] if isinstance(said, Task) and said.blob and damage.HEADER not in said.headers else []


async def check(register: Register, now: float) -> Check:
    """The line of `doctor` about the last one."""
    found = await register.remembered(_LAST)
    if found is None:
        return Check("scrub", "ok", "never done; `holdfast scrub` rereads everything and verifies it")
    last = msgspec.json.decode(found, type=Last)
    days = max(0.0, now - last.at) / 86_400
    what = f"{days:.1f} days ago {last.messages:,} messages were read, {last.without:,} of them without a sum"
    if last.wrong:
        return Check("scrub", "fail", f"{what}; {last.wrong:,} things were wrong: {', '.join(last.first)}")
    return Check("scrub", "ok", f"{what}; nothing was wrong")
