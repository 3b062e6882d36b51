"""Batches of messages added to a table of their fields, each message once: what executors do, and the commit.

A batch of a writer has a number, and its commit leaves the number behind (a `txn` action). A number that is not above
the last one, or the first of a writer, may be of a batch that was added before, or partly, or by a job that is gone:
then rows whose messages the table has are left out, by their ids. So no checkpoint has to be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import msgspec

from ... import config
from ...errors import CodecError, ConfigError
from ...stores.base import PAGE_ROWS
from ..error_text import plain
from ..link import link
from ..receipts import settled
from ..schema import RECEIPT
from . import delta, parquet, typed
from .delta import Bounds, Change, File, LakeConflict
from .parquet import ParquetState, ParquetTable
from .place import Place, open_place
from .typed import Layout
from .writing import MESSAGE_ID, Writer

if TYPE_CHECKING:
    import pyarrow as pa

Format: TypeAlias = Literal["delta", "parquet"]
WRITTEN = "written string"  # what tasks answer: a `Written` each, as JSON
JOB_TRIES = 3  # of a batch whose commit lost a race; then somebody should look


class Written(msgspec.Struct, frozen=True):
    """What a task did."""

    files: list[File] = []
    dead: int = 0  # messages that became dead letters
    known: int = 0  # messages that the table had already


class Added(msgspec.Struct, frozen=True):
    """What a batch became."""

    rows: int
    dead: int
    known: int
    files: int


class Order(msgspec.Struct, frozen=True):
    """What every task of a batch needs to know."""

    place: str  # where files are written
    table: str  # where those lie that it has
    partitions: tuple[str, ...]
    known: list[Bounds]  # files in which its messages may be already


class TableTask:
    """For `mapInArrow` over messages: readable ones become rows of files, the others dead letters."""

    def __init__(self, layout: Layout, order: Order, *, url: str | None) -> None:
        self._layout, self._order, self._url = layout, order, url

    @plain
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        place = open_place(self._order.place)
        writer, table = Writer(place, self._order.partitions), _Known(self._order)
        dead = known = 0
        try:
            for messages in self.messages(batches):
                new = table.without(messages)
                known += messages.num_rows - new.num_rows
                made = self._layout.made(new)
                dead += self._bury(new, made.bad)
                writer.write(made.rows)
            files = writer.close()
        except BaseException:
            writer.abandon()
            raise
        text = msgspec.json.encode(Written(files, dead, known)).decode()
        yield pa.RecordBatch.from_arrays([pa.array([text], pa.string())], names=["written"])

    def messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The messages that come in."""
        yield from batches

    def _bury(self, messages: pa.RecordBatch, bad: Sequence[tuple[int, str]]) -> int:
        if not bad:
            return 0
        if RECEIPT not in messages.schema.names:
            at, reason = bad[0]
            raise CodecError(f"message {messages['id'][at]}: {reason}")
        receipts, queues = messages[RECEIPT].to_pylist(), messages["queue"].to_pylist()
        rows = [(receipts[at], queues[at], reason) for at, reason in bad]
        store, pages = link(self._url), range(0, len(rows), PAGE_ROWS)
        return sum(store.run(settled(store, "dead", rows[start : start + PAGE_ROWS])) for start in pages)


class _Known:
    """The messages that a table has, as far as a batch asks for them."""

    def __init__(self, order: Order) -> None:
        self._files = order.known
        self._place = open_place(order.table)

    def without(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Those that are not rows yet."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not (self._files and messages.num_rows):
            return messages
        ids = messages["id"].cast(pa.string())
        span = pc.min_max(ids).as_py()
        for file in self._files:
            if (file.least or span["max"]) <= span["max"] and (file.most or span["min"]) >= span["min"]:
                there = pc.is_in(ids, self._ids(file.path, span["min"], span["max"]))
                messages, ids = messages.filter(pc.invert(there)), ids.filter(pc.invert(there))
        return messages

    def _ids(self, path: str, least: str, most: str) -> pa.Array:
        import pyarrow.parquet as pq

        wanted = [(MESSAGE_ID, ">=", least), (MESSAGE_ID, "<=", most)]
        source = self._place.source(path)
        return pq.read_table(source, columns=[MESSAGE_ID], filters=wanted, partitioning=None)[
            MESSAGE_ID
        ].combine_chunks()


class TypedTable:
    """A table of a queue's fields at its place. Opening makes nothing."""

    def __init__(self, place: Place, layout: Layout, *, format: Format = "delta") -> None:
        if format not in get_args(Format):
            raise ConfigError(config.unknown("format: unknown format", format, get_args(Format)))
        self.place, self.layout = place, layout
        self._table = (delta.Table if format == "delta" else ParquetTable)(place, layout.spec)

    def check(self) -> None:
        """That what lies there, if anything, is such a table; ConfigError."""
        other = "Delta" if isinstance(self._table, ParquetTable) else "Parquet"
        if self.place.names(delta.LOG) if other == "Delta" else parquet.is_one(self.place):
            raise ConfigError(f"{self.place.shown} is a {other} table: say so with the format")
        state = self._table.state()
        if state.version < 0:
            return
        if found := typed.differences(state.schema, self.layout.spec.text):
            raise ConfigError(f"{self.place.shown} is not a table of this type: {found}")

    @property
    def version(self) -> int:
        return self._table.state().version

    def add(self, writer: str, number: int, do: Callable[[Order], list[Written]]) -> Added:
        """A batch of a writer; `do` has executors write its files."""
        for _ in range(JOB_TRIES):
            state = self._table.state()
            last = state.mark(writer)
            known = [] if last is not None and last < number else state.bounds(MESSAGE_ID)
            folder = self._table.staged(writer) if isinstance(self._table, ParquetTable) else ""
            place = self.place.below(folder) if folder else self.place
            written = do(Order(place.text, self.place.text, self.layout.partitions, known))
            files = tuple(file for each in written for file in each.files)
            had = sum(each.known for each in written)
            # A store that was taken back to an earlier day comes with numbers and messages of that day.
            mark = number if not had else max(number, last or 0)
            try:
                self._commit(state, Change("WRITE", add=files, marks={writer: mark}), folder)
            except LakeConflict as error:
                conflict = error
                for file in files:
                    place.delete(file.path)
                continue
            return Added(sum(file.rows for file in files), sum(each.dead for each in written), had, len(files))
        raise conflict

    def _commit(self, state: delta.State | ParquetState, change: Change, folder: str) -> None:
        if not change.add:
            return
        if isinstance(self._table, ParquetTable):
            assert isinstance(state, ParquetState)
            self._table.commit(state, change, folder=folder)
        else:
            assert isinstance(state, delta.State)
            self._table.commit(state, change)
