"""How many messages ended, ever: each client counts its own.

A count and the outcomes it is about are several messages, and a kill may come between any two. So a client says first
what it is about to end, beside what it has counted before; whether that happened is read from the records.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from ...v1.task_pb2 import Record
from .connection import WINDOW, Connection
from .faults import Code, Ignored
from .names import TRACE_S
from .reading import Found, Reader
from .wire import Post

# More than these are folded into one. A client that is killed after its slot was folded under it, and before it has
# written a new one, costs the counts of one settlement: so it is done seldom.
_SLOTS = 128  # subjects of counts that are read by every `stats`

Records = Callable[[Sequence[str]], Awaitable[dict[str, tuple[int, Record]]]]
Traces = Callable[[Sequence[str]], Awaitable[dict[str, float]]]


class Counts(msgspec.Struct, frozen=True):
    """Since the creation of the queue."""

    completed: int = 0
    failed: int = 0

    def plus(self, other: Counts) -> Counts:
        return Counts(self.completed + other.completed, self.failed + other.failed)


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one client says."""

    completed: int = 0  # for sure
    failed: int = 0
    at: float = 0.0  # when those below end, by their records
    completing: list[str] = []  # ids that were about to end when this was written
    failing: list[str] = []
    fresh: bool = False  # those had no record before
    removing: list[str] = []  # ids whose records go away once their tasks have; counted above, or nowhere

    def about(self) -> list[str]:
        return [*self.completing, *self.failing]


read_entry = msgspec.json.Decoder(Entry).decode


class Left(NamedTuple):
    """A message that ended, is not kept, and still has its record: somebody stopped before the last step."""

    sequence: int
    record: Record


class Known(NamedTuple):
    """What is known of messages that were announced."""

    records: dict[str, tuple[int, Record]]
    traces: dict[str, float]  # when those without a record ended, as long as that is remembered

    def came_true(self, entry: Entry, id: str) -> bool:
        """Whether it ended as announced. The record of an ended message stays as it is until it is deleted."""
        if id in self.records:
            record = self.records[id][1]
            return record.place == Record.ARCHIVE and record.finished_at == entry.at
        return not entry.fresh and self.traces.get(id, entry.at) == entry.at

    def counts(self, entry: Entry) -> Counts:
        """What an entry counts, with what came true of what it announced."""
        completed, failed = (sum(self.came_true(entry, id) for id in ids) for ids in (entry.completing, entry.failing))
        return Counts(entry.completed + completed, entry.failed + failed)

    def is_over(self, entry: Entry) -> bool:
        """Whether all that was announced has happened: then its client is at nothing, or gone."""
        return all(self.came_true(entry, id) for id in entry.about())

    def leaves(self, entry: Entry) -> bool:
        """Whether records are left that only this entry tells of."""
        return any(id in self.records and self.records[id][1].gone for id in (*entry.about(), *entry.removing))


