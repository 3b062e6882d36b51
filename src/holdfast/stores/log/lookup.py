"""Finding messages: by id, page by page, and by counting. Everything runs on a snapshot and holds nobody up."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, filterfalse, groupby, takewhile
from operator import attrgetter, itemgetter
from typing import TypeAlias

import msgspec

from ... import ids
from ...errors import Damaged
from ..records import Stats, Stored, View
from . import archive, bundles, damage, names, records
from .bundles import Bundle
from .cache import BlockCache
from .edit import Seen
from .head import repeat
from .head.state import Block, Frozen, Head
from .names import ArchiveName
from .records import State
from .rows import Rows
from .space import Reading, Stale
from .tokens import result_key

_PAGE = 10_000
STATUS = {"ready": "pending", "delayed": "delayed", "processing": "processing", "retry": "retry"}


class Found(msgspec.Struct, frozen=True):
    """A message and the block it lies in."""

    block: Block
    rows: Rows
    place: int
    state: State


class Glance:
    """One log on one snapshot; `sure`: nothing can have left since it was taken, unless the head shows that it has.

    Then `again` asks for another look: what has left this log is somewhere else by now.
    """

    def __init__(
        self,
        view: Reading,
        seen: Seen,
        cache: BlockCache,
        hidden: Sequence[Frozen] = (),
        *,
        sure: bool = True,
        again: bool = False,
    ) -> None:
        self.view = view
        self.seen = seen
        self._cache = cache
        self._sure = sure
        self._again = again
        self._bundles: dict[str, Bundle | None] = {}
        self._strangers: dict[str, repeat.Sorted] = {}
        self._unnamed: list[str] = []  # listed keys that say nothing
        frozen = seen.head.frozen
        # On a bucket blocks are seen before the flush that writes them is done with: till then the head has the rows.
        self._hidden = [*hidden, *([frozen] if frozen is not None else [])]

    def keys(self, prefix: str) -> Iterator[str]:
        """All keys below, relative to the log."""
        after = ""
        cut = len(self.seen.root)
        while page := self.view.list(self.seen.root + prefix, after=after, limit=_PAGE):
            after = page[-1]
            for key in page:
                yield key[cut:]

    def blocks(self) -> Iterator[Block]:
        """Every block: absorbed ones as the head knows them, the others as their keys say."""
        yield from self.seen.head.blocks.values()
        yield from self.unabsorbed()

    def unabsorbed(self) -> Iterator[Block]:
        """Every block that the head does not hold."""
        return self._unabsorbed("inbox/", "later/")

    def later(self) -> Iterator[Block]:
        """Those that were not due when they were written, and all that bundles name."""
        return self._unabsorbed("later/", *(["inbox/"] if self.seen.window.has_bundles else []))

    def come(self) -> Iterator[Block]:
        """Those of them that are due; where there are no bundles the others are not looked at."""
        if self.seen.window.has_bundles:
            return (block for block in self.later() if block.due <= self.view.now)
        return chain.from_iterable(takewhile(lambda block: block.due <= self.view.now, each) for each in self.delayed())

    def first_in_inbox(self, most: int) -> tuple[list[Block], str]:
        """Of so many listed blocks those that the head does not hold, and the last key; empty: there are no more.

        Where there are no bundles.
        """
        cut = len(self.seen.root)
        keys = [key[cut:] for key in self.view.list(f"{self.seen.root}inbox/", limit=most)]
        return list(self._named(keys)), keys[-1] if len(keys) == most else ""

    def inbox_by_id(self, start: str) -> list[Iterator[Block]]:
        """The others in which there may be ids from `start` on, each iterator by lowest id. Only blocks that are asked
        for are looked at: a page must not cost the whole backlog."""
        if self.seen.window.has_bundles:
            return []
        keys = list(self.keys("inbox/"))
        carrying = self._named(filter(names.is_carrying, keys))
        found = [iter(sorted(carrying, key=_lowest))]
        for folder, same in groupby(keys, key=names.folder_of):
            plain = list(filterfalse(names.is_carrying, same))
            first = bisect_left(plain, f"{folder}/{start}") - 1  # the block before may reach so far
            found.append(self._named(plain[max(0, first) :]))
        return found

    def _named(self, keys: Iterable[str]) -> Iterator[Block]:
        """The blocks of listed keys that the head does not hold, where none can be late."""
        known = self._known()
        for key in keys:
            if key in known or self._is_unfinished(key):
                continue
            if names.is_block(key):
                yield Block.of(0, key, calendar=self.seen.rules.calendar)
            else:
                self._unnamed.append(key)

    def listed(self) -> Iterator[str]:
        """The keys of those, as they are listed: bundles among them, and not their parts."""
        keys = (key for prefix in ("inbox/", "later/") for key in self._good(prefix))
        return (key for key in keys if not self._is_unfinished(key))

    def delayed(self) -> list[Iterator[Block]]:
        """Blocks that the head does not hold and that have a due time; each by due time."""
        listed = [self._unabsorbed(f"later/{first}") for first in ("0", names.UNDATED_END)]
        if not self.seen.window.has_bundles:
            return listed
        parts = [block for block in self._unabsorbed("inbox/") if block.due]  # of bundles, which all lie there
        return [*listed, iter(sorted(parts, key=lambda block: block.due))]

    def _unabsorbed(self, *prefixes: str) -> Iterator[Block]:
        known = self._known()
        good = (key for prefix in prefixes for key in self._good(prefix))
        keys = (key for key in good if not self._is_unfinished(key))
        for key, bundle in bundles.expanded(self.view, self.seen.root, keys):
            if key not in known:
                self._bundles[key] = bundle
                yield Block.of(0, key, calendar=self.seen.rules.calendar)

    def _is_unfinished(self, key: str) -> bool:
        """Whether a flush that is not done with has written it: such a block names its ids, and its number follows."""
        return any(each.wrote(key) for each in self._hidden) and names.is_carrying(key)

    def _known(self) -> set[str]:
        return {block.key for block in self.seen.head.blocks.values()} | self.seen.head.beyond.refused

    def _good(self, prefix: str) -> Iterator[str]:
        """Listed keys that the head does not know and that may be messages, bundles among them."""
        if prefix in self._strangers:
            yield from self._strangers[prefix].good
            return
        known, found = self._known(), repeat.Sorted([], [], {})
        for key in (key for key in self.keys(prefix) if key not in known):
            if not names.is_block(key):
                self._unnamed.append(key)
            elif found.add(key, self.view.made(self.seen.root + key), self.seen.head, self.seen.rules) == "admit":
                yield key
        self._strangers[prefix] = found

    def strangers(self, prefix: str) -> repeat.Sorted:
        """Listed keys that the head does not know, bundles among them, by what becomes of them; listed once."""
        if prefix not in self._strangers:
            deque(self._good(prefix), maxlen=0)
        return self._strangers[prefix]

    def late(self) -> dict[str, float]:
        """Listed keys that are late, and when they were written."""
        return self.strangers("inbox/").late | self.strangers("later/").late

    def set_aside(self) -> int:
        """How many messages are late: copied under `late/`, named in the head, or only listed so far."""
        copied = [copy[0] for key in self.keys(names.LATE) if (copy := names.parse_late(key)) is not None]
        late = [*self.seen.head.beyond.aside, *self.late()]
        found = {*copied, *(key for key, _ in bundles.expanded(self.view, self.seen.root, late))}
        return sum(names.parse_block(key).count for key in found)

    def bundle_of(self, block: Block) -> Bundle | None:
        """The bundle that names a block which was found last, if it came with one."""
        return self._bundles.get(block.key)

    def load(self, block: Block) -> Rows | None:
        """The rows, or what stands for those that cannot be read; None: it has left a bucket since the look.

        Stale: the bytes may have gone after the look began, so that only a later one can tell where they are.
        """
        key = self.seen.root + block.key
        try:
            found = self._cache.load(self.view, key)
            if found is None and not self._sure:
                raise Stale(key)
            if found is None:
                self.seen.window.left(self.view, self.seen.root, block)
                if self._again:
                    raise Stale(key)
        except Damaged as error:
            return damage.substitute(error.key, error)
        return found

    def archived(self, file: ArchiveName) -> tuple[list[Stored], list[str | None]]:
        """The records of an archive file and their tokens; none when it was removed. Stale, as above."""
        found = self.view.get(file.key)
        if found is None and not self._sure:
            raise Stale(file.key)
        return archive.read(file.key, found.data) if found is not None else ([], [])

    def state(self, block: Block, place: int) -> State | None:
        now = self.view.now
        if block.no:
            return records.state_of(self.seen.head, block, place, now)
        return records.fresh_state(block, now)

    def find(self, id: str) -> Found | None:
        """A message of this log by its id (32 hex digits), unless it has left."""
        return self._find(id, self._candidates(int(id, 16)))

    def _find(self, id: str, blocks: Iterable[Block]) -> Found | None:
        for block in blocks:
            if not block.name.lowest <= id <= block.name.highest:
                continue
            rows = self.load(block)
            place = None if rows is None else rows.place_of(id) if rows.id else ids.place_of(int(id, 16))
            if rows is None or place is None:
                continue
            state = self.state(block, place)
            if state is not None:
                return Found(block, rows, place, state)
        return None

    def find_held(self, id: str) -> Found | None:
        """A message that somebody holds: the head has its block."""
        found = self._find(id, self.seen.head.blocks.values())
        return found if found is not None and found.state.status == "processing" else None

    def find_all(self, wanted: Iterable[str]) -> dict[str, Found]:
        """The same for many ids at once: every block is listed and read once."""
        left = sorted(wanted)
        found: dict[str, Found] = {}
        for block in self.blocks():
            some = left[bisect_left(left, block.name.lowest) : bisect_right(left, block.name.highest)]
            rows = self.load(block) if some else None
            if rows is None:
                continue
            places = {id: place for place, id in enumerate(rows.id)} if rows.id else None
            for id in some:
                place = ids.place_of(int(id, 16)) if places is None else places.get(id)
                state = None if place is None else self.state(block, place)
                if place is not None and state is not None:
                    found.setdefault(id, Found(block, rows, place, state))
        return found

    def refuse_unnamed(self, id: str) -> None:
        """Raise Damaged if a block was listed whose key says nothing, and the message may have been in it."""
        block = f"{ids.block_of(int(id, 16)):032x}"
        for key in self._unnamed:
            if block in key or id in key:
                raise damage.damaged(self.seen.root + key, "its name makes no sense")

    def _candidates(self, number: int) -> Iterator[Block]:
        """The head first, then where the bits of the id point, then wherever ids are stored as a column."""
        if ids.is_carried(number) or self.seen.root.endswith("/dead/"):
            yield from self.blocks()
            return
        yield from self.seen.head.blocks.values()
        block = f"{ids.block_of(number):032x}"
        yield from self._unabsorbed(f"inbox/{255 - ids.priority_of(number):03d}/{block}", "later/")

    def record(self, found: Found) -> Stored:
        seen = self.seen
        state = records.with_past(seen.head, found.block, found.place, found.state)
        stored = records.record(found.block, found.rows, found.place, state, seen.rules, self.view, seen.root)
        key = result_key(found.state.result)
        if key is not None and stored.result is None:
            raise damage.missing(seen.root + key) if self._sure else Stale(seen.root + key)
        return stored

    def records(self, block: Block, wanted: Callable[[State], bool]) -> Iterator[tuple[Stored, Found]]:
        """The messages of a block whose state is wanted."""
        rows: Rows | None = None
        for place in range(block.name.count):
            state = self.state(block, place)
            if state is None or not wanted(state):
                continue
            rows = rows or self.load(block)
            if rows is None:
                return  # it has left since the snapshot
            found = Found(block, rows, place, state)
            yield self.record(found), found


# Pages.

_lowest = attrgetter("name.lowest")
Source: TypeAlias = tuple[str, str, Callable[[], list[Stored]]]  # lowest id, highest id, the records in between


def page(sources: Iterable[Source], after: str | None, limit: int) -> list[Stored]:
    """The first `limit` records above `after` in id order; sources come by their lowest id, and may overlap."""
    start = names.plain(after) if after else ""
    chosen: list[Stored] = []
    for lowest, highest, load in sources:
        if highest <= start:
            continue
        if len(chosen) >= limit and (not limit or lowest > names.plain(chosen[-1].id)):
            break
        fresh = [each for each in load() if after is None or each.id > after]
        # A file that replaces others may be seen beside them.
        chosen = sorted({each.id: each for each in chosen + fresh}.values(), key=lambda each: each.id)[:limit]
    return chosen


def in_order(sources: Iterable[Source]) -> list[Source]:
    """As `page` takes them."""
    return sorted(sources, key=itemgetter(0))


def live_sources(glances: Sequence[Glance], view: View, after: str | None) -> Iterator[Source]:
    """The blocks of logs, showing what is ready, delayed, processing or in retry; in order."""
    start = names.plain(after) if after else ""
    return heapq.merge(*(_live_sources(each, view, start) for each in glances), key=itemgetter(0))


def _live_sources(glance: Glance, view: View, start: str) -> Iterator[Source]:
    status = STATUS[view]

    def loader(block: Block) -> Callable[[], list[Stored]]:
        return lambda: [stored for stored, _ in glance.records(block, lambda state: state.status == status)]

    later = glance.come() if view == "ready" else [] if view == "processing" else glance.later()
    fitting = (each for each in later if records.fresh_state(each, glance.view.now).status == status)
    known = sorted([*glance.seen.head.blocks.values(), *fitting], key=_lowest)
    inbox = glance.inbox_by_id(start) if view == "ready" else []
    for block in heapq.merge(known, *inbox, key=_lowest):
        yield block.name.lowest, block.name.highest, loader(block)


def dead_sources(dead: Glance) -> list[Source]:
    """Dead letters, whatever a worker on them is doing."""

    def loader(block: Block) -> Callable[[], list[Stored]]:
        return lambda: [
            records.as_dead(stored, found.rows, found.place)
            for stored, found in dead.records(block, lambda state: state.finished_at is None)
        ]

    return [(block.name.lowest, block.name.highest, loader(block)) for block in dead.blocks()]


def archive_sources(glances: list[Glance], files: list[ArchiveName]) -> list[Source]:
    """Archive files, and outcomes that still wait for their flush."""

    def from_file(file: ArchiveName) -> Callable[[], list[Stored]]:
        return lambda: glances[0].archived(file)[0]

    sources: list[Source] = [(file.first, file.last, from_file(file)) for file in files]
    for glance in glances:
        sources += _ended_sources(glance, _is_archived)
    return sources


def dying_sources(live: Glance) -> list[Source]:
    """Dead letters that still wait for the flush that makes them one."""
    return _ended_sources(live, lambda state: state.status == "dead")


def _ended_sources(glance: Glance, wanted: Callable[[State], bool]) -> list[Source]:
    head = glance.seen.head
    numbers = {group.block for group in head.settled + (head.frozen.settled if head.frozen else [])}

    def loader(block: Block) -> Callable[[], list[Stored]]:
        return lambda: [stored for stored, _ in glance.records(block, wanted)]

    blocks = [head.blocks[no] for no in numbers]
    return [(block.name.lowest, block.name.highest, loader(block)) for block in blocks]


def _is_archived(state: State) -> bool:
    return state.status in ("completed", "failed")


# Counts.


def stats(lives: list[Glance], dead: list[Glance], files: list[ArchiveName]) -> Stats:
    """Counted from keys and heads; payloads are not read."""
    now = lives[0].view.now
    counts = dict.fromkeys(("pending", "delayed", "processing", "retry"), 0)
    oldest = now
    for live in lives:
        for status, mask, since, count in (each for block in live.blocks() for each in _counted(live, block, now)):
            counts[status] += mask.bit_count() if mask >= 0 else count
            if status == "pending":
                oldest = min(oldest, since)
    heads = [each.seen.head for each in (*lives, *dead)]
    buried = sum(_remaining(each, block) for each in dead for block in each.blocks())
    buried += sum(_settled(head, "dead") for head in heads[: len(lives)])
    ended = [_settled(head, status) for head in heads for status in ("completed", "failed", "moved")]
    archived = sum(file.rows for file in files) + sum(ended)
    return Stats(
        sum(counts.values()) + buried + archived,
        counts["pending"],
        counts["delayed"],
        counts["processing"],
        counts["retry"],
        buried,
        archived,
        sum(head.completed for head in heads),
        sum(head.failed for head in heads),
        now - oldest if counts["pending"] else None,
        slots_fired=sum(mark.fired for head in heads for mark in head.schedules.values()),
        slots_missed=sum(mark.missed for head in heads for mark in head.schedules.values()),
        set_aside=sum(each.set_aside() for each in (*lives, *dead)),
    )


def _counted(glance: Glance, block: Block, now: float) -> Iterator[tuple[str, int, float, int]]:
    for status, mask, since in _states(glance, block, now):
        yield status, mask, since, block.name.count


def _states(glance: Glance, block: Block, now: float) -> Iterator[tuple[str, int, float]]:
    """(status, places, since when it has waited) for the live messages of a block; -1: all of them."""
    born = max(ids.born_at(int(block.name.block, 16)), block.due)  # an id of its own may tell of a time long past
    if not block.no:
        yield records.fresh_state(block, now).status, -1, born
        return
    head = glance.seen.head
    yield records.fresh_state(block, now).status, block.fresh(), born if block.fresh() else now
    for lease in head.leases:
        if lease.block == block.no:
            yield ("processing" if lease.expires > now else "pending"), lease.mask, lease.expires
    for group in head.waiting + (head.frozen.waiting if head.frozen else []):
        if group.block == block.no:
            later = "retry" if group.attempts else "delayed"
            yield ("pending" if group.due <= now else later), group.mask, group.due or born


def _remaining(glance: Glance, block: Block) -> int:
    """How many messages of a block have not ended."""
    if not block.no:
        return block.name.count
    return sum(mask.bit_count() for _, mask, _ in _states(glance, block, glance.view.now))


def _settled(head: Head, status: str) -> int:
    groups = head.settled + (head.frozen.settled if head.frozen else [])
    return sum(group.mask.bit_count() for group in groups if group.status == status)
