"""Dead letters and archive: replay and delete. Steps for a session of the dead log, and work on archive files."""

from __future__ import annotations

import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

import msgspec

from ... import ids
from ...errors import Damaged
from ...ids import Ids
from ..records import Stored
from . import archive, archive_index, arrow, damage, flush_rows, names, queues
from .cache import BlockCache
from .edit import Session
from .flush_rows import Leaving
from .head.state import Expire, Remove
from .lookup import Found, Glance, dead_sources
from .names import ArchiveName
from .queues import Address
from .space import Buffer, Reading, Space, Transaction
from .space import Found as SpaceFound
from .topics import work_topic

if TYPE_CHECKING:
    import pyarrow as pa

# Dead letters: they move.


Original: TypeAlias = tuple[Stored, int]  # an archived message, and the attempts it asked for itself; 0: the queue's


def take_dead(
    session: Session, cache: BlockCache, wanted: Sequence[str], *, replay: bool = False
) -> list[tuple[Stored, Found]]:
    """Take messages that nobody holds out of the log, without a trace; what was taken, in their order."""
    glance = Glance(session.tx, session.seen, cache)
    plain = {f"{number:032x}": id for id in dict.fromkeys(wanted) if (number := ids.number(id)) is not None}
    found = glance.find_all(plain)
    by_block: dict[str, list[str]] = {}
    for id, each in found.items():
        by_block.setdefault(each.block.key, []).append(id)
    taken: dict[str, tuple[Stored, Found]] = {}
    for those in by_block.values():
        records = {id: (glance.record(found[id]), found[id]) for id in those}
        block = found[those[0]].block
        no = session.absorbed(block, glance.bundle_of(block))
        mask = sum(1 << found[id].place for id in those)
        removed = cast(int, session.do([Remove(no, mask, replay=replay)])[0])
        taken |= {id: records[id] for id in those if removed >> found[id].place & 1}
    return [taken[id] for id in plain if id in taken]


def replay_dead(session: Session, cache: BlockCache, maker: Ids, wanted: Sequence[str]) -> int:
    """Dead letters go back into their queue in the transaction that takes them out."""
    taken = take_dead(session, cache, wanted)
    if taken:
        queue = session.seen.root.partition("@")[0]
        root = Address(queue, False).root(session.seen.config)
        now = session.tx.calendar.wall(session.tx.now)
        copies = [flush_rows.replayed(stored, now, found.block.name.max_attempts) for stored, found in taken]
        _add(session.tx, root, queue, copies, maker)
    return len(taken)


def discard_dead(session: Session, cache: BlockCache, wanted: Sequence[str] | None, before: float | None) -> int:
    """Delete dead letters: these, or those that died before an instant."""
    if wanted is None:
        sources = dead_sources(Glance(session.tx, session.seen, cache))
        every = [record for _, _, load in sources for record in load()]
        wanted = [each.id for each in every if before is None or (each.finished_at or 0.0) < before]
    return len(take_dead(session, cache, wanted))


def purge_thawed(session: Session, cache: BlockCache) -> int | None:
    """The same as `purge`; None: retries are leaving the head just now, out of reach."""
    frozen = session.head.frozen
    return None if frozen is not None and frozen.waiting else purge(session, cache)


def purge(session: Session, cache: BlockCache) -> int:
    """Everything that is not held or settled goes: absorbed messages by the head, other blocks as a whole."""
    session.do([Expire()])  # what has no attempt left is dead, not pending
    return session.seen.window.purge(session, Glance(session.tx, session.seen, cache))


# The archive: messages are copied.


def archived(view: Reading, queue: str, wanted: Sequence[str]) -> list[Original]:
    """Archived messages by id."""
    root = queues.address(queue).archive_root(queues.read(view, queue))
    numbers = {f"{number:032x}": id for id in wanted if (number := ids.number(id)) is not None}
    files = [file for file in archive.files(view, root) if any(file.first <= id <= file.last for id in numbers)]
    found: dict[str, Original] = {}
    for file in files:
        stored = view.get(file.key)
        if stored is None:
            continue
        for record, own in zip(archive.read(file.key, stored.data)[0], archive.own_attempts(stored.data), strict=True):
            if names.plain(record.id) in numbers:
                found[record.id] = (record, own or 0)
    return [found[id] for id in wanted if id in found]


