"""From one place to another: dead letters into their stream or another queue, and back. Repeating it adds nothing."""

from __future__ import annotations

from collections.abc import Callable

from ... import ids as makers
from ...config import QueueOptions
from ...errors import QueueExists
from ...messages import Envelope
from ...v1.task_pb2 import Record, Task
from . import tasks
from .faults import WRONG_SEQUENCE, Refused
from .log import Log
from .wire import Post


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
        await _store_once(log, Post(subject, raw, "", 0))

    async def move(self, task: Task, record: Record) -> None:
        """To the queue that takes this queue's dead letters, made when absent."""
        target = record.moving_to
        try:
            await self._log.register.create(target, QueueOptions())
        except QueueExists:
            pass
        why = {"dead_from": self._log.queue, "dead_reason": record.error, "dead_id": task.id}
        await self._copy(self._others(target), task, f"dead:{self._log.queue}", why, max_attempts=None)

    async def replay(self, task: Task) -> bool:
        """Into its own queue once more, as a fresh message; False: that has been done."""
        why = {"replayed_from": task.id}
        return await self._copy(self._log, task, "replay", why, max_attempts=task.max_attempts or None)

    async def _copy(
        self, target: Log, task: Task, purpose: str, why: dict[str, str], *, max_attempts: int | None
    ) -> bool:
        id = makers.text(makers.derived(makers.number(task.id) or 0, purpose))
        marker = target.names.key_of(f"{purpose}\0{task.id}")  # outlives the copy, so that it is made once only
        if await target.reader.last_exact(target.names.task_stream, marker) is not None:
            return False
        fresh = Envelope(
            task.data,
            tasks.content_type(task),
            {**task.headers, **why},
            task.metadata.priority,
            max_attempts=max_attempts,
        )
        copy = tasks.task_of(id, fresh, target.link.now(), 0.0)
        if task.blob:
            copy.blob = await target.blobs.copy(task.blob, id)
        info = await target.info()
        if await target.lanes.ensure(task.metadata.priority, info.options.lease):
            await target.note(b"lane")
        subject = f"{target.names.task}{task.metadata.priority}.{id}"
        posts = [Post(marker, id.encode(), "", 0), Post(subject, copy.SerializeToString(), "", 0)]
        try:
            await target.link.store(posts)
        except Refused as error:
            if error.code != WRONG_SEQUENCE:
                raise
            return False
        return True


async def _store_once(log: Log, post: Post) -> None:
    try:
        await log.link.store([post])
    except Refused as error:
        if error.code != WRONG_SEQUENCE:
            raise
