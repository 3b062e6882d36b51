"""Restored messages as blocks and archive files: under their old ids, in objects that are new."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ...ids import Ids
from .. import backups
from . import archive, drafts, names, rows
from .calendar import Calendar
from .names import BlockName
from .rows import Rows
from .space import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK_ROWS = 1000
_BLOCK_BYTES = 4 << 20
_LATE = 0.02  # the part of its delay by which a message may be late where every block is a request
_LATE_LEAST_S = 0.05


class Made(msgspec.Struct, frozen=True):
    """An object to be written; its key is relative to the log, or for the archive to the queue."""

    key: str
    data: Buffer


class Columns:
    """Columns of restored rows as lists, each made when it is asked for."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._made: dict[str, list[Any]] = {}

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self._made:
            self._made[name] = backups.values(self._table, name)
        return self._made[name]

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def plain_ids(self) -> list[str]:
        if "plain" not in self._made:
            self._made["plain"] = [names.plain(id) for id in self["id"]]
        return self._made["plain"]

    def some(self, name: str, places: Sequence[int]) -> list[Any] | None:
        """Of these rows; None: they have nothing there."""
        column = self[name]
        found = [column[place] for place in places]
        return found if any(each is not None for each in found) else None


class Number:
    """Numbers for new blocks: their time is now, so that a bucket does not take them for late ones."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ids = Ids()

    def __call__(self, priority: int = 0) -> str:
        return f"{self._ids.block(self._clock(), priority, carried=True):032x}"


def open_blocks(table: pa.Table, number: Number, now: float, calendar: Calendar, *, exact: bool) -> Iterator[Made]:
    """Blocks of messages that wait. `now` is of the calendar; `exact`: nobody is late to share a block.

    All lie under `later/`, where an id is looked for that no block's name shows. Those that are ready are long due, and
    lie there in the order in which they are claimed.
    """
    found = Columns(table)
    due = [0.0 if each is None or each <= now else each for each in found["due"]]
    kinds = list(
        zip(
            found["priority"],
            [each or 0 for each in found["own_max_attempts"]],
            found["attempts"],
            [bool(each) for each in found["crashed"]],
            [_end(each, calendar) for each in found["expires"]],
            strict=True,
        )
    )
    ready = [place for place in range(len(found)) if not due[place]]
    ready.sort(key=lambda place: -kinds[place][0])  # by priority; else as they came
    for some in _runs(ready, lambda last, place: kinds[last] != kinds[place]):
        rank = 255 - kinds[some[0]][0]
        yield from _blocks(found, some, number, kinds, lambda name, rank=rank: name.later_key((1 + rank) / 1000))  # type: ignore[misc]  # bound now
    later = sorted((place for place in range(len(found)) if due[place]), key=lambda place: (kinds[place], due[place]))
    for some in _due_together(later, kinds, due, now, exact=exact):
        at = due[some[-1]]
        instant = -at if calendar.keyed else at
        yield from _blocks(found, some, number, kinds, lambda name, at=instant: name.later_key(at))  # type: ignore[misc]  # bound now


def _end(expires: float | None, calendar: Calendar) -> int:
    """When a message expires, as a block's name has it."""
    return drafts.end(expires, None, 0.0, calendar)


def _runs(places: Sequence[int], cut: Callable[[int, int], bool]) -> Iterator[list[int]]:
    """Neighbours, cut where that is asked for."""
    run: list[int] = []
    for place in places:
        if run and cut(run[-1], place):
            yield run
            run = []
        run.append(place)
    if run:
        yield run


def _due_together(
    places: Sequence[int], kinds: Sequence[Any], due: Sequence[float], now: float, *, exact: bool
) -> Iterator[list[int]]:
    first = 0.0

    def cut(last: int, place: int) -> bool:
        nonlocal first
        first = first or due[last]
        patience = 0.0 if exact else max(_LATE_LEAST_S, _LATE * (first - now))
        if kinds[last] != kinds[place] or due[place] > first + patience:
            first = due[place]
            return True
        return False

    return _runs(places, cut)


