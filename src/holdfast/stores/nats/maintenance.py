"""Maintenance: retention and sweeping, by one client at a time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from ...v1.task_pb2 import Record
from . import deadline, state, stream_ends
from .connection import WINDOW
from .faults import Code, Ignored
from .names import TRACE_S, id_of, lock_subject, queues_stream
from .partition import OUTLASTS_S, Partition
from .wire import Post

if TYPE_CHECKING:
    from .copying import Copier
    from .letters import Letters
    from .living_keys import LivingKeys

_OLD_S = 86400.0  # marks that nobody needs any more are kept so long in any case, for whoever is late
_LOCK_S = 60.0  # a lock is believed, should its holder be gone: maintenance usually takes less


read_lock = msgspec.json.Decoder(float).decode


async def maintain(partition: Partition, letters: Letters, copier: Copier, living_keys: LivingKeys) -> dict[str, int]:
    """What was done; {}: another client is at it."""
    info = await partition.info()
    sequence = await _lock(partition)
    if sequence is None:
        return {}
    try:
        await stream_ends.remember(partition)
        before = partition.connection.now() - info.options.archive_days * 86400
        done = {"archive": await letters.retire(before), "gone": await forget(partition)}
        done["expired"] = await partition.lapses.end(letters)
        done["reserve"], done["tallies"] = await partition.reserve.mend(), await partition.counters.maintain()
        if time.monotonic() - partition.swept_at > TRACE_S:
            partition.swept_at = time.monotonic()
            done["marks"] = await sweep(partition, copier, older_than=max(_OLD_S, info.options.dedup_window))
            done["keys"] = await living_keys.forget_ended()
            done["letters"] = await letters.sweep()
            done["alone"] = await sweep_records(partition, older_than=_OLD_S)
        return done
    finally:
        await _unlock(partition, sequence)


async def forget(partition: Partition) -> int:
    """Records of messages that ended, are not kept and have left their stream: who ended them stopped before that."""
    _, _, left = await partition.counters.read()
    live = await partition.tasks(list(left)) if left else {}
    over = [one for id, one in left.items() if id not in live]
    if over:
        await asyncio.sleep(OUTLASTS_S)  # others may have been handed them, and know of no record
    await partition.delete_each(partition.names.done_stream, [sequence for sequence, _ in over])
    for _, record in over:
        await partition.blobs.delete([name for name in (record.task.blob, record.result_blob) if name])
    return len(over)


async def sweep(partition: Partition, copier: Copier, *, older_than: float) -> int:
    """Marks of copies and of calls that say nothing any more; how many."""
    consumers = await partition.consumers.look()
    waiting = any(consumer["num_pending"] or consumer["num_ack_pending"] for consumer in consumers)
    return await copier.sweep(older_than=older_than) + await partition.calls.sweep(
        older_than=older_than, nothing_waits=not waiting
    )


async def sweep_records(partition: Partition, *, older_than: float) -> int:
    """Records of messages that have no end and no task: an earlier purge took the task alone. How many."""
    before, swept = partition.connection.now() - older_than, 0
    ids = [
        id_of(one) for one in await partition.reader.subjects(partition.names.done_stream, f"{partition.names.done}*")
    ]
    for start in range(0, len(ids), WINDOW):
        found = await partition.records(ids[start : start + WINDOW])
        live = {id: sequence for id, (sequence, record) in found.items() if _is_live_since(record, before)}
        tasks = await partition.tasks(list(live)) if live else {}
        alone = [sequence for id, sequence in live.items() if id not in tasks]
        swept += sum(await partition.delete_each(partition.names.done_stream, alone))
        deadline.renew()
    return swept


def _is_live_since(record: Record, before: float) -> bool:
    return (
        record.place == state.LIVE and not state.is_unread(record) and max(record.lease_end, record.visible_at) < before
    )


async def _lock(partition: Partition) -> int | None:
    subject = lock_subject(partition.register.prefix, partition.queue)
    found = await partition.reader.last_exact(queues_stream(partition.register.prefix), subject)
    now = partition.connection.now()
    if found is not None and (found.note(read_lock) or 0.0) > now:
        return None
    post = Post(subject, msgspec.json.encode(now + _LOCK_S), "", found.sequence if found else 0)
    return await _write(partition, post)


async def _unlock(partition: Partition, sequence: int) -> None:
    await _write(partition, Post(lock_subject(partition.register.prefix, partition.queue), b"0.0", "", sequence))


async def _write(partition: Partition, post: Post) -> int | None:
    with Ignored(Code.WRONG_SEQUENCE):
        return (await partition.connection.store([post]))[0]
    return None