def replay_archived(tx: Transaction, queue: str, found: Sequence[Original], maker: Ids) -> int:
    """Copies, unless a mark says that the message was copied before."""
    config = queues.read(tx, queue)
    root = queues.address(queue).root(config)
    fresh = []
    marks: dict[str, int] = {}
    for copy in (flush_rows.replayed(each, tx.calendar.wall(tx.now), own) for each, own in found):
        number = ids.number(copy.stored.id) or 0
        key = f"{root}replayed/{ids.block_of(number):032x}"
        if key not in marks:
            marks[key] = _marked(tx.get(key))
        bit = 1 << ids.place_of(number)
        if not marks[key] & bit:
            marks[key] |= bit
            fresh.append(copy)
    for key, mask in marks.items():
        tx.put(key, msgspec.msgpack.encode((tx.now, mask.to_bytes((mask.bit_length() + 7) // 8, "little"))))
    if fresh:
        _add(tx, root, queue, fresh, maker)
    return len(fresh)


def _marked(mark: SpaceFound | None) -> int:
    """The places of a block that were copied before."""
    return int.from_bytes(msgspec.msgpack.decode(mark.data, type=tuple[float, bytes])[1], "little") if mark else 0


def _add(tx: Transaction, root: str, queue: str, fresh: list[Leaving], maker: Ids) -> None:
    base = maker.block(tx.now, carried=True)
    numbers = (f"{base + (k << 20):032x}" for k in range(1 << 30))
    for key, data in flush_rows.fresh_blocks(fresh, numbers):
        tx.create(root + key, data)
    tx.signal(work_topic(queue))


async def discard_archived(space: Space, queue: str, wanted: Sequence[str] | None, before: float | None) -> int:
    """Delete archived messages: these, or those that ended before an instant, or all.

    A file that keeps some is replaced by a smaller one in one step. Only files that may hold one of them are read, and
    only those that do are written anew; as columns.
    """
    address = queues.address(queue)
    config = await space.read(lambda view: queues.read(view, queue))
    files = await space.read(lambda view: archive.files(view, address.archive_root(config)))
    chosen = None if wanted is None else set(wanted)
    plain = sorted(f"{number:032x}" for id in chosen or () if (number := ids.number(id)) is not None)
    everything = chosen is None and before is None
    removed = 0
    for file in files:
        if everything:
            removed += file.rows if await _show(space, [file.key], None, gone=file) else 0
        elif chosen is None or bisect_left(plain, file.first) < bisect_right(plain, file.last):
            removed += await _thin_out(space, address, config, file, chosen, before)
    return removed


async def _thin_out(
    space: Space,
    address: Address,
    config: queues.Config,
    file: ArchiveName,
    chosen: Collection[str] | None,
    before: float | None,
) -> int:
    try:
        found = await space.read(partial(_get, file.key))
        if found is None:
            return 0
        kept = await arrow.beside(_thinned, file.key, found.data, chosen, before)
    except Damaged as error:
        if chosen is not None:
            raise
        return await _give_up(space, file, error, too_old=space.calendar().wall(file.frozen_at) < (before or 0.0))
    if kept is None:
        return 0
    new = await _write(space, address, config, file.flush, kept) if kept.rows else None
    return file.rows - kept.rows if await _show(space, [file.key], new, gone=file, kept=kept.rows) else 0


def _thinned(key: str, data: bytes, chosen: Collection[str] | None, before: float | None) -> _File | None:
    """What stays of a file; None: all of it."""
    kept = damage.read(key, partial(archive.without, gone=chosen, before=before), data)
    return None if kept is None else _File.of(kept)


async def _give_up(space: Space, file: ArchiveName, error: Damaged, *, too_old: bool) -> int:
    """A file that cannot be read goes when it is too old; else it stays for somebody to mend."""
    if too_old:
        return file.rows if await _show(space, [file.key], None, gone=file) else 0
    damage.logger.error("%s", error)
    return 0


class _File(msgspec.Struct, frozen=True):
    """An archive file that is to be written."""

    rows: int
    first: str
    last: str
    data: Buffer

    @classmethod
    def of(cls, table: pa.Table) -> _File:
        if not table.num_rows:
            return cls(0, "", "", b"")
        first, last = (names.plain(table["id"][at].as_py()) for at in (0, -1))
        return cls(table.num_rows, first, last, archive.written(table))


async def _write(space: Space, address: Address, config: queues.Config, flush: str, file: _File) -> str:
    """A new archive file with the time of an old one, so that its retention does not start again."""
    number = f"{int(flush, 16) + (secrets.randbits(32) + 1 << 20):032x}"  # nobody else's: it may have to be deleted
    name = names.archive_key(file.first, file.last, file.rows, number, space.calendar())
    key = address.archive_root(config) + name
    await space.write_file(key, file.data)
    return key


def _replace(tx: Transaction, old: Sequence[str], new: str | None, gone: ArchiveName | None, kept: int) -> bool:
    """Only when all the old files are still there: somebody else may have merged or deleted them."""
    if any(not tx.list(key, limit=1) for key in old):
        return False
    if gone is not None:
        archive_index.remove(tx, gone.key[: gone.key.index("/") + 1], [gone], kept=kept)
    for key in old:
        tx.delete(key)
    if new is not None:
        tx.adopt(new)
    return True


def _get(key: str, view: Reading) -> SpaceFound | None:
    return view.get(key)


async def merge(space: Space, address: Address, config: queues.Config, files: list[ArchiveName]) -> int:
    """Several small archive files become one."""
    data: dict[str, bytes] = {}
    for file in files:
        try:
            found = await space.read(partial(_get, file.key))
        except Damaged as error:  # it stays as it is
            damage.logger.error("%s", error)
            continue
        if found is None:
            return 0
        data[file.key] = found.data
    read, merged = await arrow.beside(_merged, data)
    if merged is None:
        return 0
    new = await _write(space, address, config, max(file.flush for file in files if file.key in read), merged)
    return len(read) if await _show(space, read, new) else 0


def _merged(data: dict[str, bytes]) -> tuple[list[str], _File | None]:
    """One file of those that can be read, and their keys; None: there are too few."""
    tables: dict[str, pa.Table] = {}
    while data:
        key = next(iter(data))
        try:
            tables[key] = damage.read(key, archive.columns, data.pop(key))
        except Damaged as error:  # it stays as it is
            damage.logger.error("%s", error)
    return list(tables), _File.of(archive.joined(list(tables.values()))) if len(tables) > 1 else None


async def _show(
    space: Space, old: Sequence[str], new: str | None, *, gone: ArchiveName | None = None, kept: int = 0
) -> bool:
    """`gone`: a file whose messages are deleted with it, but for those that are kept in the new one."""
    counted = gone if space.request_costs else None
    replaced = await space.transact(lambda tx: _replace(tx, old, new, counted, kept))
    if not replaced and new is not None:
        await space.remove([new])  # on a bucket a file is seen once it is written
    return replaced
