"""What a backup copies of a queue on the log engine: planned on one snapshot from keys and heads, read block by block.

Blocks and archive files never change, so a part is known by its keys and by what the heads say of their places.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ...errors import Damaged
from ...schedules import Mark
from .. import backups
from ..backups import Changed, Key, Part, QueueCopy, Row, Section
from ..records import Attempt, Stored
from ..scheduling import Scheduled
from . import damage, flush_rows, names, queues
from .flush_rows import Leaving
from .head.pipelines import FOREVER
from .head.state import Block, Head, Lease, Rules, Settled, Waiting
from .lookup import Glance
from .queue_view import Finder
from .queues import Config
from .records import past_by_place
from .space import Reading
from .tokens import result_of

if TYPE_CHECKING:
    import pyarrow as pa

_PART_ROWS = 8000  # of a part on average: some megabytes, so that a change copies little again
_PART_ROWS_MOST = 32_000
_PAGE = 10_000  # keys of one list
LOADED_BYTES = 64 << 20  # of what is read while it is planned
_ENDED = {"completed": "archive", "failed": "archive", "moved": "archive", "dead": "dead"}


class Group(msgspec.Struct, frozen=True, array_like=True):
    """Places of a block that share their state. No mask: all of them. Instants are of the calendar."""

    status: str
    attempts: int
    mask: bytes
    due: float | None = None
    held: bool = False
    crashed: bool = False
    finished_at: float | None = None
    claimed_at: float | None = None
    error: str | None = None
    worker: str | None = None
    results: list[bytes | None] | None = None  # as the head packs them
    past: list[list[Attempt]] | None = None  # what the head remembers of them, place by place


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A block and the groups of its places, or an archive file (no groups)."""

    key: str
    root: str  # of its log
    rows: int
    groups: list[Group]
    absorbed: bool = False  # a head holds it, so that it may be gone in a moment


class Loaded(msgspec.Struct, frozen=True):
    """Rows that were read on the snapshot of the plan."""

    rows: Any  # pa.Table


class Loader:
    """Reads what a head holds at once, as long as that fits into memory."""

    def __init__(self, view: Reading, queue: str) -> None:
        self._view = view
        self._queue = queue
        self._left = LOADED_BYTES

    def __call__(self, pieces: list[Piece]) -> list[Piece] | Loaded:
        import pyarrow as pa

        if not pieces[0].absorbed or self._left <= 0:
            return pieces
        loaded = pa.concat_tables([rows_of(self._view, self._queue, piece) for piece in pieces])
        self._left -= loaded.nbytes
        return Loaded(loaded)


Pieces: TypeAlias = dict[Section, list[Piece]]
Copies: TypeAlias = dict[str, list[Row]]  # messages on their way to a queue, which only a head speaks of


