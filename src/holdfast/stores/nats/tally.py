"""How many messages ended, ever: each client counts its own, in the same batch as the outcomes."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from .faults import WRONG_SEQUENCE, Refused
from .link import Link
from .reading import Reader
from .wire import Post

_SLOTS = 32  # more than these are folded into one
_FOLDED = 500  # at once


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

    async def fold(self) -> int:
        """Many slots into one, since clients come and go; how many. Their owners, if they live, take fresh ones."""
        if not self._link.features.batches:  # it must happen to all or to none
            return 0
        found = await self._reader.last(self._stream, [f"{self._subject}*"])
        sum_subject = f"{self._subject}sum"
        slots = [one for subject, one in found.items() if subject != sum_subject][:_FOLDED]
        if len(slots) <= _SLOTS:
            return 0
        old = found.get(sum_subject)
        total = _total([one.data for one in [*slots, *([old] if old else [])]])
        zero = msgspec.json.encode(Counts())
        posts = [Post(sum_subject, msgspec.json.encode(total), "", old.sequence if old else 0)]
        posts += [Post(one.subject, zero, "", one.sequence) for one in slots]
        try:
            _, *zeros = await self._link.store(posts)
        except Refused as error:
            if error.code != WRONG_SEQUENCE:
                raise
            return 0  # one of them was counting just now; the next time is soon
        for sequence in zeros:
            await self._link.api(f"STREAM.MSG.DELETE.{self._stream}", {"seq": sequence, "no_erase": True})
        return len(slots)

    async def read(self) -> tuple[Counts, int]:
        """The sum over all clients, and of how many subjects."""
        found = await self._reader.last(self._stream, [f"{self._subject}*"])
        return _total([one.data for one in found.values()]), len(found)


def _total(slots: Sequence[bytes]) -> Counts:
    counts = [msgspec.json.decode(data, type=Counts) for data in slots]
    return Counts(sum(one.completed for one in counts), sum(one.failed for one in counts))
