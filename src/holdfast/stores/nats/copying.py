"""From one place to another: dead letters into their stream or another queue, and back. Repeating it adds nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ... import ids as makers
from ...config import QueueOptions
from ...errors import QueueExists, QueueNotFound
from ...v1.task_pb2 import Record, Task
from ..records import Envelope
from . import tasks
from .connection import WINDOW
from .faults import Code, Ignored
from .partition import Partition
from .wire import BATCH_BYTES, BATCH_MESSAGES, Post

_MOVED = "dead:"  # and the queue it came from


class Made(msgspec.Struct):
    """That a copy was made: it outlives the copy, so that it is made once only."""

    id: str
    of: str  # the message that was copied
    purpose: str
    at: float


read_made = msgspec.json.Decoder(Made).decode


class Copier:
    """Moves messages of one queue."""

    def __init__(self, partition: Partition, others: Callable[[str], Partition]) -> None:
        self._partition = partition
        self._others = others

    async def keep_dead(self, letters: Sequence[tuple[Task, bytes]]) -> None:
        """Store dead letters, each with its bytes; before their tasks are given up."""
        partition = self._partition
        info, consumers = await partition.info(), self._others(f"{partition.queue}/dead").consumers
        for priority in {task.metadata.priority for task, _ in letters}:
            await consumers.ensure(priority, info.options.lease)
        posts: list[Post] = []
        for task, raw in letters:
            _, small = await partition.blobs.fitted(task, raw)
            posts.append(Post(f"{partition.names.dead}{task.metadata.priority}.{task.id}", small, "", 0))
        await partition.store_each(posts)

    async def move(self, task: Task, record: Record) -> None:
        """To the queue that takes this queue's dead letters, made when absent."""
        target = record.moving_to
        try:
            await self._partition.register.create(target, QueueOptions())
        except QueueExists:
            pass
        why = {"dead_from": self._partition.queue, "dead_reason": record.error, "dead_id": task.id}
        await self._copy(self._others(target), _MOVED + self._partition.queue, [(task, why, None)])

    async def replay(self, originals: Sequence[Task]) -> int:
        """Into their own queue once more, as fresh messages; how many: without those that were replayed before."""
        found = [(task, {"replayed_from": task.id}, task.max_attempts or None) for task in originals]
        return await self._copy(self._partition, "replay", found)

    async def _copy(
        self, target: Partition, purpose: str, originals: Sequence[tuple[Task, dict[str, str], int | None]]
    ) -> int:
        """Copies of these, with more headers and so many attempts, each with a mark that it was made; how many."""
        names = target.names
        marks = {task.id: names.once_of(purpose, task.id) for task, _, _ in originals}
        made = await target.reader.last(names.task_stream, list(marks.values()))
        fresh = [one for one in originals if marks[one[0].id] not in made]
        info = await target.info()
        for priority in {task.metadata.priority for task, _, _ in fresh}:
            if await target.consumers.ensure(priority, info.options.lease):
                await target.note(b"lane")
        pairs = [await _pair(target, purpose, marks[task.id], task, why, most) for task, why, most in fresh]
        return sum([await _store_pairs(target, part) for part in _parts(pairs)])

    async def sweep(self, *, older_than: float) -> int:
        """Marks of copies whose original is gone, so that nobody can copy it again; how many."""
        partition, names = self._partition, self._partition.names
        before, swept = partition.connection.now() - older_than, 0
        found = await partition.reader.run(names.task_stream, f"{names.once}*", 1, 1 << 30)
        old = [(one.sequence, made) for one in found if (made := one.note(read_made)) is not None and made.at < before]
        for start in range(0, len(old), WINDOW):
            there = await self._there([made for _, made in old[start : start + WINDOW]])
            over = [sequence for sequence, made in old[start : start + WINDOW] if made.of not in there]
            swept += sum(await partition.delete_each(names.task_stream, over))
        return swept

    async def _there(self, copies: Sequence[Made]) -> set[str]:
        """Originals that are still there: in the dead letters or the archive; for one that moved, as a task."""
        there = set(await self._partition.records([made.of for made in copies]))
        for source in {made.purpose for made in copies if made.purpose.startswith(_MOVED)}:
            moved = [made.of for made in copies if made.purpose == source]
            try:
                there |= set(await self._others(source.removeprefix(_MOVED)).tasks(moved))
            except QueueNotFound:
                pass
        return there


async def _pair(
    target: Partition, purpose: str, mark: str, task: Task, why: dict[str, str], max_attempts: int | None
) -> tuple[Post, Post]:
    """The mark of a copy, and the copy."""
    id = makers.text(makers.derived(makers.number(task.id) or 0, purpose))
    headers, priority = {**task.headers, **why}, task.metadata.priority
    fresh = Envelope(task.data, tasks.content_type(task), headers, priority, max_attempts=max_attempts)
    now = target.connection.now()
    copy, made = tasks.task_of(id, fresh, now, 0.0), Made(id, task.id, purpose, now)
    if task.blob:
        copy.blob = await target.blobs.copy(task.blob, id)
    copy, raw = await target.blobs.fitted(copy, copy.SerializeToString())
    return Post(mark, msgspec.json.encode(made), "", 0), Post(target.names.task_of(priority, id), raw, "", 0)


def _parts(pairs: Sequence[tuple[Post, Post]]) -> list[list[tuple[Post, Post]]]:
    """Pieces of which each is one batch of the server."""
    found: list[list[tuple[Post, Post]]] = []
    size = BATCH_BYTES
    for pair in pairs:
        size += len(pair[1].data)
        if size > BATCH_BYTES or len(found[-1]) == BATCH_MESSAGES // 2:
            found.append([])
            size = len(pair[1].data)
        found[-1].append(pair)
    return found


async def _store_pairs(target: Partition, pairs: Sequence[tuple[Post, Post]]) -> int:
    """Copies and their marks, all at once; where one was made by another just now, each for itself. How many."""
    with Ignored(Code.WRONG_SEQUENCE):
        await target.connection.store([post for pair in pairs for post in pair])
        return len(pairs)
    return 0 if len(pairs) == 1 else sum([await _store_pairs(target, [pair]) for pair in pairs])