def _blocks(
    found: Columns, places: list[int], number: Number, kinds: Sequence[Any], key: Callable[[BlockName], str]
) -> Iterator[Made]:
    ids = found.plain_ids()
    places.sort(key=ids.__getitem__)
    priority, own, attempts, crashed, expires = kinds[places[0]]
    for part in _bounded(found, places):
        said = (priority, own, attempts, crashed, ids[part[0]], ids[part[-1]], expires)
        name = BlockName(number(priority), len(part), *said)
        columns = Rows(
            [found["value"][place] for place in part],
            [found["content_type"][place] for place in part],
            found.some("headers", part),
            [ids[place] for place in part],
            [found["enqueued_at"][place] for place in part],
            error=found.some("error", part),
            worker=found.some("worker", part),
            history=found.some("history", part),
        )
        yield Made(key(name), rows.encode(columns))


def _bounded(found: Columns, places: Sequence[int]) -> Iterator[list[int]]:
    part: list[int] = []
    size = 0
    for place in places:
        bytes_ = len(found["value"][place])
        if part and (len(part) >= _BLOCK_ROWS or size + bytes_ > _BLOCK_BYTES):
            yield part
            part, size = [], 0
        part.append(place)
        size += bytes_
    if part:
        yield part


def dead_blocks(table: pa.Table, number: Number, usual: int) -> Iterator[Made]:
    """Blocks of dead letters; `usual` is the queue's max_attempts."""
    found = Columns(table)
    own = [each or 0 for each in found["own_max_attempts"]]
    ids = found.plain_ids()
    for some in _runs(sorted(range(len(found)), key=lambda place: (own[place], ids[place])), _differ(own)):
        for part in _bounded(found, some):
            most = own[part[0]]
            name = BlockName(number(), len(part), 0, most, 0, False, ids[part[0]], ids[part[-1]])
            columns = Rows(
                [found["value"][place] for place in part],
                [found["content_type"][place] for place in part],
                found.some("headers", part),
                [ids[place] for place in part],
                [found["enqueued_at"][place] for place in part],
                [found["priority"][place] for place in part],
                [found["attempts"][place] for place in part],
                [most or usual] * len(part),
                [found["error"][place] for place in part],
                [found["finished_at"][place] for place in part],
                [found["worker"][place] for place in part],
                [""] * len(part),
                found.some("claimed_at", part),
                found.some("expires", part),
                found.some("history", part),
            )
            yield Made(name.inbox_key(), rows.encode(columns))


def _differ(values: Sequence[Any]) -> Callable[[int, int], bool]:
    return lambda one, other: values[one] != values[other]


def archive_file(queue: str, table: pa.Table, file: bytes | None, usual: int, calendar: Calendar) -> Made:
    """An archive file; one that a log engine wrote for a queue of this name goes as it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.any(pc.less(table["id"][1:], table["id"][:-1])).as_py():
        table, file = table.sort_by("id"), None
    ended = (pc.max(table["finished_at"]).cast(pa.int64()).as_py() or 0) / 1e6
    first, last = (names.plain(table["id"][at].as_py()) for at in (0, -1))
    flush = f"{Ids().block(ended + calendar.ahead, carried=True):032x}"
    key = names.archive_key(first, last, table.num_rows, flush, calendar)
    if file is not None and _is_of(queue, file):
        return Made(key, file)
    return Made(key, archive.written(_archived(queue, table, usual)))


def _is_of(queue: str, file: bytes) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = pq.ParquetFile(pa.BufferReader(file))
    if b"holdfast" not in (found.schema_arrow.metadata or {}) or "queue" not in found.schema_arrow.names:
        return False
    return bool(found.read(columns=["queue"], use_threads=False)["queue"].unique().to_pylist() == [queue])


def _archived(queue: str, table: pa.Table, usual: int) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    known, count = archive.schema(), table.num_rows
    made: dict[str, Any] = {
        "queue": pa.repeat(pa.scalar(queue), count),
        "token": pa.repeat(pa.scalar(""), count),
        "max_attempts": pc.fill_null(table["own_max_attempts"], pa.scalar(usual, pa.int32())),
    }
    arrays = [made[each.name] if each.name in made else table[each.name] for each in known]
    return pa.Table.from_arrays(arrays, schema=known)