def plan(view: Reading, finder: Finder, queue: str, *, load: bool) -> tuple[QueueCopy, Copies, set[str]]:
    """A queue on the snapshot of the view, what is on its way to others, and the keys of its blocks.

    `load`: what a head holds is read too, since it may be gone a moment later.
    """
    lives, dead = finder.both(view)
    config, rules = lives[0].seen.config, lives[0].seen.rules
    found: Pieces = {"open": [], "dead": [], "archive": []}
    copies: Copies = {}
    blocks: set[str] = set()
    for glance in lives:
        for block in sorted(glance.blocks(), key=lambda each: each.order):
            blocks.add(glance.seen.root + block.key)
            _place(found, "open", glance, block, list(_open(glance.seen.head, block, view.now, rules)))
    for glance in dead:
        for block in sorted(glance.blocks(), key=lambda each: each.order):
            _place(found, "dead", glance, block, [_buried(glance.seen.head, block)])
    for glance in (*lives, *dead):
        for group, block in _settled(glance.seen.head):
            if group.status in ("moved", "replayed"):
                target, rows = _on_their_way(view, queue, glance, group, block)
                copies.setdefault(target, []).extend(rows)
            section = _ENDED.get(group.status)
            if section is not None and (group.status != "moved" or rules.archive):
                _place(found, section, glance, block, [_outcome(glance.seen.head, group, block, rules)])  # type: ignore[arg-type]  # a section
    loader: Callable[[list[Piece]], Any] = Loader(view, queue) if load else list
    parts: dict[Section, list[Part]] = {section: list(_parts(pieces, loader)) for section, pieces in found.items()}
    for file in sorted(finder.files(view, *lives), key=lambda each: each.flush):
        parts["archive"].append(_part([Piece(file.key, "", file.rows, [])], list))
    heads = [each.seen.head for each in (*lives, *dead)]
    pipes = lives[0].seen.head.pipes
    copy = QueueCopy(
        info=queues.info(queue, config),
        at=view.calendar.wall(view.now),
        completed=sum(head.completed for head in heads),
        failed=sum(head.failed for head in heads),
        consumers=backups.kept(pipes.consumers),
        sinks={name: mark for name, mark in pipes.sinks.items() if not name.startswith(backups.MARK)},
        schedules=_schedules(config, [each.seen.head for each in lives]),
        parts=parts,
    )
    return copy, copies, blocks


def _schedules(config: Config, heads: Sequence[Head]) -> list[Scheduled]:
    """By name; each has its mark in one of the heads."""
    marks = {name: mark for head in heads for name, mark in head.schedules.items()}
    return [Scheduled(plan, marks.get(name, Mark())) for name, plan in sorted(config.schedules.items())]


def _place(found: Pieces, section: Section, glance: Glance, block: Block, groups: Sequence[Group | None]) -> None:
    some = _merged([group for group in groups if group is not None], block)
    if some:
        rows = sum(_mask(each, block).bit_count() for each in some)
        found[section].append(Piece(glance.seen.root + block.key, glance.seen.root, rows, some, bool(block.no)))


def _merged(groups: list[Group], block: Block) -> list[Group]:
    """What differs in its places alone is one: messages that were given back are as those that nobody took."""
    if len(groups) < 2:
        return groups
    masks: dict[bytes, int] = {}
    kinds: dict[bytes, Group] = {}
    for group in groups:
        kind = msgspec.structs.replace(group, mask=b"", error=group.error or None)
        name = (
            msgspec.msgpack.encode(kind) if group.results is None and group.past is None else f"{len(kinds)}".encode()
        )
        kinds.setdefault(name, kind)
        masks[name] = masks.get(name, 0) | _mask(group, block)
    return [msgspec.structs.replace(kind, mask=_packed(masks[name], block)) for name, kind in kinds.items()]


def _packed(mask: int, block: Block) -> bytes:
    """Empty: all places."""
    return b"" if mask.bit_count() == block.name.count else mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def _mask(group: Group, block: Block) -> int:
    return int.from_bytes(group.mask, "little") if group.mask else (1 << block.name.count) - 1


def _open(head: Head, block: Block, now: float, rules: Rules) -> Iterator[Group]:
    """The messages of a block that have not ended."""
    name = block.name
    fresh = block.fresh() if block.no else (1 << name.count) - 1
    if fresh:
        yield _waiting(fresh, block, name.attempts, block.due, now, rules, crashed=name.crashed)
    if not block.no:
        return
    for lease in head.leases:
        if lease.block == block.no:
            piped = lease.expires >= FOREVER  # a pipeline's claims are given back, which costs no attempt
            over = lease.crashed or lease.expires <= now
            known = past_by_place(head, block, lease.mask, rules)
            packed = _packed(lease.mask, block)
            yield Group("pending", lease.attempts - piped, packed, held=not piped, crashed=over, past=known)
    for group in head.waiting + (head.frozen.waiting if head.frozen else []):
        if group.block == block.no:
            made = _waiting(group.mask, block, group.attempts, group.due, now, rules, crashed=group.crashed)
            known = past_by_place(head, block, group.mask, rules)
            yield msgspec.structs.replace(made, error=group.error, worker=group.worker, past=known)


