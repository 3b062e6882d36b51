"""How many messages the archive of a queue should have, by day, where nothing else names an archive file: on buckets.

A head counts what its flushes have written, in the swap that ends the flush. An object beside the archive counts what
was deleted on purpose. A day whose files hold fewer messages than that has lost one. It may hold more: a file is
written before it is counted, and deleted after.

A database names every file, so there this is not needed, and not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date

import msgspec

from ...errors import Damaged
from . import archive, damage, names, queues
from .head import codec
from .names import ArchiveName
from .queues import Config
from .space import Reading, Transaction

KEY = "removed"  # below the root of the archive
_DAYS = 40  # that a head counts; it is written with every commit, so not for ever


class Removed(msgspec.Struct, frozen=True):
    """What was deleted on purpose."""

    until: int = 0  # days up to this one have passed their retention
    rows: dict[int, int] = {}  # by day


def day_of(key: str) -> int:
    """The day of an archive file, as a number."""
    return date.fromisoformat(key.rpartition("/date=")[2].partition("/")[0]).toordinal()


def added(counts: Mapping[int, int], key: str) -> dict[int, int]:
    """With the messages of one more file."""
    day = day_of(key)
    new = {**counts, day: counts.get(day, 0) + names.parse_archive(key).rows}
    return {each: new[each] for each in sorted(new)[-_DAYS:]}


def remove(tx: Transaction, root: str, files: Iterable[ArchiveName], *, kept: int = 0) -> None:
    """Files are about to be deleted; `kept` of their messages stay, in another file of the same day."""
    before = damage.note(tx, root + KEY, Removed) or Removed()
    rows = dict(before.rows)
    for file in files:
        rows[day_of(file.key)] = rows.get(day_of(file.key), 0) + file.rows - kept
    _note(tx, root, Removed(before.until, rows))


def retire(tx: Transaction, root: str, keys: Sequence[str]) -> None:
    """The same for files that have passed their retention: their days count no more."""
    before = damage.note(tx, root + KEY, Removed) or Removed()
    _note(tx, root, Removed(max(before.until, *map(day_of, keys)), before.rows))


def _note(tx: Transaction, root: str, removed: Removed) -> None:
    rows = {day: count for day, count in removed.rows.items() if day > removed.until}
    tx.put(root + KEY, msgspec.msgpack.encode(Removed(removed.until, rows)))


def missing(view: Reading, queue: str, config: Config) -> dict[str, int]:
    """Days of which messages are missing, and how many. Heads are read before the files, and what was removed after."""
    root = queues.address(queue).archive_root(config)
    wanted: dict[int, int] = {}
    for log in queues.log_roots(queue, config):
        found = view.get(log + "head")
        counts = damage.read(log + "head", codec.decode, found.data).beyond.archived if found is not None else {}
        for day, rows in counts.items():
            wanted[day] = wanted.get(day, 0) + rows
    for file in archive.files(view, root):
        day = day_of(file.key)
        wanted[day] = wanted.get(day, 0) - file.rows
    removed = damage.note(view, root + KEY, Removed) or Removed()
    lost = {day: rows - removed.rows.get(day, 0) for day, rows in wanted.items() if day > removed.until}
    return {f"{root}archive/date={date.fromordinal(day)}/": rows for day, rows in lost.items() if rows > 0}


def told(view: Reading, queue: str, config: Config) -> dict[str, int]:
    """The same; nothing where a head is damaged, which is told already."""
    try:
        return missing(view, queue, config)
    except Damaged:
        return {}
