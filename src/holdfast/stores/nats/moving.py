"""From one place to another: dead letters into their stream or another queue, and back. Repeating it adds nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ... import ids as makers
from ...config import QueueOptions
from ...errors import QueueExists, QueueNotFound
from ...messages import Envelope
from ...v1.task_pb2 import Record, Task
from . import tasks
from .faults import WRONG_SEQUENCE, Refused
from .log import Log
from .wire import Post

_CHUNK = 200
_MOVED = "dead:"  # and the queue it came from


class Made(msgspec.Struct):
    """That a copy was made: it outlives the copy, so that it is made once only."""

    id: str
    of: str  # the message that was copied
    purpose: str
    at: float


class Mover:
    """Moves messages of one queue."""

    def __init__(self, log: Log, others: Callable[[str], Log]) -> None:
        self._log = log
        self._others = others

    async def keep_dead(self, task: Task, raw: bytes) -> None:
        """Store the dead letter; before its task is given up."""
        log = self._log
        info, letters = await log.info(), self._others(f"{log.queue}/dead").lanes
        await letters.ensure(task.metadata.priority, info.options.lease)
        subject = f"{log.names.dead}{task.metadata.priority}.{task.id}"
        _, raw = await tasks.fitted(task, raw, log.blobs)
        await log.store(Post(subject, raw, "", 0))

    async def move(self, task: Task, record: Record) -> None:
        """To the queue that takes this queue's dead letters, made when absent."""
        target = record.moving_to
        try:
            await self._log.register.create(target, QueueOptions())
        except QueueExists:
            pass
        why = {"dead_from": self._log.queue, "dead_reason": record.error, "dead_id": task.id}
        await self._copy(self._others(target), task, _MOVED + self._log.queue, why, max_attempts=None)

    async def replay(self, task: Task) -> bool:
        """Into its own queue once more, as a fresh message; False: that has been done."""
        why = {"replayed_from": task.id}
        return await self._copy(self._log, task, "replay", why, max_attempts=task.max_attempts or None)

    async def _copy(
        self, target: Log, task: Task, purpose: str, why: dict[str, str], *, max_attempts: int | None
    ) -> bool:
        id = makers.text(makers.derived(makers.number(task.id) or 0, purpose))
        marker = target.names.once_of(purpose, task.id)
        if await target.reader.last_exact(target.names.task_stream, marker) is not None:
            return False
        fresh = Envelope(
            task.data,
            tasks.content_type(task),
            {**task.headers, **why},
            task.metadata.priority,
            max_attempts=max_attempts,
        )
        now = target.link.now()
        copy, made = tasks.task_of(id, fresh, now, 0.0), Made(id, task.id, purpose, now)
        if task.blob:
            copy.blob = await target.blobs.copy(task.blob, id)
        copy, raw = await tasks.fitted(copy, copy.SerializeToString(), target.blobs)
        info = await target.info()
        if await target.lanes.ensure(task.metadata.priority, info.options.lease):
            await target.note(b"lane")
        subject = target.names.task_of(task.metadata.priority, id)
        posts = [Post(marker, msgspec.json.encode(made), "", 0), Post(subject, raw, "", 0)]
        try:
            await target.link.store(posts)
        except Refused as error:
            if error.code != WRONG_SEQUENCE:
                raise
            return False
        return True

    async def sweep(self, *, older_than: float) -> int:
        """Marks of copies whose original is gone, so that nobody can copy it again; how many."""
        log, names = self._log, self._log.names
        before, swept = log.link.now() - older_than, 0
        found = await log.reader.run(names.task_stream, f"{names.once}*", 1, 1 << 30)
        old = [(one.sequence, made) for one in found if (made := _made(one.data)).at < before]
        for start in range(0, len(old), _CHUNK):
            there = await self._there([made for _, made in old[start : start + _CHUNK]])
            for sequence, made in old[start : start + _CHUNK]:
                swept += made.of not in there and await log.delete(names.task_stream, sequence)
        return swept

    async def _there(self, copies: Sequence[Made]) -> set[str]:
        """Originals that are still there: in the dead letters or the archive; for one that moved, as a task."""
        there = set(await self._log.records([made.of for made in copies]))
        for source in {made.purpose for made in copies if made.purpose.startswith(_MOVED)}:
            moved = [made.of for made in copies if made.purpose == source]
            try:
                there |= set(await self._others(source.removeprefix(_MOVED)).tasks(moved))
            except QueueNotFound:
                pass
        return there


def _made(data: bytes) -> Made:
    return msgspec.json.decode(data, type=Made)
