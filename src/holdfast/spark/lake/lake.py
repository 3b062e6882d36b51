"""A lake at its place: its tables, and what their marks say."""

from __future__ import annotations

import hashlib
import os
import secrets
from datetime import date
from typing import NamedTuple

from ...errors import ConfigError
from . import tables
from .delta import State, Table, table_at
from .place import Place, open_place

NOTED, SENT = 1, 2  # versions of a replay's mark
OLD = "_versions"  # the folder of lakes of 0.1.0, before they were Delta tables
DAY = "message_day"  # what the files of a table of fields are divided by, if anything
_FLOOR = "holdfast/retention"  # its version is a day: those before it were dropped and do not come back


class Replay(NamedTuple):
    """Messages that went back to a queue, or are about to. Its name says which queue of which store that is."""

    name: str

    @classmethod
    def to(cls, store: str, queue: str, own: str | None = None) -> Replay:
        """A new one; `store` is its URL without secrets."""
        target = hashlib.blake2b(f"{store}#{queue}".encode(), digest_size=8).hexdigest()
        return cls(f"{target}-{own or secrets.token_hex(8)}")

    @property
    def mark(self) -> str:
        """Its version says whether the messages were only noted, or sent."""
        return f"holdfast/replay/{self.name}"

    @property
    def target(self) -> str:
        """What two replays to one queue both mark, so that of two at once the second starts over."""
        return f"holdfast/replays/{self.name.partition('-')[0]}"

    @property
    def key(self) -> str:
        """Under which the queue takes its messages once."""
        return f"replay/{self.name.partition('-')[2]}"


class Lake:
    """Opening makes nothing; the first commit does."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.place = open_place(place)
        self.messages, self.replayed = (
            Table(self.place.below(name), tables.spec(name)) for name in (tables.MESSAGES, tables.REPLAYED)
        )

    @property
    def parts(self) -> tuple[Table, ...]:
        return (self.messages, self.replayed)

    @property
    def text(self) -> str:
        """What opens it again, elsewhere."""
        return self.place.text

    @property
    def shown(self) -> str:
        return self.place.shown

    def table(self, name: str) -> Table:
        return self.messages if tables.table_of(name) == tables.MESSAGES else self.replayed

    def is_old(self) -> bool:
        """Whether it still has the format of 0.1.0."""
        return bool(self.place.names(OLD))

    def uri(self, table: str = tables.MESSAGES) -> str:
        """Where a table lies, for Polars, DuckDB and others that read Delta."""
        return self.table(table).place.shown

    def state(self) -> State:
        """The newest version of `messages`; ConfigError when the lake must be converted first."""
        found = self.messages.state()
        if found.version < 0 and self.is_old():
            raise ConfigError(f"{self.shown} is a lake of 0.1.0: make it one of Delta tables with "
                              f"`holdfast pipeline convert {self.shown}`")  # fmt: skip
        return found

    def replays(self, state: State) -> list[Replay]:
        """All that were ever noted in a version of `replayed`."""
        return [Replay(name) for name in sorted({file.partition["replay"] or "" for file in state.files})]

    def __repr__(self) -> str:
        return f"Lake({self.shown!r})"


class Alone:
    """A Delta table that is no part of a lake, as far as maintenance goes."""

    def __init__(self, table: Table) -> None:
        self.parts = (table,)
        self.shown = table.place.shown

    def state(self) -> State:
        return self.parts[0].state()

    @property
    def has_days(self) -> bool:
        return DAY in self.parts[0].spec.partitions


def alone(place: Place) -> Alone | None:
    """The table at a place, where one lies there by itself."""
    found = table_at(place)
    return None if found is None else Alone(found)


def marked(store: str, queue: str) -> str:
    """The mark of a queue: microseconds since 1970 until which everything that finished was looked at."""
    return f"holdfast/lake/{store}#{queue}"


def floor(state: State) -> str:
    """The first day that is kept; empty: all are."""
    at = state.mark(_FLOOR)
    return "" if at is None else date.fromordinal(at).isoformat()


def floor_mark(day: str) -> dict[str, int]:
    return {_FLOOR: date.fromisoformat(day).toordinal()}
