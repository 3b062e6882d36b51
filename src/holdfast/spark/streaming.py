"""The stream source: one micro-batch is one claim batch, durable in the store and the same until it is settled.

Spark's commit log is ahead of ours: when it asks for what comes after an offset, everything up to it is done for good.
That is when we settle. `commit` comes too late to rely on, and not at all after the last batch of a run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ..errors import HoldfastError, StoreError
from ..escaping import logger_named
from ..stores.base import LOOK_AGAIN_S
from ..stores.batches import Batch, BatchLost, ConsumerInfo, Ownership
from ..stores.consumers import NEW_CHECKPOINT
from . import receipts, schema
from .error_text import plain
from .link import Link, link
from .options import Streaming
from .owning import Owner
from .reading import SlicePartition

if TYPE_CHECKING:
    import pyarrow as pa

logger = logger_named("holdfast.spark")
OFFSET_FORMAT = 1  # of the offsets in checkpoints
_LAG_S = 5.0  # a count of the queue is believed so long: on a bucket it costs requests
Offset = dict[str, Any]


def offset(consumer: str, generation: int, count: int, seq: int) -> Offset:
    """The one place where an offset is made: Spark compares the text of its JSON."""
    return {"c": consumer, "g": generation, "n": count, "seq": seq, "v": OFFSET_FORMAT}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Claims on the driver, reads on executors. Pickled to executors before it owns anything."""

    def __init__(self, options: Streaming, wanted: StructType) -> None:
        schema.check(wanted, schema.of_stream(receipts=options.receipts), "the stream")
        self._options = options
        self._wanted = wanted
        self._owner: Owner | None = None
        self._left: int | None = None  # messages an availableNow run may still claim
        self._claimed = 0  # the last batch claimed before that run: not one of them
        self._lag: tuple[float, Offset] | None = None

    def _owned(self) -> Ownership:
        if self._owner is None:
            self._owner = Owner(link(self._options.place.url), self._options)
        return self._owner.ownership

    @plain
    def initialOffset(self) -> Offset:
        """Where a new checkpoint begins."""
        owned = self._owned()
        if owned.done and not self._options.new_checkpoint:
            raise StoreError(
                f"the checkpoint is new, and consumer {owned.consumer!r} of queue {owned.queue!r} stands at batch "
                f"{owned.done} ({owned.total} messages settled). If the checkpoint was lost or moved, bring it back. "
                f'{NEW_CHECKPOINT}; then set option("newCheckpoint", "true") until its first batch is done'
            )
        return offset(owned.consumer, owned.generation, owned.total, owned.done)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.limit)

    @plain
    def prepareForTriggerAvailableNow(self) -> None:
        at = link(self._options.place.url)
        self._owned()
        known = self._known(at)
        self._claimed = known.done + known.batches
        self._left = at.run(at.store.stats(self._options.place.named)).pending

    @plain
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Settle up to `start`, then claim what comes next."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.limit
        return self.advanced(start, most, wait=LOOK_AGAIN_S)

    def advanced(self, start: Offset, most: int, *, wait: float) -> Offset:
        """The offset after the next batch, of so many messages, waited for so long; `start` when there is none."""
        if self._left is not None:
            most, wait = min(most, self._left), 0.0
        claimed = self._claim(self._checked(start), start["seq"], max(0, most), wait)
        if claimed is None:
            if self._left is not None:  # the run ends here, and with it this process
                self._flush()
            return start
        if self._left is not None and claimed.seq > self._claimed:  # what a crash left was not counted as ready
            self._left -= claimed.count
        return offset(self._options.consumer, claimed.generation, claimed.total, claimed.seq)

    def _claim(self, owned: Ownership, after: int, most: int, wait: float) -> Batch | None:
        at = link(self._options.place.url)
        try:
            claimed = at.run(at.batches.claim_batch(owned, after=after, limit=most, wait=wait))
        except BatchLost as error:
            if not self._options.lenient:
                raise
            logger.warning("%s", error)
            known = self._known(at)
            owned = replace(owned, generation=known.generation)
            claimed = at.run(at.batches.claim_batch(owned, after=known.done, limit=most, wait=wait))
        return claimed

    def _known(self, at: Link) -> ConsumerInfo:
        """The consumer as the store has it, once it is owned."""
        found = at.run(at.batches.consumers(self._options.place.named))
        return next(each for each in found if each.consumer == self._options.consumer)

    def _flush(self) -> None:
        """Archive what the last batch ended."""
        at = link(self._options.place.url)
        at.run(at.batches.flush(self._options.place.named))

    @plain
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Look the batches up and cut them; nothing is claimed here, so that a replay reads the same rows."""
        if start == end:
            return []
        owned = self._checked(end)
        at = link(self._options.place.url)
        after = start["seq"] if start["g"] == end["g"] else end["seq"] - 1
        try:
            batches, slices = at.run(at.batches.manifest(owned, after, end["seq"], sizing=self._options.sizing))
        except BatchLost as error:
            if not self._options.lenient:
                raise
            logger.warning("%s", error)
            return []
        for each in batches:
            self._check_tries(each)
        return [SlicePartition(each, []) for each in slices]

    @plain
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SlicePartition)
        fitting = schema.Fitting(self._wanted)
        at = link(self._options.place.url)
        wants = schema.RECEIPT in self._wanted.names
        only = [*self._wanted.names, *(receipts.MADE_OF if wants else ())]
        for batch in at.each(at.batches.read_slice(partition.slice, lenient=self._options.lenient, only=only)):
            yield fitting.fit(receipts.added(batch) if wants else batch)

    @plain
    def commit(self, end: Offset) -> None:
        at = link(self._options.place.url)
        at.run(at.batches.settle_batch(self._checked(end), end["seq"]))

    @plain
    def reportLatestOffset(self) -> Offset | None:
        """Where the consumer would stand with everything that is ready: its distance is the lag."""
        now = time.monotonic()
        if self._lag is None or now - self._lag[0] > _LAG_S:
            self._owned()
            at = link(self._options.place.url)
            ready = at.run(at.store.stats(self._options.place.named)).pending
            known = self._known(at)
            seq = known.done + known.batches
            self._lag = (now, offset(known.consumer, known.generation, known.total + known.claimed + ready, seq))
        return self._lag[1]

    def stop(self) -> None:
        if self._owner is not None:
            self._owner.give_up()

    def _checked(self, given: Offset) -> Ownership:
        """The ownership as an offset of the checkpoint speaks of it."""
        name = self._options.consumer
        if given.get("v") != OFFSET_FORMAT or given.get("c") != name:
            whose = f"{given.get('c', 'another source')!r} (version {given.get('v')})"
            raise StoreError(
                f"the checkpoint belongs to {whose}, this query reads as consumer {name!r} (version {OFFSET_FORMAT}): "
                f"use the consumer of the checkpoint, or the checkpoint of the consumer. {NEW_CHECKPOINT}"
            )
        return replace(self._owned(), generation=given["g"])

    def _check_tries(self, batch: Batch) -> None:
        name, queue, most = self._options.consumer, self._options.place.named, self._options.most_tries
        if batch.tries > most:
            raise StoreError(
                f"batch {batch.seq} of consumer {name!r} on queue {queue!r} ({batch.count} messages) has been tried "
                f"{batch.tries - 1} times without success, and maxBatchAttempts is {most}. Mend the query, then raise "
                f"maxBatchAttempts; or give its messages back (`holdfast pipeline release {queue} {name}`), which ends "
                f"the use of this checkpoint. {NEW_CHECKPOINT}"
            )


class Refused(DataSourceStreamReader):
    """Instead of a reader that could not be made: the first call says why."""

    def __init__(self, error: HoldfastError) -> None:
        self._error = error

    @plain
    def initialOffset(self) -> Offset:
        raise self._error

    @plain
    def getDefaultReadLimit(self) -> ReadLimit:
        raise self._error

    @plain
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        raise self._error

    @plain
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error