def _waiting(mask: int, block: Block, attempts: int, due: float, now: float, rules: Rules, *, crashed: bool) -> Group:
    if due <= now:
        return Group("pending", attempts, _packed(mask, block), crashed=crashed)
    status = "retry" if attempts else "delayed"
    return Group(status, attempts, _packed(mask, block), due=rules.calendar.shown(due), crashed=crashed)


def _buried(head: Head, block: Block) -> Group | None:
    """Dead letters are dead whatever a worker on them does; what they died with is in the block."""
    mask = block.fresh() if block.no else (1 << block.name.count) - 1
    if block.no:
        waiting = head.waiting + (head.frozen.waiting if head.frozen else [])
        held: list[Lease | Waiting] = [*head.leases, *waiting]
        for group in held:
            mask |= group.mask if group.block == block.no else 0
    return Group("dead", block.name.attempts, _packed(mask, block)) if mask else None


def _settled(head: Head) -> Iterator[tuple[Settled, Block]]:
    """Outcomes that still wait for their flush."""
    for group in head.settled + (head.frozen.settled if head.frozen else []):
        yield group, head.blocks[group.block]


def _outcome(head: Head, group: Settled, block: Block, rules: Rules) -> Group:
    shown = rules.calendar.shown
    return Group(
        "failed" if group.status == "moved" else group.status,
        group.attempts,
        _packed(group.mask, block),
        finished_at=shown(group.at),
        claimed_at=shown(group.claimed or None),
        error=group.error,
        worker=group.worker,
        results=group.results,
        past=past_by_place(head, block, group.mask, rules),
    )


def _on_their_way(view: Reading, queue: str, glance: Glance, group: Settled, block: Block) -> tuple[str, list[Row]]:
    """Dead letters for another queue, and replayed ones for their own, that the next flush will write."""
    loaded = glance.load(block)
    if loaded is None:
        raise Changed
    leaving = flush_rows.rows_of(group, block, loaded, glance.seen, view)
    if group.status == "replayed":
        now = glance.seen.rules.calendar.wall(group.at)
        return queue, [_fresh(flush_rows.replayed(each.stored, now, each.max_attempts)) for each in leaving]
    target = glance.seen.config.options.dead_letter
    return str(target), [_fresh(each) for each in flush_rows.moved_copies(queue, leaving)]


def _fresh(leaving: Leaving) -> Row:
    stored: Stored = leaving.stored
    return Row(
        id=stored.id,
        status="pending",
        value=stored.payload,
        content_type=stored.content_type,
        headers=stored.headers,
        priority=stored.priority,
        attempts=0,
        own_max_attempts=leaving.max_attempts or None,
        enqueued_at=stored.enqueued_at,
    )


