"""Maintenance: retention and sweeping, by one client at a time."""

from __future__ import annotations

import msgspec

from .faults import WRONG_SEQUENCE, Refused
from .letters import Letters
from .log import Log
from .names import lock_subject, queues_stream
from .wire import Post

_LOCKED = 60.0  # seconds a lock is believed, should its holder be gone


async def maintain(log: Log, letters: Letters) -> dict[str, int]:
    """What was done; {}: another client is at it."""
    info = await log.info()
    sequence = await _lock(log)
    if sequence is None:
        return {}
    try:
        before = log.link.now() - info.options.archive_days * 86400
        return {"archive": await letters.discard("archive", None, before=before)}
    finally:
        await _unlock(log, sequence)


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
