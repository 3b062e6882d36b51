"""Maintenance: retention and sweeping, by one client at a time."""

from __future__ import annotations

import asyncio
import time

import msgspec

from ...v1.task_pb2 import Record
from . import deadline, state
from .faults import WRONG_SEQUENCE, Refused
from .letters import Letters
from .moving import Mover
from .names import id_of, lock_subject, queues_stream
from .partition import OUTLASTS, Log
from .wire import Post

_CHUNK = 200  # records read at once
_SWEEP = 3600.0  # seconds between two looks for marks that nobody needs any more
_OLD = 86400.0  # seconds that they are kept in any case, for whoever is late
_LOCKED = 60.0  # seconds a lock is believed, should its holder be gone


async def maintain(log: Log, letters: Letters, mover: Mover) -> dict[str, int]:
    """What was done; {}: another client is at it."""
    info = await log.info()
    sequence = await _lock(log)
    if sequence is None:
        return {}
    try:
        before = log.link.now() - info.options.archive_days * 86400
        done = {"archive": await letters.retire(before), "gone": await forget(log)}
        done["reserve"], done["tallies"] = await log.reserve.mend(), await log.tally.maintain()
        if time.monotonic() - log.swept_at > _SWEEP:
            log.swept_at = time.monotonic()
            done["marks"] = await sweep(log, mover, older_than=max(_OLD, info.options.dedup_window))
            done["letters"] = await letters.sweep()
            done["alone"] = await sweep_records(log, older_than=_OLD)
        return done
    finally:
        await _unlock(log, sequence)


async def forget(log: Log) -> int:
    """Records of messages that ended, are not kept and have left their stream: who ended them stopped before that."""
    _, _, left = await log.tally.read()
    live = await log.tasks(list(left)) if left else {}
    over = [one for id, one in left.items() if id not in live]
    if over:
        await asyncio.sleep(OUTLASTS)  # others may have been handed them, and know of no record
    await log.delete_each(log.names.done_stream, [sequence for sequence, _ in over])
    for _, record in over:
        await log.blobs.delete([name for name in (record.task.blob, record.result_blob) if name])
    return len(over)


async def sweep(log: Log, mover: Mover, *, older_than: float) -> int:
    """Marks of copies and of calls that say nothing any more; how many."""
    lanes = await log.lanes.look()
    waiting = any(lane["num_pending"] or lane["num_ack_pending"] for lane in lanes)
    return await mover.sweep(older_than=older_than) + await log.calls.sweep(
        older_than=older_than, nothing_waits=not waiting
    )


async def sweep_records(log: Log, *, older_than: float) -> int:
    """Records of messages that have no end and no task: an earlier purge took the task alone. How many."""
    before, swept = log.link.now() - older_than, 0
    ids = [id_of(one) for one in await log.reader.subjects(log.names.done_stream, f"{log.names.done}*")]
    for start in range(0, len(ids), _CHUNK):
        found = await log.records(ids[start : start + _CHUNK])
        live = {id: sequence for id, (sequence, record) in found.items() if _is_live_since(record, before)}
        tasks = await log.tasks(list(live)) if live else {}
        alone = [sequence for id, sequence in live.items() if id not in tasks]
        swept += sum(await log.delete_each(log.names.done_stream, alone))
        deadline.renew()
    return swept


def _is_live_since(record: Record, before: float) -> bool:
    return record.place == state.LIVE and max(record.lease_end, record.visible_at) < before


async def _lock(log: Log) -> int | None:
    subject = lock_subject(log.register.prefix, log.queue)
    found = await log.reader.last_exact(queues_stream(log.register.prefix), subject)
    now = log.link.now()
    if found is not None and msgspec.json.decode(found.data, type=float) > now:
        return None
    post = Post(subject, msgspec.json.encode(now + _LOCKED), "", found.sequence if found else 0)
    return await _write(log, post)


async def _unlock(log: Log, sequence: int) -> None:
    await _write(log, Post(lock_subject(log.register.prefix, log.queue), b"0.0", "", sequence))


async def _write(log: Log, post: Post) -> int | None:
    try:
        return (await log.link.store([post]))[0]
    except Refused as error:
        if error.code != WRONG_SEQUENCE:
            raise
        return None
