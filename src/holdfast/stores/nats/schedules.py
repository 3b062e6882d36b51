"""Schedules on JetStream: a message each in a stream of their own, and the marks of a queue in one message beside its
tasks. A fire is one atomic batch of that stream: the marks, if they are still the ones that were seen, and the tasks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from ...schedules import Mark, Plan
from ..base import QueueInfo
from ..records import Envelope
from ..scheduling import Change, Fire, Scheduled, taken
from . import deadline, names, tasks
from .connection import Connection
from .deadline import RETRY_S
from .faults import Code, Ignored, Lost, Nobody, Refused, mapped
from .partition import Partition
from .parts import Parts
from .queues import Register
from .reading import Found, Reader
from .wire import Post

read_marks = msgspec.json.Decoder(dict[str, Mark]).decode


class _Kept(msgspec.Struct, frozen=True):
    """A schedule as it is written, and when its queue was made: another queue of that name does not have it."""

    plan: Plan
    queue_made: float

    def is_of(self, info: QueueInfo | None) -> bool:
        return info is not None and info.created_at == self.queue_made


read_kept = msgspec.json.Decoder(_Kept).decode


class NatsSchedules:
    """See `stores/scheduling.py` for the promises."""

    def __init__(
        self, connection: Connection, reader: Reader, register: Register, parts: Callable[[str], Parts]
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._register = register
        self._parts = parts
        self._stream = names.schedules_stream(register.prefix)

    def _subject(self, name: str) -> str:
        return names.schedule_subject(self._register.prefix, name)

    def _timeout(self) -> float:
        return self._connection.options.operation_timeout

    # Looking.

    async def find(self, name: str) -> Scheduled | None:
        with deadline.within(self._timeout()), mapped(f"looking up schedule {name!r}"):
            found = await self._read(name)
            kept = found.read(read_kept) if found is not None else None
            if kept is None or not kept.is_of(await self._register.find(kept.plan.queue)):
                return None
            plan = kept.plan
            return Scheduled(plan, (await self.marks_of(plan.queue))[0].get(name, Mark()))

    async def of(self, queue: str) -> list[Scheduled]:
        with deadline.within(self._timeout()), mapped(f"looking up schedules of {queue!r}"):
            return await self._some({queue})

    async def all(self) -> list[Scheduled]:
        with deadline.within(self._timeout()), mapped("listing schedules"):
            return await self._some(None)

    async def queues(self) -> set[str]:
        with deadline.within(self._timeout()), mapped("listing schedules"):
            return {plan.queue for plan in await self._plans(None)}

    def seen(self, queue: str) -> list[Scheduled] | None:
        return None

    async def _some(self, queues: set[str] | None) -> list[Scheduled]:
        plans = await self._plans(queues)
        marks = {queue: (await self.marks_of(queue))[0] for queue in {plan.queue for plan in plans}}
        return [Scheduled(plan, marks[plan.queue].get(plan.name, Mark())) for plan in plans]

    async def _plans(self, queues: set[str] | None) -> list[Plan]:
        every: dict[str, Found] = {}
        with Ignored(Code.STREAM_NOT_FOUND), suppress(Nobody):
            every = await self._reader.last(self._stream, [self._subject("*")])
        kept = sorted((found.read(read_kept) for found in every.values()), key=lambda each: each.plan.name)
        kept = [each for each in kept if queues is None or each.plan.queue in queues]
        infos = {name: await self._register.find(name) for name in {each.plan.queue for each in kept}}
        return [each.plan for each in kept if each.is_of(infos[each.plan.queue])]

    async def _read(self, name: str) -> Found | None:
        with Ignored(Code.STREAM_NOT_FOUND):
            return await self._reader.last_exact(self._stream, self._subject(name))
        return None

    async def marks_of(self, queue: str) -> tuple[dict[str, Mark], int]:
        """How far each schedule of a queue has come, and the sequence of the message that says so."""
        own = self._register.names(queue)
        with Ignored(Code.STREAM_NOT_FOUND):
            found = await self._reader.last_exact(own.task_stream, own.marks)
            if found is not None:
                return found.read(read_marks), found.sequence
        return {}, 0

    # Backups.

    async def copied(self, queue: str) -> tuple[list[Scheduled], int]:
        """Those of a queue, and the sequence of the message that says how far they have come."""
        plans = await self._plans({queue})
        marks, sequence = await self.marks_of(queue)
        return [Scheduled(plan, marks.get(plan.name, Mark())) for plan in plans], sequence

    async def restore(self, queue: str, created_at: float, some: Sequence[Scheduled]) -> None:
        """For a queue that nobody sees yet: it will have been made at this instant."""
        if not some:
            return
        await self._register.install(again=True)
        marks = msgspec.json.encode({each.plan.name: each.mark for each in some})
        await self._connection.store([Post(self._register.names(queue).marks, marks, "", 0)])
        for each in some:
            found = await self._read(each.plan.name)
            data = msgspec.json.encode(_Kept(each.plan, created_at))
            await self._connection.store(
                [Post(self._subject(each.plan.name), data, "", found.sequence if found else 0)]
            )

    # Changing.

    async def change(self, name: str, queue: str, change: Change) -> Plan | None:
        with deadline.within(self._timeout()), mapped(f"changing schedule {name!r}"):
            info = await self._register.get(queue)
            await self._register.install(again=True)
            while True:
                found = await self._read(name)
                kept = found.read(read_kept) if found is not None else None
                counts = kept is not None and kept.is_of(await self._register.find(kept.plan.queue))
                old = kept.plan if kept is not None and counts else None
                if old is not None and old.queue != queue:
                    raise taken(name, old.queue)
                plan = change(old)
                if plan is None:
                    await self._forget(name, queue)
                    return None
                data = msgspec.json.encode(_Kept(plan, info.created_at))
                post = Post(self._subject(name), data, "", found.sequence if found else 0)
                with Ignored(Code.WRONG_SEQUENCE):
                    await self._connection.store([post])
                    return plan
                if (now := await self._read(name)) is not None and now.note(bytes) == post.data:
                    return plan  # our own write, its answer was lost

    async def _forget(self, name: str, queue: str) -> None:
        with Ignored(Code.STREAM_NOT_FOUND):
            await self._connection.api(f"STREAM.PURGE.{self._stream}", {"filter": self._subject(name)})
        own = self._register.names(queue)
        while True:
            marks, sequence = await self.marks_of(queue)
            if marks.pop(name, None) is None:
                return
            with Ignored(Code.WRONG_SEQUENCE):
                await self._connection.store([Post(own.marks, msgspec.json.encode(marks), "", sequence)])

    async def forget_queue(self, queue: str) -> None:
        """It is being deleted, and its schedules with it."""
        for each in await self._some({queue}):
            with Ignored(Code.STREAM_NOT_FOUND):
                await self._connection.api(f"STREAM.PURGE.{self._stream}", {"filter": self._subject(each.plan.name)})

    # Firing.

    async def fire(self, queue: str, fires: Sequence[Fire]) -> list[bool]:
        with deadline.within(self._timeout()), mapped(f"firing schedules of {queue!r}"):
            return await self._fire(queue, fires)

    async def _fire(self, queue: str, fires: Sequence[Fire]) -> list[bool]:
        parts = self._parts(queue)
        partition = parts.partition
        info = await partition.info()
        posts = await self._posts(parts, info, fires)
        until, doubt = deadline.until(self._timeout()), False
        while True:
            try:
                marks, sequence = await self.marks_of(queue)
                ours = [doubt and marks.get(each.name) == each.mark for each in fires]
                kept = await self._kept(queue, fires)
                new = [each for each in fires if each.name in kept and marks.get(each.name, Mark()) == each.seen]
                if not new:
                    return ours
                marks |= {each.name: each.mark for each in new}
                own = Post(partition.names.marks, msgspec.json.encode(marks), "", sequence)
                await self._connection.store([own, *(post for each in new for post in posts[each.name])])
            except (Refused, Lost, Nobody) as error:
                if isinstance(error, Refused) and error.code not in (Code.WRONG_SEQUENCE, Code.DUPLICATE_IN_BATCH):
                    raise
                doubt = doubt or not isinstance(error, Refused)  # the marks say next time whether it went in
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(RETRY_S if doubt else 0.0)
                continue
            partition.enqueued()
            return [mine or each in new for each, mine in zip(fires, ours, strict=True)]

    async def _posts(self, parts: Parts, info: QueueInfo, fires: Sequence[Fire]) -> dict[str, list[Post]]:
        """The tasks, by schedule."""
        partition = parts.partition
        now = self._connection.now()
        for priority in {message.priority for each in fires for _, message in each.messages}:
            if await partition.consumers.ensure(priority, info.options.lease):
                await partition.note(b"lane")
        return {
            each.name: [await _post(parts, partition, id, message, now) for id, message in each.messages]
            for each in fires
        }

    async def _kept(self, queue: str, fires: Sequence[Fire]) -> set[str]:
        """Those that are still there: who fires may have looked some seconds ago."""
        found = await self._reader.last(self._stream, [self._subject(each.name) for each in fires])
        kept = [one.read(read_kept) for one in found.values()]
        return {each.plan.name for each in kept if each.plan.queue == queue}


async def _post(parts: Parts, partition: Partition, id: str, message: Envelope, now: float) -> Post:
    due = message.at if message.at is not None and message.at > now else 0.0
    task = tasks.task_of(id, message, now, due)
    parts.appender.must_fit(task)
    return await parts.appender.post(task, now, marked=False)
