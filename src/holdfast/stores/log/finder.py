"""A queue as users see it: its live log, its dead letters and its archive together."""

from __future__ import annotations

from ... import ids
from ...messages import Stats, Stored, View
from . import archive, head, lookup, names, records
from .cache import BlockCache
from .committer import Committer
from .lookup import Glance
from .names import ArchiveName
from .space import Reading


class Finder:
    """Looks into one snapshot after the other; keeps nothing. Dead letters looked at by themselves have none."""

    def __init__(self, live: Committer, dead: Committer | None, cache: BlockCache) -> None:
        self._live = live
        self._dead = dead
        self._cache = cache

    def _glance(self, view: Reading, committer: Committer, live: Glance | None = None) -> Glance:
        frozen = live.seen.head.frozen if live is not None else None
        return Glance(view, committer.look(view), self._cache, frozen)

    def has_exhausted(self, view: Reading) -> bool:
        """Some lease is over with no attempt left."""
        seen = self._live.look(view)
        current = seen.head.copy()
        current.now = max(current.now, view.now)
        return any(head.exhausted(current, lease, seen.rules) for lease in current.leases)

    def find(self, view: Reading, id: str) -> Stored | None:
        return self.find_with_token(view, id)[0]

    def find_with_token(self, view: Reading, id: str) -> tuple[Stored | None, str | None]:
        """A message wherever it is, and the token that last decided over it."""
        number = ids.number(id)
        if number is None:
            return None, None
        plain = f"{number:032x}"
        live = self._glance(view, self._live)
        found = live.find(plain)
        if found is not None:
            return live.record(found), found.state.token or _token(found)
        if self._dead is not None:
            dead = self._glance(view, self._dead, live)
            found = dead.find(plain)
            if found is not None:
                return records.as_dead(dead.record(found), found.rows, found.place), _token(found)
        return self._archived(view, live, plain)

    def _archived(self, view: Reading, live: Glance, plain: str) -> tuple[Stored | None, str | None]:
        for file in archive.holding(self.files(view, live), plain):
            stored = view.get(file.key)
            for record, token in zip(*archive.decode(stored.data), strict=True) if stored else ():
                if names.plain(record.id) == plain:
                    return record, token
        return None, None

    def files(self, view: Reading, live: Glance) -> list[ArchiveName]:
        """The queue's archive."""
        files = archive.files(view, self._live.address.archive_root(live.seen.config))
        frozen = live.seen.head.frozen
        if frozen is not None and live.seen.rules.window:
            files = [file for file in files if file.flush != frozen.origin]  # its rows are still in the head
        return files

    def page(self, view: Reading, wanted: View, *, after: str | None, limit: int) -> list[Stored]:
        live, *dead = self.glances(view)
        if wanted == "archive":
            sources = lookup.archive_sources([live, *dead], self.files(view, live), view)
        elif wanted == "dead":
            sources = lookup.dying_sources(live)
            for glance in dead:
                sources += lookup.dead_sources(glance)
        else:
            sources = lookup.live_sources(live, wanted)
        return lookup.page(sources, after, limit)

    def stats(self, view: Reading) -> Stats:
        live, *dead = self.glances(view)
        return lookup.stats(live, dead, self.files(view, live))

    def glances(self, view: Reading) -> list[Glance]:
        """The queue's log, and its dead letters'."""
        live = self._glance(view, self._live)
        return [live] if self._dead is None else [live, self._glance(view, self._dead, live)]


def _token(found: lookup.Found) -> str | None:
    return found.rows.token[found.place] if found.rows.token else None
