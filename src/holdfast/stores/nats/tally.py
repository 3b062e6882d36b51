"""How many messages ended, ever: each client counts its own, in the same batch as the outcomes."""

from __future__ import annotations

import os

import msgspec

from .faults import WRONG_SEQUENCE, Refused
from .link import Link
from .reading import Reader
from .wire import Post


class Counts(msgspec.Struct):
    """Since the creation of the queue."""

    completed: int = 0
    failed: int = 0


class Slot:
    """One subject, one writer at a time."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.counts = Counts()
        self.sequence = 0

    def post(self, more: Counts) -> Post:
        total = Counts(self.counts.completed + more.completed, self.counts.failed + more.failed)
        return Post(self.subject, msgspec.json.encode(total), "", self.sequence)


class Tally:
    """The counts of this client for one queue."""

    def __init__(self, link: Link, reader: Reader, stream: str, subject: str) -> None:
        self._link = link
        self._reader = reader
        self._stream = stream
        self._subject = subject
        self._free: list[Slot] = []

    def take(self) -> Slot:
        """A slot of our own; `count` gives it back. One that is not given back stays as it is."""
        return self._free.pop() if self._free else Slot(self._subject + os.urandom(6).hex())

    async def count(self, slot: Slot, more: Counts, sequence: int | None, *, planned: Counts) -> None:
        """Remember what ended; what was planned has gone in as this sequence, and is mended when it was too much."""
        if more != planned or (sequence is None and planned != Counts()):
            slot.sequence = sequence or slot.sequence
            slot, sequence = await self._write(slot, more)
        slot.counts.completed += more.completed
        slot.counts.failed += more.failed
        slot.sequence = sequence or slot.sequence
        self._free.append(slot)

    async def _write(self, slot: Slot, more: Counts) -> tuple[Slot, int]:
        try:
            return slot, (await self._link.store([slot.post(more)]))[0]
        except Refused as error:
            if error.code != WRONG_SEQUENCE:
                raise
        fresh = Slot(self._subject + os.urandom(6).hex())  # the old one was folded by another in between
        return fresh, (await self._link.store([fresh.post(more)]))[0]

    async def read(self) -> tuple[Counts, int]:
        """The sum over all clients, and of how many subjects."""
        found = await self._reader.last(self._stream, [f"{self._subject}*"])
        counts = [msgspec.json.decode(one.data, type=Counts) for one in found.values()]
        total = Counts(sum(one.completed for one in counts), sum(one.failed for one in counts))
        return total, len(counts)
