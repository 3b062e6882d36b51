"""A folder of Parquet files to which each batch is added once: for readers that know no Delta Lake.

Files are written in `_staged`. A commit, created only if absent, says which of them belong to the table; then they are
moved to where readers look. Who comes next finishes the moves of one who was killed: files appear one by one, and all.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from ...errors import StoreError
from .delta import Bounds, Change, File, LakeConflict, Spec
from .place import Place

_COMMITS, _STAGED = "_holdfast/commits", "_holdfast/staged"  # readers of Parquet leave out what begins with _
_NUMBER = re.compile(r"\d{20}(?=\.json$)")


class _Commit(msgspec.Struct, frozen=True):
    schema: str
    folder: str  # in which the files were staged
    files: list[File] = []
    marks: dict[str, int] = {}  # of all writers, so that the newest commit is all there is to know


class ParquetState:
    """What the newest commit says; `version` is -1 before the first."""

    def __init__(self, version: int, last: _Commit | None, place: Place) -> None:
        self.version = version
        self._last = last
        self._place = place

    def mark(self, name: str) -> int | None:
        return None if self._last is None else self._last.marks.get(name)

    @property
    def schema(self) -> str:
        assert self._last is not None
        return self._last.schema

    @property
    def marks(self) -> dict[str, int]:
        return {} if self._last is None else self._last.marks

    def bounds(self, column: str) -> list[Bounds]:
        """Nobody has noted any: the files themselves know."""
        return [Bounds(name) for name in self._place.names("") if is_data(name)]


class ParquetTable:
    """Opening makes nothing; the first commit does."""

    def __init__(self, place: Place, spec: Spec) -> None:
        self.place = place
        self.spec = spec
        self._seen = -1

    def state(self) -> ParquetState:
        """The newest version, with all its files where they belong."""
        if self._seen < 0:
            numbers = [int(found[0]) for name in self.place.names(_COMMITS) if (found := _NUMBER.search(name))]
            self._seen = max(numbers, default=-1)
        while self.place.read(_name(self._seen + 1)) is not None:
            self._seen += 1
        if self._seen < 0:
            return ParquetState(-1, None, self.place)
        last = self._read(self._seen)
        self._finish(last)
        return ParquetState(self._seen, last, self.place)

    def commit(self, base: ParquetState, change: Change, *, folder: str) -> int:
        """Files staged in a folder become the table's; LakeConflict when another has moved one of the marks."""
        version, marks = base.version + 1, base.marks
        while True:
            made = _Commit(self.spec.text, folder, list(change.add), marks | change.marks)
            if self.place.create(_name(version), msgspec.json.encode(made)):
                self._finish(made)
                return version
            other = self._read(version)
            self._finish(other)
            if any(other.marks.get(name) != base.mark(name) for name in change.marks):
                raise LakeConflict("another job wrote to this table meanwhile; nothing was added, run it again")
            version, marks = version + 1, other.marks

    def _read(self, version: int) -> _Commit:
        data = self.place.read(_name(version))
        if data is None:
            raise StoreError(f"{self.place.shown} has lost {_name(version)}")
        return msgspec.json.decode(data, type=_Commit)

    def _finish(self, commit: _Commit) -> None:
        for file in commit.files:
            self.place.move(f"{commit.folder}/{file.path}", file.path)

    def staged(self, mark: str) -> str:
        """The folder of a writer, empty: what is left in it is of a run that did not come to its commit."""
        folder = f"{_STAGED}/{hashlib.blake2b(mark.encode(), digest_size=8).hexdigest()}"
        for name in self.place.names(folder):
            self.place.delete(name)
        return folder

    def __repr__(self) -> str:
        return f"ParquetTable({self.place.shown!r})"


def is_one(place: Place) -> bool:
    """Whether a place is such a table."""
    return bool(place.names(_COMMITS))


def is_data(name: str) -> bool:
    """Whether a file of the folder is one of the table."""
    return name.endswith(".parquet") and not name.startswith("_holdfast/")


def _name(version: int) -> str:
    return f"{_COMMITS}/{version:020d}.json"
