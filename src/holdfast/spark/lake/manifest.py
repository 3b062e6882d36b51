"""The manifest: which files are the lake. One small file per version, created only if absent: that is the commit.

Readers take the newest version and see exactly its files; writers add data files first and then try to create the next
version. Who comes second reads what the first did and goes on from there, or starts over when both added messages.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import msgspec

from ...errors import StoreError
from .folder import Folder

FORMAT = 1  # of manifests
VERSIONS = "_versions"
_ENDING = ".json"
_COMMIT_TRIES = 100  # lost races: only a fault in the file system loses so many
_ADDING: tuple[str, ...] = ("lake", "replay")  # two of the same kind could add the same rows twice

Kind: TypeAlias = Literal["lake", "compact", "expire", "replay", "finish"]


class LakeConflict(StoreError):
    """Another job committed first, and what we have planned is no longer right."""


class File(msgspec.Struct, frozen=True):
    """A data file. Instants are seconds since 1970 of the first and the last message that finished."""

    table: str
    path: str  # under the root
    queue: str
    day: str
    rows: int
    size: int
    first: float
    last: float


class Replay(msgspec.Struct, frozen=True):
    """Messages that went back to a queue, or are about to: until `done` the next job finishes it."""

    url: str  # without secrets
    queue: str
    rows: int
    at: float
    done: bool = False
    rate: float | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """One version of the lake, complete."""

    version: int = 0
    kind: str = ""
    at: float = 0.0
    files: tuple[File, ...] = ()
    marks: dict[str, float] = {}  # by store and queue: everything that finished until then was looked at
    floor: str = ""  # days before this one were dropped and do not come back
    replays: dict[str, Replay] = {}
    format: int = FORMAT

    def of(self, table: str, *, queues: Sequence[str] | None = None, since: float | None = None) -> list[File]:
        """The files of a table that may hold messages of these queues that finished since then."""
        return [
            file
            for file in self.files
            if file.table == table
            and (queues is None or file.queue in queues)
            and (since is None or file.last >= since)
        ]

    def rows(self, table: str) -> int:
        return sum(file.rows for file in self.files if file.table == table)


class Change(msgspec.Struct, frozen=True):
    """What a commit does to a snapshot."""

    kind: Kind
    add: tuple[File, ...] = ()
    remove: frozenset[str] = frozenset()  # paths
    marks: dict[str, float] = {}
    floor: str = ""
    replays: dict[str, Replay] = {}

    def applied(self, base: Snapshot, now: float) -> Snapshot:
        kept = [file for file in base.files if file.path not in self.remove]
        return Snapshot(
            base.version + 1,
            self.kind,
            now,
            (*kept, *self.add),
            {**base.marks, **{key: max(mark, base.marks.get(key, mark)) for key, mark in self.marks.items()}},
            max(base.floor, self.floor),
            {**base.replays, **self.replays},
        )

    def fits(self, base: Snapshot, since: Sequence[Snapshot]) -> bool:
        """Whether it may go on top of what others committed after it was planned."""
        if self.kind in _ADDING and any(other.kind == self.kind for other in since):
            return False
        return self.remove <= {file.path for file in base.files}


class Lake:
    """A lake at its place. Opening makes nothing; the first commit does."""

    def __init__(self, place: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        self.place = Folder(place)
        self._clock = clock

    def snapshot(self) -> Snapshot:
        """The newest version; an empty one when there is none yet."""
        versions = self.versions()
        return self.version(versions[-1]) if versions else Snapshot()

    def versions(self) -> list[int]:
        names = self.place.names(VERSIONS)
        return [int(name.removesuffix(_ENDING)) for name in names if name.endswith(_ENDING)]

    def version(self, number: int) -> Snapshot:
        data = self.place.read(_name(number))
        if (format := msgspec.json.decode(data).get("format", FORMAT)) > FORMAT:
            raise StoreError(f"the lake has format {format}, this version reads up to {FORMAT}: upgrade holdfast")
        return msgspec.json.decode(data, type=Snapshot)

    def commit(self, base: Snapshot, change: Change) -> Snapshot:
        """The change on top of the newest version; LakeConflict when it no longer fits."""
        planned = base.version
        for _ in range(_COMMIT_TRIES):
            made = change.applied(base, self._clock())
            if self.place.create(_name(made.version), msgspec.json.encode(made)):
                return made
            base = self.snapshot()
            since = [self.version(number) for number in self.versions() if number > planned]
            if not change.fits(base, since):
                raise LakeConflict("another job wrote to this lake meanwhile; nothing was added, run it again")
        raise LakeConflict("this lake is written to all the time; nothing was added, run it again later")

    def files(self, table: str = "messages") -> list[str]:
        """The paths of a table's files in the newest version, for DuckDB, pandas and others."""
        return [str(self.place.path(file.path)) for file in self.snapshot().of(table)]

    def __repr__(self) -> str:
        return f"Lake({str(self.place.root)!r})"


def _name(version: int) -> str:
    return f"{VERSIONS}/{version:012d}{_ENDING}"
