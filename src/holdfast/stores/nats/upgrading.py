"""Streams of tasks that an earlier version made: brought up to date without losing anything, while nobody works.

They allowed schedules, or had a place of their own for delayed messages. A server cannot take schedules back, and with
them a stream drops its oldest messages when it is full. So the stream is made anew: it gives up its subjects, its
messages are copied into a stream beside it, it is deleted and made again, and they are copied back. Every step can be
repeated; `<prefix>=<queue>=moving` says that it must be.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from ...config import QueueOptions
from ...errors import StoreError
from . import limits, state
from .appending import Key, key_post
from .faults import STREAM_NOT_FOUND, WRONG_SEQUENCE, Refused
from .lookup import Looker
from .names import LATER, id_of
from .partition import Log
from .reading import Found
from .wire import Post

_TOGETHER = 200  # messages copied at once


async def upgrade(log: Log) -> list[str]:
    """Make the streams of a queue what this version makes; what was done, in words. StoreError while it is in use."""
    names, done = log.names, list[str]()
    old = await _config(log, names.task_stream)
    if old is not None and limits.must_be_converted(old):
        await _refuse_while_held(log)
        await _move_out(log, old)
        done.append(f"made stream {names.task_stream} anew, with discard=new")
    await log.register.make_streams(log.queue)
    if await _config(log, names.moving_stream) is not None:
        await _move_back(log)
    log.register.unconverted.discard(log.queue)
    return done


async def _config(log: Log, stream: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = (await log.link.api(f"STREAM.INFO.{stream}"))["config"]
    except Refused as error:
        if error.code != STREAM_NOT_FOUND:
            raise
        return None
    return found


async def _refuse_while_held(log: Log) -> None:
    """A message that somebody ends while it is copied would come back."""
    found = await Looker(log).delivered(await log.lanes.look())
    records = await log.records([id_of(one.subject) for one in found])
    held = [id for id, (_, record) in records.items() if state.held(record, log.seen(id, record))]
    if held:
        raise StoreError(
            f"nats: {len(held)} messages of queue {log.queue!r} are being worked on; stop its workers, "
            "then `holdfast install` again"
        )


async def _move_out(log: Log, old: dict[str, Any]) -> None:
    """Everything into the stream beside, and the old stream away."""
    names, start = log.names, len(log.register.prefix) + 1
    await log.register.drop_stream(names.moving_stream)  # of a try before: what it copied may have ended since
    await log.register.make_moving(log.queue)
    await log.link.api(f"STREAM.UPDATE.{names.task_stream}", {**old, "subjects": [names.moved]})
    async for page in _pages(log, names.task_stream):
        await _copy(log, [Post(names.moving + one.subject[start:], one.data, "", 0) for one in page])
    await log.register.drop_stream(names.task_stream)


async def _move_back(log: Log) -> None:
    names, start = log.names, len(log.names.moving)
    info, lanes = await log.register.find(log.queue), set[int]()
    async for page in _pages(log, names.moving_stream):
        posts = [_post(log, f"{log.register.prefix}.{one.subject[start:]}", one.data) for one in page]
        fresh = {int(post.subject.split(".")[2]) for post in posts if post.subject.startswith(names.task)} - lanes
        for priority in fresh:
            await log.lanes.restore(priority, info.options.lease if info else QueueOptions().lease)
        lanes |= fresh
        await _copy(log, posts)
        for one in page:
            await log.delete(names.moving_stream, one.sequence)
    await log.register.drop_stream(names.moving_stream)


def _post(log: Log, subject: str, data: bytes) -> Post:
    """A message of an old stream as it belongs into a new one."""
    names = log.names
    if subject.startswith(names.old_later):
        return Post(names.task + subject.removeprefix(names.old_later) + LATER, data, "", 0)
    if subject.startswith(names.key):
        return key_post(log.link, subject, msgspec.json.decode(data, type=Key), 0)
    return Post(subject, data, "", 0)


async def _pages(log: Log, stream: str) -> AsyncIterator[list[Found]]:
    start = 1
    while page := await log.reader.run(stream, ">", start, _TOGETHER):
        yield page
        start = page[-1].sequence + 1


async def _copy(log: Log, posts: Sequence[Post]) -> None:
    """Store these; one that is there already was copied before."""
    for answer in await log.link.store_each(posts):
        if isinstance(answer, Exception) and not (isinstance(answer, Refused) and answer.code == WRONG_SEQUENCE):
            raise answer
