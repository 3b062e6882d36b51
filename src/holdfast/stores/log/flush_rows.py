"""What a frozen set becomes: an archive file, blocks of dead letters, blocks of spilled retries.

Pure, and the same rows under the same names for the same set, whoever writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ... import ids
from ...errors import Damaged
from ..records import Stored
from . import archive, damage, names, records, rows, tokens
from .edit import Seen
from .head import bits, past
from .head.state import Block, Frozen, Head, Settled, Waiting
from .names import BlockName, config_key
from .queues import Address, address, read
from .rows import Rows
from .space import Buffer, Reading

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK_ROWS = 1000
_BLOCK_BYTES = 4 << 20
_LATE = 0.02  # the part of its delay by which a spilled retry may be late, so that neighbours share a block
_LATE_LEAST = 0.05  # seconds
_WHOLE_FROM = 64  # rows from which a group is worth columns of its own


class Leaving(msgspec.Struct, frozen=True, gc=False):
    """One message of a frozen set. `ending` is how it left: a settled status, or `waiting` for a spilled retry."""

    stored: Stored
    ending: str
    token: str
    result_key: str | None  # an object of its own that held the result
    max_attempts: int = 0  # its own; 0: the queue's
    crashed: bool = False
    due: float = 0.0
    claims: int = 0  # as its log counts them
    expires: int = 0  # as its block's name had it


class Moved(msgspec.Struct, frozen=True):
    """Blocks for another queue; keys are relative to it."""

    queue: str
    blocks: list[tuple[str, Buffer]]


class Written(msgspec.Struct, frozen=True):
    """What a flush writes: the archive file, blocks by full key, what moves on, and result objects to delete."""

    archive: tuple[str, Buffer] | None
    blocks: list[tuple[str, Buffer]]
    moved: Moved | None
    results: list[str]

    def keys(self, view: Reading) -> list[str]:
        """Of all blocks, in full."""
        keys = [key for key, _ in self.blocks]
        if self.moved is not None and view.get(config_key(self.moved.queue)) is not None:
            root = address(self.moved.queue).root(read(view, self.moved.queue))
            keys += [root + key for key, _ in self.moved.blocks]
        return keys


def rows_of(group: Settled | Waiting, block: Block, loaded: Rows, seen: Seen, view: Reading) -> list[Leaving]:
    """The messages of one frozen group."""
    found = []
    for place in bits.places(group.mask):
        if isinstance(group, Settled):
            state = records.with_past(seen.head, block, place, records.settled_state(group, place))
            key = tokens.result_key(state.result)
            stored = _settled(block, loaded, place, state, seen, view)
            found.append(Leaving(stored, group.status, group.token, key, block.name.max_attempts))
        else:
            state = records.State("retry", group.attempts, group.due or None, error=group.error, worker=group.worker)
            state = records.with_past(seen.head, block, place, state)
            stored = records.record(block, loaded, place, state, seen.rules, view, seen.root)
            found.append(_waits(stored, group, block, loaded, place))
    return found


def _settled(block: Block, loaded: Rows, place: int, state: records.State, seen: Seen, view: Reading) -> Stored:
    """The record of a message; one whose result cannot be read says so and goes without."""
    key = tokens.result_key(state.result)
    try:
        stored = records.record(block, loaded, place, state, seen.rules, view, seen.root)
        if key is None or stored.result is not None:
            return stored
        error = damage.missing(seen.root + key)
    except Damaged as mismatch:
        error = mismatch
    damage.logger.error("%s", error)
    state = msgspec.structs.replace(state, result=None, error=state.error or str(error))
    return records.record(block, loaded, place, state, seen.rules, view, seen.root)


def may_leave_whole(group: Settled | Waiting, head: Head) -> bool:
    """As columns; not with results that are objects of their own, which may be damaged one by one, nor with a past."""
    return (
        isinstance(group, Settled)
        and group.status in ("completed", "failed")
        and group.mask.bit_count() >= _WHOLE_FROM
        and not any(map(tokens.result_key, group.results or ()))
        and not past.has_some(head, group.block, group.mask)
    )


def whole(group: Settled, block: Block, data: bytes, seen: Seen, view: Reading, queue: str) -> pa.Table:
    """The messages of one frozen group as columns, without a step in Python per message, for the archive."""
    from . import columns

    state = msgspec.structs.replace(records.settled_state(group, bits.places(group.mask)[0]), result=None)
    packed = columns.Group(*records.plain_group(seen.rules, block, state, group.mask, group.results))  # type: ignore[arg-type]  # as packed
    return columns.of_settled(
        block.key,
        data,
        packed,
        group.token,
        queue=queue,
        limit=seen.rules.max_attempts,
        calendar=seen.rules.calendar,
        result=partial(tokens.result_of, view=view, root=seen.root),
    )


def _waits(stored: Stored, group: Waiting, block: Block, loaded: Rows, place: int) -> Leaving:
    if loaded.finished_at and loaded.attempts:  # a dead letter: what it died with is not what a worker tried since
        stored = msgspec.structs.replace(stored, attempts=loaded.attempts[place])
    own = block.name.max_attempts
    expires = block.name.expires
    return Leaving(stored, "waiting", group.token, None, own, group.crashed, group.due, group.attempts, expires)


def encode(address: Address, seen: Seen, found: Sequence[Leaving], wholes: Sequence[pa.Table] = ()) -> Written:
    """Everything the flush writes, from its rows in id order and the groups that leave as columns."""
    frozen = seen.head.frozen
    assert frozen is not None
    numbers = _numbers(frozen)
    root = seen.root
    base = address.archive_root(seen.config)
    dead = [(f"{base}dead/{key}", data) for key, data in _dead(_ending(found, "dead"), numbers)]
    again = [
        replayed(row.stored, seen.rules.calendar.wall(frozen.since), row.max_attempts)
        for row in _ending(found, "replayed")
    ]
    live = Address(address.queue, False, int(frozen.flush, 16) >> 20).root(seen.config)
    dead += [(live + key, data) for key, data in fresh_blocks(again, numbers)]
    spilled = [(root + key, data) for key, data in _spilled(_ending(found, "waiting"), frozen.since, numbers)]
    moved = _ending(found, "moved")
    target = seen.config.options.dead_letter
    return Written(
        _archived(address, seen, found, wholes),
        dead + spilled,
        Moved(target, _moved(address.queue, moved, numbers)) if moved and isinstance(target, str) else None,
        [row.result_key for row in found if row.result_key],
    )


def _numbers(frozen: Frozen) -> Iterator[str]:
    """The numbers of blocks, after the flush that wrote or will write them."""
    bases = {k: int(flush, 16) for flush, made in frozen.earlier for k in made}
    current = int(frozen.flush, 16)
    return (f"{bases.get(k, current) + (k << 20):032x}" for k in range(1, 1 << 30))


def places(frozen: Frozen, keys: Iterable[str]) -> list[int]:
    """Which blocks of the current flush these keys are, by the order of their numbers."""
    current = int(frozen.flush, 16)
    return [names.block_number(key) - current >> 20 for key in keys if names.is_of_flush(key, frozen.flush)]


def _ending(found: Sequence[Leaving], ending: str) -> list[Leaving]:
    return [row for row in found if row.ending == ending]


def _archived(
    address: Address, seen: Seen, found: Sequence[Leaving], wholes: Sequence[pa.Table]
) -> tuple[str, Buffer] | None:
    endings = ("completed", "failed", "moved") if seen.rules.archive else ("completed", "failed")
    kept = [row for row in found if row.ending in endings]
    if kept:
        own = [row.max_attempts for row in kept]
        one_by_one = archive.table(address.queue, [row.stored for row in kept], [row.token for row in kept], own)
        wholes = [*wholes, one_by_one]
    if not wholes:
        return None
    assert seen.head.frozen is not None
    rows = archive.joined(wholes)
    first, last = (names.plain(rows["id"][place].as_py()) for place in (0, -1))
    key = names.archive_key(first, last, len(rows), seen.head.frozen.origin, seen.rules.calendar)
    return address.archive_root(seen.config) + key, archive.written(rows)


def _dead(found: list[Leaving], numbers: Iterator[str]) -> list[tuple[str, Buffer]]:
    """Dead letters in blocks of their own log; priority and attempts are columns there."""
    kinds: dict[int, list[Leaving]] = {}
    for row in found:
        kinds.setdefault(row.max_attempts, []).append(row)
    blocks = []
    for own, members in kinds.items():
        for part in _bounded(members):
            name = BlockName(next(numbers), len(part), 0, own, 0, False, *_range(part))
            blocks.append((name.inbox_key(), rows.encode(carried(part))))
    return blocks


def _moved(source: str, found: list[Leaving], numbers: Iterator[str]) -> list[tuple[str, Buffer]]:
    return fresh_blocks(moved_copies(source, found), numbers)


def moved_copies(source: str, found: Sequence[Leaving]) -> list[Leaving]:
    """Messages for another queue, with headers that say where from and why."""
    copies = []
    for row in found:
        old = row.stored
        why = {rows.MOVED_FROM: source, "dead_id": old.id, "dead_reason": old.error or ""}
        id = ids.text(ids.derived(ids.number(old.id) or 0, "moved"))
        fresh = msgspec.structs.replace(old, id=id, headers={**(old.headers or {}), **why}, attempts=0, error=None)
        copies.append(msgspec.structs.replace(row, stored=fresh, max_attempts=0))  # as the other queue has it
    return copies


def replayed(old: Stored, now: float, own: int = 0) -> Leaving:
    """A message that starts anew, `now` by the calendar: the same but for id, attempts and a header on its origin."""
    fresh = msgspec.structs.replace(
        old,
        id=ids.text(ids.derived(ids.number(old.id) or 0, "replay")),
        headers={**(old.headers or {}), "replayed_from": old.id},
        attempts=0,
        enqueued_at=now,
    )
    return Leaving(fresh, "replay", "", None, own)


def fresh_blocks(found: list[Leaving], numbers: Iterator[str]) -> list[tuple[str, Buffer]]:
    """Messages with ids of their own that start anew, in inbox blocks by priority and attempts."""
    kinds: dict[tuple[int, int], list[Leaving]] = {}
    for row in found:
        kinds.setdefault((row.stored.priority, row.max_attempts), []).append(row)
    blocks = []
    for (priority, own), members in kinds.items():
        members.sort(key=lambda row: row.stored.id)
        for part in _bounded(members):
            name = BlockName(next(numbers), len(part), priority, own, 0, False, *_range(part))
            columns = carried(part)
            blocks.append(
                (
                    name.inbox_key(),
                    rows.encode(
                        Rows(columns.payload, columns.content_type, columns.headers, columns.id, columns.enqueued_at)
                    ),
                )
            )
    return blocks


def _spilled(found: list[Leaving], now: float, numbers: Iterator[str]) -> list[tuple[str, Buffer]]:
    """Retries that wait outside the head, in blocks of alike messages that are due about together."""
    kinds: dict[tuple[int, int, int, bool, int], list[Leaving]] = {}
    for row in sorted(found, key=lambda row: row.due):
        kind = (row.stored.priority, row.max_attempts, row.claims, row.crashed, row.expires)
        kinds.setdefault(kind, []).append(row)
    blocks = []
    for (priority, own, attempts, crashed, expires), members in kinds.items():
        for together in _due_together(members, now):
            due = together[-1].due
            together.sort(key=lambda row: row.stored.id)
            for part in _bounded(together):
                name = BlockName(next(numbers), len(part), priority, own, attempts, crashed, *_range(part), expires)
                columns = carried(part)
                blocks.append((name.later_key(due), rows.encode(columns)))
    return blocks


def _due_together(members: list[Leaving], now: float) -> Iterator[list[Leaving]]:
    """Cut a list by due time so that nobody waits much longer than it asked for."""
    together: list[Leaving] = []
    for row in members:
        if together:
            start = together[0].due
            if row.due > start + max(_LATE_LEAST, _LATE * (start - now)):
                yield together
                together = []
        together.append(row)
    if together:
        yield together


def _bounded(members: list[Leaving]) -> Iterator[list[Leaving]]:
    part: list[Leaving] = []
    size = 0
    for row in members:
        size += len(row.stored.payload)
        if part and (len(part) >= _BLOCK_ROWS or size > _BLOCK_BYTES):
            yield part
            part, size = [], len(row.stored.payload)
        part.append(row)
    if part:
        yield part


def _range(part: list[Leaving]) -> tuple[str, str]:
    return names.plain(part[0].stored.id), names.plain(part[-1].stored.id)


def carried(part: Sequence[Leaving]) -> Rows:
    """Columns of a block that stores ids and what happened so far."""
    messages = [row.stored for row in part]
    return Rows(
        [each.payload for each in messages],
        [each.content_type for each in messages],
        [each.headers for each in messages] if any(each.headers for each in messages) else None,
        [names.plain(each.id) for each in messages],
        [each.enqueued_at for each in messages],
        [each.priority for each in messages],
        [each.attempts for each in messages],
        [each.max_attempts for each in messages],
        [each.error for each in messages],
        [each.finished_at for each in messages],
        [each.worker for each in messages],
        [row.token for row in part],
        [each.claimed_at for each in messages] if any(each.claimed_at for each in messages) else None,
        [each.expires for each in messages] if any(each.expires for each in messages) else None,
        [list(each.history) or None for each in messages] if any(each.history for each in messages) else None,
    )
