"""What a step sees and does: the durable state, and a group of steps that becomes durable together."""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence

import msgspec

from ....errors import Unavailable
from ..calendar import IN_STEP, Calendar
from ..space import LAST, Buffer, Found, Range, Survey
from ..sums import Sums
from .index import Entry, Index, Recent
from .layout import LARGEST_KEPT, SMALL


class Files:
    """Bytes that are written and not yet an object."""

    def __init__(self) -> None:
        self.tags: dict[str, tuple[int, float]] = {}

    def add(self, key: str, tag: int) -> int | None:
        """The tag of what the key had before."""
        before = self.tags.get(key)
        self.tags[key] = (tag, time.monotonic())
        return before[0] if before else None

    def older(self, seconds: float) -> list[str]:
        limit = time.monotonic() - seconds
        return [key for key, (_, written) in self.tags.items() if written <= limit]


class Snapshot:
    """The durable state. Whoever reads it holds the space's lock, so it does not change meanwhile."""

    now: float = 0.0
    calendar: Calendar = IN_STEP

    def __init__(self, index: Index, recent: Recent, fetch: Callable[[int], bytes | None], *, sums: Sums) -> None:
        self._index = index
        self._recent = recent
        self._fetch = fetch
        self._sums = sums

    def _entry(self, key: str) -> Entry | None:
        return self._index.entries.get(key)

    def _between(self, start: str, end: str, limit: int) -> list[str]:
        return self._index.keys.between(start, end, limit)

    def _data(self, tag: int) -> bytes | None:
        data = self._recent.get(tag)
        if data is None:
            data = self._fetch(tag)
            if data is not None:
                self._recent.add(tag, data)
        return data

    def get(self, key: str) -> Found | None:
        entry = self._entry(key)
        if entry is None:
            return None
        data = entry.data if entry.data is not None else self._data(entry.tag)
        return None if data is None else Found(self._sums.opened(key, data), entry.tag)

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        start = after + "\0" if after >= prefix and after else prefix
        return self._between(start, prefix + LAST, limit)

    def made(self, key: str) -> float | None:
        return None

    def survey(self, keys: Sequence[str], ranges: Sequence[Range]) -> Survey:
        found = [self.get(key) for key in keys]
        return [each.data if each else None for each in found], [self._between(*each) for each in ranges]


class Change(msgspec.Struct, gc=False):
    """One key changed by a step, and how it was before, so that the step can be undone alone."""

    key: str
    known: bool  # an earlier change of the group stands behind it
    before: Entry | None


class Group(Snapshot):
    """Steps that share one write: each sees what those before it did, and each can be undone alone."""

    def __init__(
        self,
        index: Index,
        recent: Recent,
        fetch: Callable[[int], bytes | None],
        *,
        files: Files,
        tags: Iterator[int],
        now: float,
        sums: Sums,
    ) -> None:
        super().__init__(index, recent, fetch, sums=sums)
        self.now = now
        self.changed: dict[str, Entry | None] = {}
        self.written: dict[int, bytes] = {}  # bytes that lie apart, by tag
        self.adopted: dict[int, str] = {}  # files that become objects
        self.topics: list[str] = []
        self._files = files
        self._tags = tags
        self._added: list[str] = []  # keys the index does not have
        self._removed: set[str] = set()  # keys only the index has
        self._journal: list[Change] = []
        self._begun = 0

    # What the group's own changes do to the view.

    def _entry(self, key: str) -> Entry | None:
        return self.changed[key] if key in self.changed else self._index.entries.get(key)

    def _between(self, start: str, end: str, limit: int) -> list[str]:
        found = super()._between(start, end, limit + len(self._removed))
        if self._removed:
            found = [key for key in found if key not in self._removed]
        if self._added:
            found += self._added[bisect_left(self._added, start) : bisect_left(self._added, end)]
            found.sort()
        return found[:limit]

    def _data(self, tag: int) -> bytes | None:
        return self.written.get(tag) or super()._data(tag)

    # What a step does.

    def create(self, key: str, data: Buffer) -> bool:
        if self._entry(key) is not None:
            return False
        self.put(key, data)
        return True

    def adopt(self, key: str) -> bool:
        if self._entry(key) is not None:
            return False
        file = self._files.tags.get(key)
        if file is None or file[0] in self.adopted:
            raise Unavailable(f"the file {key} is gone: it waited too long to become an object; write it again")
        self.adopted[file[0]] = key
        self._set(key, Entry(file[0]))
        return True

    def put(self, key: str, data: Buffer, *, proof: Callable[[bytes | None], bool] | None = None) -> None:
        content = bytes(self._sums.sealed(key, data))
        tag = next(self._tags)
        replaced = self._entry(key) is not None and len(content) <= LARGEST_KEPT
        if replaced or len(content) <= SMALL:
            self._set(key, Entry(tag, content))
        else:
            self.written[tag] = content
            self._set(key, Entry(tag))

    def delete(self, key: str) -> bool:
        there = self._entry(key) is not None
        if there:
            self._set(key, None)
        return there

    def signal(self, topic: str) -> None:
        self.topics.append(topic)

    # What the committer does.

    def step_begins(self) -> None:
        self._journal.clear()
        self._begun = len(self.topics)

    def step_failed(self) -> None:
        """Undo this step alone."""
        del self.topics[self._begun :]
        while self._journal:
            change = self._journal.pop()
            gone = self.changed[change.key]
            if gone is not None:
                self.written.pop(gone.tag, None)
                self.adopted.pop(gone.tag, None)
            if change.known:
                self._place(change.key, change.before)
            else:
                self._take_back(change.key)

    def _set(self, key: str, entry: Entry | None) -> None:
        before = self.changed.get(key)
        self._journal.append(Change(key, key in self.changed, before))
        self._place(key, entry)

    def _take_back(self, key: str) -> None:
        """As if the group had never changed the key."""
        entry = self.changed.pop(key)
        if key in self._index.entries:
            self._removed.discard(key)
        elif entry is not None:
            del self._added[bisect_left(self._added, key)]

    def _place(self, key: str, entry: Entry | None) -> None:
        listed = self._entry(key) is not None
        self.changed[key] = entry
        if key in self._index.entries:
            (self._removed.add if entry is None else self._removed.discard)(key)
        elif entry is not None and not listed:
            insort(self._added, key)
        elif entry is None and listed:
            del self._added[bisect_left(self._added, key)]
