"""A view of a queue in slices: planned on one snapshot from keys and heads, read block by block anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from .... import ids
from ....errors import Damaged
from ....first_look import known
from ...batches import Filter, Sizing, Slice, filtered, may_pass
from ...records import View
from .. import damage, names, records
from ..calendar import Calendar
from ..edit import Seen
from ..head.state import Block, Settled
from ..lookup import STATUS, Glance
from ..names import ArchiveName
from ..queue_view import Finder
from ..space import Reading, Space
from ..tokens import result_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ..columns import Group

_SAMPLES = 3  # objects looked at to learn how large a row is
_TOGETHER = 512 << 10  # bytes up to which small batches become one; a usual block goes as it is, without a copy
_FETCH = 16  # objects read in one step


# Places of a block that share their state, and their results as the head packs them.
_Chosen: TypeAlias = tuple[records.State, int, list[bytes | None] | None]


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A block with the groups of places that belong to the view, or a whole archive file (no groups)."""

    key: str
    rows: int
    groups: list[list[object]]  # of `columns.Group`, plain: planning does without Arrow
    hold: str = ""  # the beginning of their tokens, when they are held by whoever reads them


@known
class _Body(msgspec.Struct, frozen=True, array_like=True):
    root: str
    limit: int
    parts: list[Part]


class Plan(msgspec.Struct, frozen=True):
    """What a snapshot gives: parts in order, and the bytes of some of them."""

    root: str
    limit: int
    parts: list[Part]
    sampled_rows: int
    sampled_bytes: int

    def slices(self, queue: str, view: View, sizing: Sizing) -> list[Slice]:
        """Parts put together until a slice is large enough."""
        rows = sum(part.rows for part in self.parts)
        each = self.sampled_bytes / max(1, self.sampled_rows)
        most = sizing.rows(rows, int(rows * each))
        found: list[Slice] = []
        taken: list[Part] = []
        count = 0
        for place, part in enumerate(self.parts):
            taken.append(part)
            count += part.rows
            if count >= most or place == len(self.parts) - 1:
                body = msgspec.msgpack.encode(_Body(self.root, self.limit, taken))
                found.append(Slice(queue, view, count, int(count * each), body))
                taken, count = [], 0
        return found


def plan(
    lives: Sequence[Glance], dead: Sequence[Glance], files: list[ArchiveName], wanted: View, filters: Sequence[Filter]
) -> Plan:
    """Everything of a view that can pass, on the snapshot of the glances: the queue's shards, and its dead letters."""
    parts = list(_parts(lives, dead, files, wanted, filters))
    return sampled(lives[0].view, lives[0].seen, parts)


