"""Dedup keys that hold until their message ends: each goes in with its message, if nobody wrote it since we looked."""

from __future__ import annotations

import asyncio
import time

import msgspec

from ...errors import ConfigError, UnknownOutcome
from ...retry import NoRetry
from ...v1.task_pb2 import Record, Task
from ..living_keys import ALIVE, counts
from ..records import Dedup, Enqueued, Envelope
from . import deadline, state, tasks
from .appending import UNKNOWN, Appender, Key, read_key
from .deadline import RETRY_S
from .faults import Code, Lost, Nobody, Refused
from .names import LIVING
from .partition import Partition
from .reading import Found
from .wire import Post


class LivingKeys:
    """Of one queue."""

    def __init__(self, partition: Partition, appender: Appender) -> None:
        self._partition = partition
        self._appender = appender

    async def append(self, message: Envelope, dedup: Dedup, *, replace: bool) -> Enqueued:
        """What became of it."""
        if replace:
            raise ConfigError("replace=True: a message on NATS cannot be changed; cancel it and enqueue another")
        with self._appender.refusing():
            [(post, id)] = await self._appender.posts([message])
            made = await self._append(message.dedup_key or "", post, id, dedup)
        if made.new and not message.delay and message.at is None:
            self._partition.enqueued()
        return made

    async def _append(self, key: str, post: Post, id: str, dedup: Dedup) -> Enqueued:
        """A lost answer is found out by the key: it went in with the message, or not at all."""
        partition, subject, doubt = self._partition, self._partition.names.living_key_of(key), False
        until = deadline.until(partition.connection.options.operation_timeout)
        while time.monotonic() < until:
            try:
                found = await partition.reader.last_exact(partition.names.task_stream, subject)
                holder = "" if found is None else found.read(read_key).id
                if holder == id:
                    return Enqueued(id, True)
                if found is not None and counts(await self._status(holder), dedup):
                    return Enqueued(holder, False)
                taken = Post(subject, msgspec.json.encode(Key(id, 0.0)), "", found.sequence if found else 0)
                await partition.connection.store([taken, post])
                return Enqueued(id, True)
            except Refused as error:
                if error.code not in (Code.WRONG_SEQUENCE, Code.DUPLICATE_IN_BATCH):
                    raise
            except (Lost, Nobody):
                doubt = True
                await asyncio.sleep(RETRY_S)
        if not doubt:
            raise Lost("the dedup key changed too often")

        async def again() -> list[str]:
            return [(await self._append(key, post, id, dedup)).id]

        raise UnknownOutcome(UNKNOWN.format(partition.queue), ids=[id], retry=again)

    async def _status(self, id: str) -> str:
        """As the leader of the stream knows it; a task that has left has ended."""
        partition = self._partition
        found = (await partition.tasks([id])).get(id)
        if found is None:
            return "gone"
        known = await partition.record(id)
        record = None if known is None else known[1]
        if record is not None and record.gone:
            return "gone"
        status = state.status(record, found[1], partition.seen(id, record), dead=False)
        return "dead" if status == "pending" and await self._is_exhausted(found[1], record) else status

    async def _is_exhausted(self, task: Task, record: Record | None) -> bool:
        """Whether its last lease is over: the next claim ends it."""
        if record is None or not record.token:
            return False
        options = (await self._partition.info()).options
        return record.attempts >= tasks.most(task, options) or isinstance(options.retry, NoRetry)

    async def forget_ended(self) -> int:
        """Keys whose message has ended; how many."""
        partition = self._partition
        names, subjects = partition.names, await partition.reader.subjects(partition.names.task_stream, self._pattern)
        living = [one for one in subjects if one.removeprefix(names.key).startswith(LIVING)]
        keys: list[Found] = list((await partition.reader.last(names.task_stream, living)).values()) if living else []
        over = []
        for one in keys:
            key = one.note(read_key)
            if key is not None and await self._status(key.id) not in ALIVE:
                over.append(one.sequence)
            deadline.renew()
        return sum(await partition.delete_each(names.task_stream, over)) if over else 0

    @property
    def _pattern(self) -> str:
        return f"{self._partition.names.key}*"
