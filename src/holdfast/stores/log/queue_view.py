"""A queue as users see it: its live log, its dead letters and its archive together."""

from __future__ import annotations

from collections.abc import Sequence

from ... import ids
from ..records import Stats, Stored, View
from . import archive, coming, counting, lookup, names, records
from .cache import BlockCache
from .commit import Committer
from .lookup import Glance
from .names import ArchiveName
from .space import Reading


class Finder:
    """Looks into one snapshot after the other; keeps nothing. Dead letters looked at by themselves have none."""

    def __init__(self, live: Committer | Sequence[Committer], dead: Committer | None, cache: BlockCache) -> None:
        self._shards = [live] if isinstance(live, Committer) else list(live)
        self._dead = dead
        self._cache = cache
        self.sure = False  # what is missing is gone for good, and has not just left
        self.again = True  # what has left all the same is looked for once more

    def _glance(self, view: Reading, committer: Committer, lives: Sequence[Glance] = ()) -> Glance:
        frozen = [each.seen.head.frozen for each in lives]
        hidden = [each for each in frozen if each is not None]
        return Glance(view, committer.look(view), self._cache, hidden, sure=self.sure, again=self.again)

    def has_exhausted(self, view: Reading) -> bool:
        """Some lease is over with no attempt left, or some message has expired."""
        return any(counting.has_exhausted(shard.look(view), view.now) for shard in self._shards)

    def find(self, view: Reading, id: str) -> Stored | None:
        return self.find_with_token(view, id)[0]

    def find_with_token(self, view: Reading, id: str) -> tuple[Stored | None, str | None]:
        """A message wherever it is, and the token that last decided over it."""
        number = ids.number(id)
        if number is None:
            return None, None
        plain = f"{number:032x}"
        lives = [self._glance(view, shard) for shard in self._shards]
        for live in lives:
            found = live.find(plain)
            if found is not None:
                return live.record(found), found.state.token or _token(found)
        looked = list(lives)
        if self._dead is not None:
            dead = self._glance(view, self._dead, lives)
            found = dead.find(plain)
            if found is not None:
                return records.as_dead(dead.record(found), found.rows, found.place), _token(found)
            looked.append(dead)
        archived = self._archived(view, lives, plain)
        if archived[0] is None:
            for glance in looked:
                glance.refuse_unnamed(plain)
        return archived

    def _archived(self, view: Reading, lives: list[Glance], plain: str) -> tuple[Stored | None, str | None]:
        for file in archive.holding(self.files(view, *lives), plain):
            for record, token in zip(*lives[0].archived(file), strict=True):
                if names.plain(record.id) == plain:
                    return record, token
        return None, None

    def files(self, view: Reading, *lives: Glance) -> list[ArchiveName]:
        """The queue's archive."""
        files = archive.files(view, self._shards[0].address.archive_root(lives[0].seen.config))
        unfinished = {each.seen.head.frozen.origin for each in lives if each.seen.head.frozen}
        return [file for file in files if file.flush not in unfinished]  # their rows are still in the head

    def page(self, view: Reading, wanted: View, *, after: str | None, limit: int) -> list[Stored]:
        lives, dead = self.both(view)
        if wanted not in ("archive", "dead"):
            return lookup.page(lookup.live_sources(lives, wanted, after), after, limit)
        if wanted == "archive":
            sources = lookup.archive_sources([*lives, *dead], self.files(view, *lives))
        else:
            sources = [source for live in lives for source in lookup.dying_sources(live)]
            for glance in dead:
                sources += lookup.dead_sources(glance)
        return lookup.page(lookup.in_order(sources), after, limit)

    def upcoming(self, view: Reading, wanted: View, after: tuple[float, str] | None, limit: int) -> list[Stored]:
        """One page of what is not due yet, by due time."""
        return coming.by_due_time(self.both(view)[0], wanted, after, limit)

    def next_in_line(self, view: Reading, limit: int) -> list[Stored]:
        """What claims would give; of several shards the most urgent, then the oldest."""
        found = [stored for live in self.both(view)[0] for stored in coming.next_in_line(live, limit)]
        if len(self._shards) > 1:
            found.sort(key=lambda stored: (-stored.priority, stored.id))
        return found[:limit]

    def stats(self, view: Reading) -> Stats:
        lives, dead = self.both(view)
        return lookup.stats(lives, dead, self.files(view, *lives))

    def both(self, view: Reading) -> tuple[list[Glance], list[Glance]]:
        """The queue's shards, and its dead letters."""
        lives = [self._glance(view, shard) for shard in self._shards]
        return lives, [] if self._dead is None else [self._glance(view, self._dead, lives)]


def _token(found: lookup.Found) -> str | None:
    return found.rows.token[found.place] if found.rows.token else None
