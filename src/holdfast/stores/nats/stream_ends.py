"""How far each stream of a queue had come, remembered in another one: a server that is killed, finds a message damaged
when it starts and cuts its stream off there does not tell.

Written by maintenance, so what was stored since the last one is not known of.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...escaping import logger_named
from .faults import Code, Ignored
from .names import ends_subject, queues_stream
from .partition import Partition
from .reading import Found
from .wire import Post

_LOG = logger_named("holdfast.nats")


class End(msgspec.Struct, frozen=True):
    """The last place that a stream had, and which stream that was: one of its name may have been made anew."""

    created: str
    last: int


read_ends = msgspec.json.Decoder(dict[str, End]).decode


async def remember(partition: Partition) -> None:
    """How far the streams are now. What is behind what is remembered stays remembered, and is told."""
    found, old = await _remembered(partition)
    now = await _now(partition)
    for said in _shorter(old, now):
        _LOG.error("%s", said)
    new = {stream: _later(old.get(stream), end) for stream, end in now.items()}
    if new != old:
        await _write(partition, found, new)


async def check(partition: Partition) -> list[str]:
    """Streams that are gone, or end before the place that is remembered, in words."""
    _, old = await _remembered(partition)
    now = await _now(partition)
    gone = [f"stream {stream} is gone, with all that was in it" for stream in _streams(partition) if stream not in now]
    if gone and await partition.register.find(partition.queue) is None:
        return []  # the queue was deleted meanwhile
    return gone + _shorter(old, now)


async def accept(partition: Partition) -> None:
    """From now on what is there counts."""
    found, _ = await _remembered(partition)
    await _write(partition, found, await _now(partition))


def _streams(partition: Partition) -> tuple[str, str, str]:
    return partition.names.task_stream, partition.names.done_stream, partition.names.dead_stream


async def _remembered(partition: Partition) -> tuple[Found | None, dict[str, End]]:
    prefix = partition.register.prefix
    found = await partition.reader.last_exact(queues_stream(prefix), ends_subject(prefix, partition.queue))
    return found, (found.note(read_ends) or {}) if found is not None else {}


async def _now(partition: Partition) -> dict[str, End]:
    ends: dict[str, End] = {}
    for stream in _streams(partition):
        with Ignored(Code.STREAM_NOT_FOUND):
            info: dict[str, Any] = await partition.connection.api(f"STREAM.INFO.{stream}")
            ends[stream] = End(str(info.get("created", "")), int(info["state"]["last_seq"]))
    return ends


async def _write(partition: Partition, found: Found | None, ends: dict[str, End]) -> None:
    subject = ends_subject(partition.register.prefix, partition.queue)
    with Ignored(Code.WRONG_SEQUENCE):  # another did
        post = Post(subject, msgspec.json.encode(ends), "", found.sequence if found is not None else 0)
        await partition.connection.store([post])


def _later(old: End | None, now: End) -> End:
    return old if old is not None and old.created == now.created and old.last > now.last else now


def _shorter(old: dict[str, End], now: dict[str, End]) -> list[str]:
    return [
        f"stream {stream} ends at {end.last:,} and had come to {old[stream].last:,}: the server has cut it off, and up "
        f"to {old[stream].last - end.last:,} messages are lost; restore them from a backup"
        for stream, end in now.items()
        if stream in old and _later(old[stream], end) != end
    ]
