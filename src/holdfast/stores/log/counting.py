"""Many queues looked at together: their heads and keys in a few reads, where one by one each would take a trip."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ..records import Stats
from . import archive, damage, lookup, names, queues
from .cache import BlockCache
from .calendar import Calendar
from .edit import Seen
from .head import codec, machine
from .head.state import Head
from .lookup import Glance
from .queues import Address, Config, Named
from .space import LAST, Found, Range, Reading, Survey

if TYPE_CHECKING:
    from .repeat_window import RepeatWindow

SLICE = 200  # queues of one read: others have their turn in between
_AT_ONCE = 10  # queues of one survey: SQLite compiles a statement in the square of its parts, and keeps short ones
_KEYS = 1000  # of a queue that a survey shows; one with more is listed by itself
_LOGS = ("", "dead/")
Counted: TypeAlias = tuple[str, Config, Stats | None]


class Shown:
    """A view that answers from what a survey has shown, and asks for the rest."""

    def __init__(self, view: Reading, listed: dict[str, list[str]]) -> None:
        self._view = view
        self._listed = listed
        self.now = view.now
        self.calendar: Calendar = view.calendar

    def get(self, key: str) -> Found | None:
        return self._view.get(key)

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        keys = self._listed.get(prefix[: prefix.index("/") + 1])
        if keys is None:
            return self._view.list(prefix, after=after, limit=limit)
        start = bisect_right(keys, after) if after > prefix else bisect_left(keys, prefix)
        return keys[start : min(start + limit, bisect_left(keys, prefix + LAST))]

    def survey(self, keys: Sequence[str], ranges: Sequence[Range]) -> Survey:
        return self._view.survey(keys, ranges)

    def made(self, key: str) -> float | None:
        return self._view.made(key)


class Sight:
    """A queue as a read has shown it: its log, its dead letters, and the keys of both."""

    def __init__(
        self, view: Shown, name: str, config: Config, heads: Sequence[bytes | None], window: RepeatWindow
    ) -> None:
        self.view = view
        self.config = config
        self.root = Address(name, False).archive_root(config)
        self.live, self.dead = (
            _seen(Address(name, bool(log)), config, stored, view, window)
            for log, stored in zip(_LOGS, heads, strict=True)
        )

    def stats(self, cache: BlockCache) -> Stats | None:
        """None: some lease is over with no attempt left, or a message has expired, which has to be written first."""
        if self.has_exhausted():
            return None
        live, dead = (Glance(self.view, seen, cache) for seen in (self.live, self.dead))
        return lookup.stats([live], [dead], archive.files(self.view, self.root))

    def has_exhausted(self) -> bool:
        return has_exhausted(self.live, self.view.now)

    def knows(self, id: str, cache: BlockCache) -> bool:
        """Whether a message (32 hex digits) is in the queue, in whatever state."""
        live = Glance(self.view, self.live, cache)
        frozen = self.live.head.frozen
        dead = Glance(self.view, self.dead, cache, [frozen] if frozen is not None else [])
        if live.find(id) is not None or dead.find(id) is not None:
            return True
        files = archive.holding(archive.files(self.view, self.root), id)
        return any(names.plain(each.id) == id for file in files for each in live.archived(file)[0])


def has_exhausted(seen: Seen, now: float) -> bool:
    """Some lease is over with no attempt left, or some message has expired."""
    now = max(seen.head.now, now)
    if not seen.head.leases and seen.head.first_end() > now:
        return False
    current = seen.head.copy()
    current.now = now
    return bool(machine.exhausted(current, seen.rules)) or machine.has_lapsing(current, seen.rules)


def _seen(address: Address, config: Config, stored: bytes | None, view: Shown, window: RepeatWindow) -> Seen:
    root = address.root(config)
    known = Head()
    if stored is None and config.has_heads:
        raise queues.lost_head(root)
    if stored is not None:
        known = damage.read(root + "head", partial(codec.decode, calendar=view.calendar), stored)
    return Seen(config, address.rules(config, calendar=view.calendar), root, known, known.ticket(), window)


def sights(view: Reading, named: Sequence[Named], window: RepeatWindow) -> Iterator[Sight]:
    """Queues of one shard, in the order given."""
    for start in range(0, len(named), _AT_ONCE):
        some = named[start : start + _AT_ONCE]
        roots = [Address(name, False).archive_root(config) for name, config in some]
        heads, found = view.survey(
            [f"{root}{log}head" for root in roots for log in _LOGS], [(root, root + LAST, _KEYS) for root in roots]
        )
        shown = Shown(view, {root: keys for root, keys in zip(roots, found, strict=True) if len(keys) < _KEYS})
        for at, (name, config) in enumerate(some):
            yield Sight(shown, name, config, heads[at * len(_LOGS) : (at + 1) * len(_LOGS)], window)


def knowing(cache: BlockCache, window: RepeatWindow, id: str, asked: Sequence[str], view: Reading) -> str | None:
    """The first of these queues, of one shard each, that knows a message."""
    named = queues.named(view, asked)
    knows = (sight.knows(id, cache) for sight in sights(view, named, window))
    return next((name for (name, _), known in zip(named, knows, strict=True) if known), None)


def counted(cache: BlockCache, window: RepeatWindow, after: str, view: Reading) -> tuple[list[Counted], str]:
    """The first queues behind this key, and the key to go on from; empty: there are no more.

    Counts of None: somebody has to look at this queue alone, as `Sight.stats` says.
    """
    named, last = queues.page_of(view, after, SLICE)
    single = [each for each in named if each[1].options.shards == 1]
    known = {sight.root: sight.stats(cache) for sight in sights(view, single, window)}
    return [(*each, known.get(Address(each[0], False).archive_root(each[1]))) for each in named], last