class Slot:
    """One subject, one writer at a time."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.counts = Counts()
        self.sequence = 0
        self.removing: list[str] = []

    def post(self, ended: Sequence[tuple[str, Record]], *, fresh: bool = False) -> Post:
        """What has been counted, and what is about to end; with nothing to end, just the counts."""
        entry = Entry(
            self.counts.completed,
            self.counts.failed,
            ended[0][1].finished_at if ended else 0.0,
            [id for id, record in ended if record.status == "completed"],
            [id for id, record in ended if record.status == "failed"],
            fresh,
            self.removing,
        )
        return Post(self.subject, msgspec.json.encode(entry), "", self.sequence)


class Counters:
    """The counts of this client for one queue."""

    def __init__(
        self, connection: Connection, reader: Reader, stream: str, subject: str, *, records: Records, traces: Traces
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._stream = stream
        self._subject = subject
        self._records = records
        self._traces = traces
        self._free: list[Slot] = []

    def take(self) -> Slot:
        """A slot of our own; `give_back` it. One that is not given back stays as it is."""
        return self._free.pop() if self._free else Slot(self._subject + os.urandom(6).hex())

    def give_back(self, slot: Slot) -> None:
        slot.removing = []
        self._free.append(slot)

    async def count(self, slot: Slot, more: Counts, sequence: int | None, *, sure: bool) -> Slot:
        """Remember what ended, announced as this sequence; unless all of that came true (`sure`) it is written down."""
        if sequence is None:  # another has folded the slot
            removing, slot, sure = slot.removing, Slot(self._subject + os.urandom(6).hex()), False
            slot.removing = removing
        slot.counts, slot.sequence = slot.counts.plus(more), sequence or 0
        if not sure:
            slot.sequence = (await self._connection.store([slot.post([])]))[0]
        return slot

    # ------------------------------------------------------------------ reading

    async def read(self) -> tuple[Counts, int, dict[str, Left]]:
        """The sum over all clients, of how many subjects, and what is left of messages that are not kept."""
        found = await self._reader.last(self._stream, [f"{self._subject}*"])
        entries = [_entry(one) for one in found.values()]
        known, total = await self._known(entries), Counts()
        for entry in entries:
            total = total.plus(known.counts(entry))
        left = {id: Left(sequence, record) for id, (sequence, record) in known.records.items() if record.gone}
        return total, len(found), left

    async def _known(self, entries: Iterable[Entry]) -> Known:
        announced = list(dict.fromkeys(id for entry in entries for id in entry.about()))
        ids = list(dict.fromkeys([*announced, *(id for entry in entries for id in entry.removing)]))
        records = await self._records(ids) if ids else {}
        unrecorded = [id for id in announced if id not in records]
        return Known(records, await self._traces(unrecorded) if unrecorded else {})

    # ------------------------------------------------------------------ maintenance

    async def maintain(self) -> int:
        """Write down what can only be read for a while, and fold slots; how many."""
        found = await self._reader.last(self._stream, [f"{self._subject}*"])
        slots = [(one, _entry(one)) for one in found.values()]
        known, before = await self._known([entry for _, entry in slots]), self._connection.now() - TRACE_S
        mended = 0
        for one, entry in slots:
            if 0.0 < entry.at < before and not (known.is_over(entry) or known.leaves(entry)):  # its client was killed
                clean = msgspec.json.encode(known.counts(entry))
                mended += await self._replace([Post(one.subject, clean, "", one.sequence)]) is not None
        return mended or await self._fold(found.pop(f"{self._subject}sum", None), slots, known)

    async def _fold(self, old: Found | None, slots: Sequence[tuple[Found, Entry]], known: Known) -> int:
        """Many slots into one, since clients come and go; how many. Their owners, if they live, take fresh ones."""
        others = [(one, entry) for one, entry in slots if one != old and _is_idle(known, entry)][:WINDOW]
        if len(others) <= _SLOTS:
            return 0
        total = known.counts(_entry(old)) if old else Counts()
        for _, entry in others:
            total = total.plus(known.counts(entry))
        zero = msgspec.json.encode(Entry())
        posts = [Post(f"{self._subject}sum", msgspec.json.encode(total), "", old.sequence if old else 0)]
        posts += [Post(one.subject, zero, "", one.sequence) for one, _ in others]
        if (stored := await self._replace(posts)) is None:
            return 0  # one of them was counting just now; the next time is soon
        for sequence in stored[1:]:
            await self._connection.api(f"STREAM.MSG.DELETE.{self._stream}", {"seq": sequence, "no_erase": True})
        return len(others)

    async def _replace(self, posts: Sequence[Post]) -> list[int] | None:
        """Their sequences; None: another wrote one of them since we looked."""
        with Ignored(Code.WRONG_SEQUENCE):
            return await self._connection.store(posts)
        return None


def _is_idle(known: Known, entry: Entry) -> bool:
    return known.is_over(entry) and not known.leaves(entry)


def _entry(found: Found) -> Entry:
    """What a client counted is lost with its entry."""
    return found.note(read_entry) or Entry()
