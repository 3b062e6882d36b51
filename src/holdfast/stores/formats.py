"""The format of a store: one number, kept in the store, that says what may be written there.

A version of Holdfast knows at least two formats, its newest and the one before: it reads them and writes the one it
finds. An empty store starts at the newest. Only `holdfast install` raises the number, when the operator says that every
process knows the new one; so versions that are one format apart work side by side. What is there is not rewritten:
whatever a format adds is optional for its readers.

Where the number is kept:
    file://         the row `format` of the table `meta`
    slatedb+…://    the row `mformat`
    s3:// gs:// az://   the object `~identity`
    postgresql://   the table `migrations`: the number of the last one
    nats://         metadata of the stream <prefix>=queues, and each queue's entry

A change of what is stored raises the number of its engine here by one; for PostgreSQL it is the next migration, one for
each version, and statements that ran before it must run after it. `make chaos RUN=upgrade` goes by these lines.
"""

from __future__ import annotations

import msgspec

from ..errors import StoreError

FIRST = 1  # also of stores from before the number was kept
# Folders, SlateDB, buckets. 2: a retry says which worker failed it. 3: every object has a sum; schedules.
# 4: a lease says who holds it; on buckets the head counts what was archived; blocks that expire.
LOG = 4  # the newest
NATS = 3  # 2: the number itself. 3: everything that is stored has a sum
RETRIES_NAME_WORKERS = 2  # from this one on, in LOG
SUMS = 3  # from this one on, in LOG and in NATS
REMEMBERS = 4  # from this one on, in LOG
EXPIRES = REMEMBERS  # a block that expires says so in its name
ARCHIVE_INDEX = REMEMBERS  # on buckets; a head that has one says so
SCHEDULES = SUMS  # a queue or head that has some says so


class Format(msgspec.Struct, frozen=True):
    """The number of a store, and the newest that this version knows."""

    number: int
    newest: int

    @property
    def can_rise(self) -> bool:
        return self.number < self.newest

    @property
    def step(self) -> str:
        return f"raise the format from {self.number} to {self.newest}"


def checked(number: int, newest: int, place: str, *, oldest: int | None = None) -> int:
    """The number of a store that this version can work with, `oldest` (or the one before the newest) at least."""
    oldest = newest - 1 if oldest is None else oldest
    if number > newest:
        raise StoreError(f"{place} has format {number}, this Holdfast knows up to {newest}: upgrade Holdfast")
    if number < oldest:
        raise StoreError(
            f"{place} has format {number}, this Holdfast knows {oldest} to {newest}: first run `holdfast install`"
            f" with the versions between, one after the other"
        )
    return number
