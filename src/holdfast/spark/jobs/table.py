"""`holdfast pipeline table`: a queue becomes a table of its typed fields, each message one row.

There is no checkpoint. The store keeps which batch was claimed, the table which one was added; a batch is settled after
its commit. So a run that was killed anywhere goes on where both say.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ... import config
from ...stores.base import LOOK_AGAIN_S
from ...stores.batches import Batch, Ownership, Slice
from .. import options
from ..lake.adding import Added, Format, Order, TableTask, TypedTable, Written
from ..lake.place import open_place
from ..lake.typed import KEPT, Layout
from ..link import Link, link
from ..options import Streaming
from ..owning import Owner
from ..receipts import MADE_OF
from ..receipts import added as with_receipts
from ..tables import written
from .handler import named
from .progress import Progress, Tell, silent
from .store import place_of, queues_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class TableSummary(msgspec.Struct, frozen=True):
    """What a run of `table` did."""

    table: str
    version: int
    rows: int  # added
    dead: int  # messages that could not be read: dead letters now
    known: int  # messages that were in the table before: a run was killed after its commit
    batches: int
    files: int
    consumer: str
    seconds: float


def table(
    spark: SparkSession,
    queue: str,
    table: str | os.PathLike[str],
    type: Any,
    *,
    url: str | None = None,
    consumer: str | None = None,
    keep: Sequence[str] = KEPT,
    by_day: bool = False,
    format: Format = "delta",
    batch: int = options.TRIGGER_ROWS,
    tasks: int | None = None,
    seconds: float | None = None,
    forever: bool = False,
    tell: Tell = silent,
) -> TableSummary:
    """Move what is ready in a queue into a table; with `forever` also what comes, until `seconds` are over or it is
    stopped.

    `type` is what a typed queue takes, or `"MODULE:TYPE"`. Messages that cannot be read become dead letters; all others
    are completed when they are rows. `consumer` is the name under which the store keeps what the job has claimed:
    without one it is made of the table's place. Two jobs at once on one table need a name each.
    """
    if seconds is not None:
        config.positive("seconds", seconds)
    layout = Layout(named(type) if isinstance(type, str) else type, keep=keep, by_day=by_day)
    made = TypedTable(open_place(table), layout, format=format)
    name = consumer or f"table-{hashlib.blake2b(made.place.text.encode(), digest_size=6).hexdigest()}"
    said = {"url": url, "queue": queue, "consumer": name, "maxMessagesPerTrigger": batch, "minPartitions": tasks}
    asked = options.streaming({option: str(value) for option, value in said.items() if value is not None})
    queues_of(url, [queue])
    made.check()
    started = time.monotonic()
    run = _Run(spark, made, asked)
    did = run.all(until=None if seconds is None else started + seconds, forever=forever, tell=tell)
    told = (made.place.shown, made.version, did.rows, did.dead, did.known, run.batches, did.files, name)
    return TableSummary(*told, time.monotonic() - started)


class _Run:
    """One owner, batch after batch."""

    def __init__(self, spark: SparkSession, table: TypedTable, asked: Streaming) -> None:
        self._spark, self._table, self._asked = spark, table, asked
        self._at: Link = link(asked.place.url)
        self._queue = asked.place.named
        self._writer = f"holdfast/table/{place_of(asked.place.url)}#{self._queue}/{asked.consumer}"
        self._did = Added(0, 0, 0, 0)
        self.batches = 0

    def all(self, *, until: float | None, forever: bool, tell: Tell) -> Added:
        """Batches until nothing is left of what was ready, or it is time."""
        owner = Owner(self._at, self._asked)
        try:
            self._batches(owner.ownership, until=until, forever=forever, tell=tell)
        finally:
            owner.give_up()
        return self._did

    def _batches(self, owned: Ownership, *, until: float | None, forever: bool, tell: Tell) -> None:
        done, started = owned.done, time.monotonic()
        left = None if forever else self._ready()
        orphans = self._orphans(owned)  # of a run that was killed: they come first, and were not counted as ready
        while until is None or time.monotonic() < until:
            limit = self._asked.limit if orphans or left is None else min(self._asked.limit, left)
            batch = self._claim(owned, done, limit, wait=LOOK_AGAIN_S if forever else 0.0)
            if batch is None and not forever:
                break
            if batch is None:
                continue
            self._add(owned, batch)
            done = batch.seq
            if left is not None and not orphans:
                left -= batch.count
            orphans = max(0, orphans - 1)
            count = self._did.rows + self._did.dead
            total = None if left is None else count + left
            tell(Progress(f"table {self._queue}", count, total, count / (time.monotonic() - started)))
        self._at.run(self._at.batches.settle_batch(owned, done))
        self._at.run(self._at.batches.flush(self._queue))

    def _ready(self) -> int:
        return self._at.run(self._at.store.stats(self._queue)).pending

    def _orphans(self, owned: Ownership) -> int:
        found = self._at.run(self._at.batches.consumers(self._queue))
        return next(each.batches for each in found if each.consumer == owned.consumer)

    def _claim(self, owned: Ownership, after: int, limit: int, *, wait: float) -> Batch | None:
        return self._at.run(self._at.batches.claim_batch(owned, after=after, limit=max(0, limit), wait=wait))

    def _add(self, owned: Ownership, batch: Batch) -> None:
        manifest = self._at.batches.manifest(owned, batch.seq - 1, batch.seq, sizing=self._asked.sizing)
        slices = [(msgspec.msgpack.encode(each),) for each in self._at.run(manifest)[1]]
        url, layout = self._asked.place.url, self._table.layout

        def do(order: Order) -> list[Written]:
            if not slices:
                return []
            rows = self._spark.createDataFrame(slices, "slice binary").repartition(len(slices))
            return written(rows, SliceTask(layout, order, url=url))

        one = self._table.add(self._writer, batch.seq, do)
        pairs = zip(msgspec.structs.astuple(self._did), msgspec.structs.astuple(one), strict=True)
        self._did = Added(*map(sum, pairs))
        self.batches += 1


class SliceTask(TableTask):
    """Executors read the messages themselves: nothing passes through the JVM."""

    def messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        at, only = link(self._url), [*self._layout.needs, "queue", *MADE_OF]
        for batch in batches:
            for data in batch["slice"].to_pylist():
                part = msgspec.msgpack.decode(data, type=Slice)
                for rows in at.each(at.batches.read_slice(part, only=list(dict.fromkeys(only)))):
                    yield with_receipts(rows)