def sampled(view: Reading, seen: Seen, parts: list[Part]) -> Plan:
    """A plan of these parts; some are looked at to learn how large a row is."""
    rows = size = 0
    for part in parts[:: max(1, len(parts) // _SAMPLES)][:_SAMPLES]:
        try:
            found = view.get(part.key)
        except Damaged:  # whoever reads it says so
            continue
        if found is not None:
            rows += names.parse_block(part.key).count if part.groups else part.rows
            size += len(found.data)
    return Plan(seen.root, seen.rules.max_attempts, parts, rows, size)


def _parts(
    lives: Sequence[Glance], dead: Sequence[Glance], files: list[ArchiveName], wanted: View, filters: Sequence[Filter]
) -> Iterator[Part]:
    if wanted == "archive":
        for file in sorted(files, key=lambda each: each.flush):
            if _file_may_pass(file, filters, lives[0].seen.rules.calendar):
                yield Part(file.key, file.rows, [])
        for glance in (*lives, *dead):
            yield from _from_blocks(glance, _ended("completed", "failed", "moved"), filters)
    elif wanted == "dead":
        for glance in lives:
            yield from _from_blocks(glance, _ended("dead"), filters)
        for glance in dead:
            yield from _from_blocks(glance, _buried, filters)
    else:
        status = STATUS[wanted]
        for glance in lives:
            yield from _from_blocks(glance, lambda glance, block: _open(glance, block, status), filters)


def _from_blocks(
    glance: Glance,
    choose: Callable[[Glance, Block], list[_Chosen]],
    filters: Sequence[Filter],
) -> Iterator[Part]:
    for block in sorted(glance.blocks(), key=lambda each: each.order):
        if not _block_may_pass(block, filters, glance.seen.rules.calendar):
            continue
        chosen = [each for each in choose(glance, block) if each[1]]
        if chosen:
            rows = sum(mask.bit_count() for _, mask, _ in chosen)
            yield Part(
                glance.seen.root + block.key,
                rows,
                [records.plain_group(glance.seen.rules, block, *each, head=glance.seen.head) for each in chosen],
            )


def _open(glance: Glance, block: Block, status: str) -> list[_Chosen]:
    """The places of a block whose messages have this status."""
    return [
        (state, mask, None)
        for state, mask in records.open_states(glance.seen.head, block, glance.view.now)
        if state.status == status
    ]


def _buried(glance: Glance, block: Block) -> list[_Chosen]:
    """Dead letters are dead whatever a worker on them does; what they died with is in the block."""
    mask = 0
    for _, part in records.open_states(glance.seen.head, block, glance.view.now):
        mask |= part
    return [(records.State("dead", block.name.attempts), mask, None)]


def _ended(
    *wanted: str,
) -> Callable[[Glance, Block], list[_Chosen]]:
    """Outcomes that still wait for their flush."""

    def choose(glance: Glance, block: Block) -> list[_Chosen]:
        head = glance.seen.head
        groups: list[Settled] = head.settled + (head.frozen.settled if head.frozen else [])
        return [
            (_without_result(group), group.mask, group.results)
            for group in groups
            if group.block == block.no and group.status in wanted
        ]

    return choose


def _without_result(group: Settled) -> records.State:
    place = (group.mask & -group.mask).bit_length() - 1
    return msgspec.structs.replace(records.settled_state(group, place), result=None)


def _block_may_pass(block: Block, filters: Sequence[Filter], calendar: Calendar) -> bool:
    name = block.name
    lowest, highest = names.dashed(name.lowest), names.dashed(name.highest)
    if not may_pass(filters, "id", lowest, highest):
        return False
    if name.first:  # such a block keeps priority and time in columns
        return True
    born = round(calendar.wall(ids.born_at(int(name.block, 16))) * 1e6)
    return may_pass(filters, "priority", name.priority, name.priority) and may_pass(filters, "enqueued_at", born, born)


def _file_may_pass(file: ArchiveName, filters: Sequence[Filter], calendar: Calendar) -> bool:
    frozen = (
        round(calendar.wall(file.frozen_at) * 1e6) + 1_000_000
    )  # the rows were settled before, by a clock of milliseconds
    return may_pass(filters, "id", names.dashed(file.first), names.dashed(file.last)) and may_pass(
        filters, "finished_at", 0, frozen
    )


# Reading.


class _Asked(msgspec.Struct, frozen=True):
    """What one read wants."""

    part: Slice
    body: _Body
    lenient: bool
    only: tuple[str, ...] | None  # columns that are needed; None: all


class SliceReader:
    """Reads the slices of a plan; what left since is looked for where it went."""

    def __init__(self, space: Space, finder: Callable[[str], Finder], *, timeout: float) -> None:
        self._space = space
        self._finder = finder
        self._timeout = timeout

    async def read(
        self, part: Slice, *, filters: Sequence[Filter] = (), lenient: bool = False, only: Sequence[str] | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        body = msgspec.msgpack.decode(part.body, type=_Body)
        filters = [each for each in filters if each.column != "queue"]
        needed = None if only is None else (*only, *(each.column for each in filters))
        asked = _Asked(part, body, lenient, needed)
        waiting: list[pa.RecordBatch] = []
        size = 0
        for start in range(0, len(body.parts), _FETCH):
            some = body.parts[start : start + _FETCH]
            for batch in await self._load(asked, some):
                waiting.append(filtered(batch, filters))
                size += waiting[-1].nbytes
                if size >= _TOGETHER:
                    yield _joined(waiting)
                    waiting, size = [], 0
        if waiting:
            yield _joined(waiting)

    async def _load(self, asked: _Asked, some: list[Part]) -> list[pa.RecordBatch]:
        def step(chosen: list[Part], view: Reading) -> list[pa.RecordBatch]:
            found: list[pa.RecordBatch] = []
            for each in chosen:
                found += self._batches(view, asked, each)
            return found

        if not self._space.request_costs:
            return await self._space.read(partial(step, some), deadline=self._timeout)
        # Every object is a trip of its own: all of them at once.
        trips = [self._space.read(partial(step, [each]), deadline=self._timeout) for each in some]
        return [batch for found in await asyncio.gather(*trips) for batch in found]

    def _batches(self, view: Reading, asked: _Asked, each: Part) -> Iterator[pa.RecordBatch]:
        from .. import columns

        part = asked.part
        stored = view.get(each.key)
        groups = [columns.Group.of_plan(group) for group in each.groups]
        if not groups:
            if stored is not None:
                rows_of = partial(columns.of_file, view=part.view, only=asked.only)
                yield from damage.read(each.key, rows_of, stored.data)
            elif not asked.lenient:
                raise columns.missing(f"the archive file {each.key}")
            return
        for group in groups:
            if stored is not None:
                yield columns.of_block(
                    each.key,
                    stored.data,
                    group,
                    queue=part.queue,
                    view=part.view,
                    limit=asked.body.limit,
                    calendar=view.calendar,
                    result=partial(result_of, view=view, root=names.log_of(each.key)),
                    hold=each.hold,
                    only=asked.only,
                )
            else:
                yield from self._gone(view, asked, each, group)

    def _gone(self, view: Reading, asked: _Asked, each: Part, group: Group) -> Iterator[pa.RecordBatch]:
        """Messages whose block has left, from wherever they are now, in the state the plan saw."""
        from .. import columns

        name = names.parse_block(each.key)
        if name.first:  # the block kept its ids to itself
            if not asked.lenient:
                raise columns.missing(f"the block {each.key}")
            return
        finder = self._finder(asked.part.queue)
        texts = ids.texts(int(name.block, 16), name.count)
        found = {place: finder.find(view, texts[place]) for place in group.places(name.count)}
        kept = {place: stored for place, stored in found.items() if stored is not None}
        if not asked.lenient and len(kept) < len(found):
            raise columns.missing(f"the block {each.key}")
        if kept:
            part = asked.part
            yield columns.of_records(kept, group, queue=part.queue, view=part.view, hold=each.hold, only=asked.only)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def plan_of(finder: Finder, wanted: View, filters: Sequence[Filter]) -> Callable[[Reading], Plan]:
    """The step that plans, on the snapshot it is given."""

    def step(view: Reading) -> Plan:
        lives, dead = finder.both(view)
        files = finder.files(view, *lives) if wanted == "archive" else []
        return plan(lives, dead, files, wanted, filters)

    return step