def _parts(pieces: Sequence[Piece], load: Callable[[list[Piece]], Any]) -> Iterator[Part]:
    """Cut where the pieces themselves say so: what comes or goes before does not move the cuts behind it."""
    taken: list[Piece] = []
    rows = 0
    for piece in pieces:
        if taken and taken[-1].absorbed != piece.absorbed:
            yield _part(taken, load)
            taken, rows = [], 0
        taken.append(piece)
        rows += piece.rows
        odds = max(1, _PART_ROWS // max(1, piece.rows))
        if rows >= _PART_ROWS_MOST or zlib.crc32(piece.key.encode()) % odds == 0:
            yield _part(taken, load)
            taken, rows = [], 0
    if taken:
        yield _part(taken, load)


def _part(pieces: list[Piece], load: Callable[[list[Piece]], Any]) -> Part:
    digest = hashlib.blake2b(msgspec.msgpack.encode(pieces), digest_size=16).hexdigest()
    return Part(digest, sum(piece.rows for piece in pieces), load(pieces))


# Reading.


def file_of(view: Reading, piece: Piece) -> bytes:
    """An archive file as it is; Changed."""
    found = view.get(piece.key)
    if found is None:
        raise Changed(_gone(piece.key))
    return found.data


def _gone(key: str) -> Damaged:
    return damage.damaged(key, "its bytes are gone")


def rows_of(view: Reading, queue: str, piece: Piece, known: dict[str, bytes] | None = None) -> pa.Table:
    """The rows of a block, in order of their ids; Changed, Damaged. `known`: blocks that were read before."""
    import pyarrow as pa
    import pyarrow.compute as pc

    data = (known or {}).get(piece.key)
    if data is None:
        found = view.get(piece.key)
        if found is None:
            raise Changed(_gone(piece.key))
        data = found.data
        if known is not None:
            known[piece.key] = data
    tables = [_group_rows(view, queue, piece, data, group) for group in piece.groups]
    if len(tables) == 1:
        return tables[0]
    whole = pa.concat_tables(tables)
    return whole.take(pc.sort_indices(whole, [("id", "ascending")]))


def _group_rows(view: Reading, queue: str, piece: Piece, data: bytes, group: Group) -> pa.Table:
    import pyarrow as pa

    from . import columns

    made = columns.of_settled(
        piece.key,
        data,
        columns.Group(
            group.status,
            group.attempts,
            group.mask,
            None,
            group.finished_at,
            group.error,
            group.worker,
            group.results,
            group.claimed_at,
            group.past,
        ),
        "",
        queue=queue,
        limit=0,
        calendar=view.calendar,
        result=partial(_result, view=view, root=piece.root),
    )
    known = backups.schema()
    due = None if group.due is None else round(group.due * 1e6)
    more: dict[str, Any] = {"due": due, "held": group.held, "crashed": group.crashed}
    count = made.num_rows
    arrays = [
        _all(more[field.name], count, field.type) if field.name in more else made.column(field.name).cast(field.type)
        for field in known
    ]
    return pa.Table.from_arrays(arrays, schema=known)


def _result(packed: bytes, view: Reading, root: str) -> bytes:
    """The flush that archives it removes the object."""
    found = result_of(packed, view, root)
    if found is None:
        raise Changed
    return found


def _all(value: Any, count: int, type: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return pa.nulls(count, type) if value is None else pa.repeat(pa.scalar(value, type), count)


# What flushes have written.


def flushed(view: Reading, root: str) -> set[str]:
    """Keys below a root that appear or go with a flush: archive files, dead letters, and blocks that name their ids."""
    found: set[str] = set()
    after = ""
    while page := view.list(root, after=after, limit=_PAGE):
        after = page[-1]
        found |= {key for key in page if "/archive/" in key or "/dead/" in key or names.is_carrying(key)}
    return found


# Dedup keys.


def key_names(view: Reading, root: str) -> list[str]:
    """The objects of dedup keys below the root of a queue."""
    found: list[str] = []
    while page := view.list(f"{root}dedup/", after=found[-1] if found else "", limit=_PAGE):
        found += page
    return found


def keys_among(view: Reading, keys: Sequence[str], window: float, at: float, blocks: set[str]) -> list[Key]:
    """Those that are remembered at an instant of the store's clock, with messages that were there then."""
    found: list[Key] = []
    for key in keys:
        stored = view.get(key)
        if stored is None:
            continue
        made, id, *promise = msgspec.msgpack.decode(stored.data)
        if not isinstance(id, str):  # a call's name: a call is repeated at the store it was made in
            continue
        left = made + window - at
        is_kept = not promise or not promise[0] or promise[0] in blocks  # a bucket's may be about to be
        if left > 0 and made <= at and is_kept:
            found.append(Key(bytes.fromhex(key.rpartition("/")[2]), str(id), left))
    return found
