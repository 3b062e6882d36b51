"""What a key says. Keys are never reused: an incarnation, a birth and a unique number are part of each."""

from __future__ import annotations

from typing import Any, NamedTuple

Log = tuple[int, str]  # incarnation of the queue, and "s0", "s1" (shards) or "dead" (its dead letters)
Id = tuple[Any, ...]  # of a message


class Flush(NamedTuple):
    """The flush that wrote a block: its log, its id, how often that log had been purged."""

    log: Log
    id: int
    purges: int


class Key(NamedTuple):
    log: Log
    folder: str  # inbox, later, late, parts, archive, dedup, head
    priority: int = 0
    due: int = 0
    birth: int = 0
    unique: tuple[int, ...] = ()
    count: int = 1  # messages in it
    attempts: int = 0  # that its messages have behind them (spilled retries)
    flush: Flush | None = None  # written by a flush
    parts: int = 0  # a manifest of so many parts
    dedup: str = ""  # its dedup object must be confirmed before it is forgotten

    @property
    def order(self) -> tuple[int, int, tuple[int, ...]]:
        return self.priority, self.birth, self.unique

    def part(self, number: int) -> Key:
        """A part of this manifest; it shares its birth and fence."""
        return Key(self.log, "parts", self.priority, 0, self.birth, (*self.unique, number, self.parts))

    @property
    def manifest(self) -> Key:
        """The manifest that this part belongs to."""
        return Key(self.log, "inbox", self.priority, 0, self.birth, self.unique[:-2], count=0, parts=self.unique[-1])


class Row(NamedTuple):
    """One message in a block or file."""

    id: Id
    value: str | None


def head_key(log: Log) -> Key:
    return Key(log, "head")


CONFIG = Key((0, ""), "config")
IDENTITY = Key((0, ""), "identity")  # of the bucket: (when it was made, its epoch)
