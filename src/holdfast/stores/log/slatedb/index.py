"""Which objects there are, in memory: one process owns the database, so its keys need not be asked for.

About 230 bytes an object: a backlog of a million single messages takes 230 MB, the same in blocks of 1000 takes 230 KB.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

_PART = 1000  # keys in one list: a list of a million costs a move of 8 MB for every key that comes into the middle


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An object: its tag, and its bytes when they are kept at hand; otherwise they lie apart, under the tag."""

    tag: int
    data: bytes | None = None


class Keys:
    """Text in order."""

    def __init__(self, ordered: Iterable[str] = ()) -> None:
        every = list(ordered)
        self._parts = [every[at : at + _PART] for at in range(0, len(every), _PART)]
        self._firsts = [part[0] for part in self._parts]

    def add(self, key: str) -> None:
        """A key that is not there yet."""
        if not self._parts:
            self._parts, self._firsts = [[key]], [key]
            return
        at = max(bisect_right(self._firsts, key) - 1, 0)
        part = self._parts[at]
        insort(part, key)
        self._firsts[at] = part[0]
        if len(part) > 2 * _PART:
            self._parts[at : at + 1] = [part[:_PART], part[_PART:]]
            self._firsts[at : at + 1] = [part[0], part[_PART]]

    def remove(self, key: str) -> None:
        """A key that is there."""
        at = bisect_right(self._firsts, key) - 1
        part = self._parts[at]
        del part[bisect_left(part, key)]
        if part:
            self._firsts[at] = part[0]
        else:
            del self._parts[at], self._firsts[at]

    def between(self, start: str, end: str, limit: int) -> list[str]:
        """The first keys from `start` up to, not including, `end`."""
        found: list[str] = []
        for at in range(max(bisect_right(self._firsts, start) - 1, 0), len(self._parts)):
            part = self._parts[at]
            first = bisect_left(part, start)
            last = len(part) if part[-1] < end else bisect_left(part, end)
            found += part[first : min(last, first + limit - len(found))]
            if last < len(part) or len(found) >= limit:
                break
        return found


class Index:
    """Every object of the database, as far as it is durable."""

    def __init__(self, entries: Iterable[tuple[str, Entry]] = ()) -> None:
        self.entries = dict(entries)
        self.keys = Keys(sorted(self.entries))

    def set(self, key: str, entry: Entry | None) -> None:
        there = key in self.entries
        if entry is not None:
            self.entries[key] = entry
            if not there:
                self.keys.add(key)
        elif there:
            del self.entries[key]
            self.keys.remove(key)


class Recent:
    """Bytes that lie apart and were just written or read, up to a budget."""

    def __init__(self, budget: int = 32 << 20, largest: int = 256 << 10) -> None:
        self._budget = budget
        self._largest = largest
        self._used = 0
        self._lock = threading.Lock()  # a reading and a writing thread
        self._data: OrderedDict[int, bytes] = OrderedDict()

    def get(self, tag: int) -> bytes | None:
        return self._data.get(tag)

    def add(self, tag: int, data: bytes) -> None:
        with self._lock:
            if len(data) > self._largest or tag in self._data:
                return
            self._data[tag] = data
            self._used += len(data)
            while self._used > self._budget:
                self._used -= len(self._data.popitem(last=False)[1])

    def forget(self, tag: int) -> None:
        with self._lock:
            self._used -= len(self._data.pop(tag, b""))
