"""Maintenance of a queue: what nobody waits for, one process at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import msgspec

from . import archive, archive_index, counting, damage, lapsing, letters, living_keys, names, pin, queues
from .cache import BlockCache
from .head.state import NEVER, Expire, Head
from .lookup import Glance
from .names import ArchiveName
from .partition import Log
from .repeat_window import RepeatWindow
from .space import ORPHAN_SECONDS, Reading, Space, Transaction

_LOCK_SECONDS = 60.0  # a crashed maintainer is replaced after so long
SWEEP_SECONDS = 300.0  # between two sweeps of a space: what they look for is older than an hour
NOTHING_DONE = dict.fromkeys(("flushed", "expired_files", "merged_files", "forgotten_keys", "orphans", "released"), 0)
_MARKS = ("dedup/", "replayed/", "recovered/", "maintain")  # keys of a queue that are looked at one by one
_MERGE_FROM = 16  # small files of one day
_SMALL_ROWS = 20_000
_PAGE = 1000
_DAY = 86400.0
_RECOVERED_DAYS = 90.0  # that what was set aside is known to have come back: a copy may be made again by a sleeper
_SLACK = 60.0  # seconds: dates are whole seconds, and nobody is in a hurry


async def maintain(
    space: Space, live: Log, dead: Log, cache: BlockCache, *, others: Sequence[Log] = ()
) -> dict[str, int]:
    """What was done, by kind; {} when another process is at it. `others` are further shards of the queue."""
    queue = live.address.queue
    begun = await space.transact(lambda tx: _begin(tx, queue))
    if begun is None:
        return {}
    config, until = begun
    root, files = live.address.root(config), live.address.archive_root(config)
    logs = [live, *others, dead]
    try:
        if not space.request_costs:  # else who lists for other reasons looks
            await lapsing.end(live, cache)
        done = {"flushed": sum([await _flush(log) for log in logs])}
        done["expired_files"] = await space.transact(lambda tx: _retire(tx, files, config, space.request_costs))
        done["merged_files"] = await _merge(space, live, config, files)
        done["forgotten_keys"] = await _forget(space, root, config)
        if not space.request_costs:
            done["forgotten_keys"] += await _forget_ended(space, live, root)
        done["orphans"] = sum([await log.window.maintain() for log in logs])
    finally:
        await space.transact(lambda tx: _end(tx, root, until))
    return done


def is_idle(queue: str, window: RepeatWindow, cache: BlockCache, view: Reading) -> bool:
    """Nothing of the queue needs upkeep now: most are idle most of the time, and then one look is all it costs."""
    config = queues.read(view, queue)
    if config.options.shards > 1:
        return False
    (sight,) = counting.sights(view, [(queue, config)], window)
    if sight.has_exhausted() or any(_is_busy(seen.head) for seen in (sight.live, sight.dead)):
        return False
    if lapsing.soonest(Glance(sight.view, sight.live, cache)) < NEVER:
        return False
    if any(sight.view.list(sight.root + kind, limit=1) for kind in _MARKS):
        return False
    files = archive.files(sight.view, sight.root)
    return not _outdated(files, view, config) and next(mergeable(files), None) is None


def _is_busy(head: Head) -> bool:
    return bool(head.settled or head.frozen is not None or head.pipes.consumers)


async def sweep_space(space: Space) -> int:
    """Files that crashes left anywhere in the space, at most once in a while, whoever shares it."""
    return await space.sweep(ORPHAN_SECONDS) if await space.transact(_takes_turn) else 0


def _takes_turn(tx: Transaction) -> bool:
    until = damage.note(tx, names.SWEPT, float)
    if until is not None and tx.now < until <= tx.now + SWEEP_SECONDS:
        return False
    tx.put(names.SWEPT, msgspec.msgpack.encode(tx.now + SWEEP_SECONDS))
    return True


def _begin(tx: Transaction, queue: str) -> tuple[queues.Config, float] | None:
    config = queues.read(tx, queue)
    key = queues.address(queue).root(config) + "maintain"
    taken = damage.note(tx, key, float)
    if taken is not None and taken > tx.now:
        return None
    until = tx.now + _LOCK_SECONDS
    tx.put(key, msgspec.msgpack.encode(until))
    return config, until


def _end(tx: Transaction, root: str, until: float) -> None:
    """Only our own mark: after so long another process may have begun."""
    if damage.note(tx, root + "maintain", float) == until:
        tx.delete(root + "maintain")


async def _flush(log: Log) -> int:
    """Expire what has no attempt left or is over, and write outcomes that a process left behind."""
    head = (await log.committer.ask(Expire())).head
    return int(await log.flusher.flush()) if head.settled or head.frozen is not None else 0


def _retire(tx: Transaction, root: str, config: queues.Config, counts: bool) -> int:
    """Archive files past their retention."""
    old = _outdated(archive.files(tx, root), tx, config)
    if old and counts:
        archive_index.retire(tx, root, old)
    for key in old:
        tx.delete(key)
    return len(old)


def _outdated(files: Sequence[ArchiveName], view: Reading, config: queues.Config) -> list[str]:
    """Judged by the time in their names; days are of the calendar."""
    wall = view.calendar.wall
    limit = wall(view.now) - config.options.archive_days * _DAY
    return [file.key for file in files if wall(file.frozen_at) < limit]


async def _merge(space: Space, live: Log, config: queues.Config, root: str) -> int:
    files = await space.read(lambda view: archive.files(view, root))
    limit = space.clock() - live.window.merge_after_s  # a flusher that comes late would write a merged file again
    files = [file for file in files if file.frozen_at <= limit]
    if len(files) < pin.MANY and await space.read(lambda view: pin.is_pinned(view, root)):
        return 0
    merged = 0
    for group in mergeable(files):
        merged += await letters.merge(space, live.address, config, group)
    return merged


def mergeable(files: list[ArchiveName]) -> Iterator[list[ArchiveName]]:
    """Small files of one day, when there are enough of them."""
    small = sorted((file for file in files if file.rows < _SMALL_ROWS), key=lambda file: file.flush)
    for _, day in groupby(small, key=lambda file: math.floor(file.frozen_at / _DAY)):
        group: list[ArchiveName] = []
        rows = 0
        for file in day:
            group.append(file)
            rows += file.rows
            if rows >= _SMALL_ROWS:
                yield group
                group, rows = [], 0
        if len(group) >= _MERGE_FROM:
            yield group


async def _forget(space: Space, root: str, config: queues.Config) -> int:
    """Dedup keys past their window, and marks of replays whose originals the archive has forgotten too."""
    windows = {
        "dedup/": config.options.dedup_window,
        "replayed/": config.options.archive_days * _DAY,
        "recovered/": _RECOVERED_DAYS * _DAY,
    }
    forgotten = 0
    for kind, window in windows.items():
        after: str | None = ""
        while after is not None:  # some at a time: whoever writes waits meanwhile
            some, after = await space.transact(partial(_forget_some, prefix=root + kind, after=after, window=window))
            forgotten += some
    return forgotten


async def _forget_ended(space: Space, live: Log, root: str) -> int:
    """Dedup keys that held until their message ended."""
    forgotten = 0
    after: str | None = ""
    while after is not None:
        forget = partial(living_keys.forget_ended, live=live, prefix=root + "dedup/", after=after)
        some, after = await space.transact(forget)
        forgotten += some
    return forgotten


def _forget_some(tx: Transaction, prefix: str, after: str, window: float) -> tuple[int, str | None]:
    """How many, and the key to go on from."""
    page = tx.list(prefix, after=after, limit=_PAGE)
    over = [key for key in page if _is_over(tx, key, window)]
    for key in over:
        tx.delete(key)
    return len(over), page[-1] if len(page) == _PAGE else None


def _is_over(tx: Transaction, key: str, window: float) -> bool:
    """Both kinds of object begin with the time they were written; where lists have dates, nothing has to be read."""
    made = tx.made(key)
    if made is not None:
        return made + window + _SLACK <= tx.now
    found = damage.note(tx, key, list[Any])
    return found is not None and found[0] + window <= tx.now
