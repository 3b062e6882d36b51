"""Streams of tasks that an earlier version made: brought up to date without losing anything, while nobody works.

They allowed schedules, or had a place of their own for delayed messages. A server cannot take schedules back, and with
them a stream drops its oldest messages when it is full. So the stream is made anew: it gives up its subjects, its
messages are copied into a stream beside it, it is deleted and made again, and they are copied back. Every step can be
repeated; `<prefix>=<queue>=moving` says that it must be.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from ...config import QueueOptions
from ...errors import StoreError
from . import state
from .appending import key_post, read_key
from .connection import WINDOW
from .faults import Code, Refused
from .lookup import Looker
from .names import LATER, id_of
from .partition import Partition
from .queues import must_be_converted
from .reading import Found
from .wire import Post


async def upgrade(partition: Partition) -> list[str]:
    """Make the streams of a queue what this version makes; what was done, in words. StoreError while it is in use."""
    names, done = partition.names, list[str]()
    old = await partition.register.config(names.task_stream)
    if old is not None and must_be_converted(old):
        await _refuse_while_held(partition)
        await _move_out(partition, old)
        done.append(f"made stream {names.task_stream} anew, with discard=new")
    await partition.register.make_streams(partition.queue)
    if await partition.register.config(names.moving_stream) is not None:
        await _move_back(partition)
    partition.register.unconverted.discard(partition.queue)
    return done


async def _refuse_while_held(partition: Partition) -> None:
    """A message that somebody ends while it is copied would come back."""
    found = await Looker(partition).delivered(await partition.consumers.look())
    records = await partition.records([id_of(one.subject) for one in found])
    held = [id for id, (_, record) in records.items() if state.held(record, partition.seen(id, record))]
    if held:
        raise StoreError(
            f"nats: {len(held)} messages of queue {partition.queue!r} are being worked on; stop its workers, "
            "then `holdfast install` again"
        )


async def _move_out(partition: Partition, old: dict[str, Any]) -> None:
    """Everything into the stream beside, and the old stream away."""
    names, start = partition.names, len(partition.register.prefix) + 1
    await partition.register.drop_stream(names.moving_stream)  # of a try before: what it copied may have ended since
    await partition.register.make(names.moving_stream, [f"{names.moving}>"], max_msgs_per_subject=1)
    await partition.connection.api(f"STREAM.UPDATE.{names.task_stream}", {**old, "subjects": [names.moved]})
    async for page in _pages(partition, names.task_stream):
        await _copy(partition, [Post(names.moving + one.subject[start:], one.data, "", 0) for one in page])
    await partition.register.drop_stream(names.task_stream)


async def _move_back(partition: Partition) -> None:
    names, start = partition.names, len(partition.names.moving)
    info, consumers = await partition.register.find(partition.queue), set[int]()
    async for page in _pages(partition, names.moving_stream):
        posts = [_post(partition, f"{partition.register.prefix}.{one.subject[start:]}", one.data) for one in page]
        fresh = {int(post.subject.split(".")[2]) for post in posts if post.subject.startswith(names.task)} - consumers
        for priority in fresh:
            await partition.consumers.restore(priority, info.options.lease if info else QueueOptions().lease)
        consumers |= fresh
        await _copy(partition, posts)
        for one in page:
            await partition.delete(names.moving_stream, one.sequence)
    await partition.register.drop_stream(names.moving_stream)


def _post(partition: Partition, subject: str, data: bytes) -> Post:
    """A message of an old stream as it belongs into a new one."""
    names = partition.names
    if subject.startswith(names.old_later):
        return Post(names.task + subject.removeprefix(names.old_later) + LATER, data, "", 0)
    if subject.startswith(names.key):
        return key_post(partition.connection, subject, read_key(data), 0)
    return Post(subject, data, "", 0)


async def _pages(partition: Partition, stream: str) -> AsyncIterator[list[Found]]:
    start = 1
    while page := await partition.reader.run(stream, ">", start, WINDOW):
        yield page
        start = page[-1].sequence + 1


async def _copy(partition: Partition, posts: Sequence[Post]) -> None:
    """Store these; one that is there already was copied before."""
    for answer in await partition.connection.store_each(posts):
        if isinstance(answer, Exception) and not (isinstance(answer, Refused) and answer.code == Code.WRONG_SEQUENCE):
            raise answer
