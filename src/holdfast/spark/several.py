"""A stream of several queues: each has a claim batch of its own, an offset names the batches of all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ..errors import StoreError
from ..stores.base import LOOK_AGAIN_S
from ..stores.consumers import NEW_CHECKPOINT
from .error_text import plain
from .options import Streaming
from .streaming import OFFSET_FORMAT, Offset, StreamReader, offset

if TYPE_CHECKING:
    import pyarrow as pa


def together(consumer: str, parts: dict[str, Offset]) -> Offset:
    """The one place where such an offset is made: Spark compares the text of its JSON."""
    queues = {name: [part["g"], part["n"], part["seq"]] for name, part in parts.items()}
    return {"c": consumer, "n": sum(part["n"] for part in parts.values()), "q": queues, "v": _format()}


def _format() -> int:
    """Of such offsets in checkpoints: the one after that of a single queue, whose reader refuses them."""
    return OFFSET_FORMAT + 1


class SeveralReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One reader for each queue, in the order of their names."""

    def __init__(self, options: Streaming, wanted: StructType) -> None:
        self._options = options
        self._readers = {
            name: StreamReader(replace(options, place=replace(options.place, queues=(name,))), wanted)
            for name in sorted(options.place.queues)
        }

    @plain
    def initialOffset(self) -> Offset:
        return together(self._options.consumer, {name: each.initialOffset() for name, each in self._readers.items()})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.limit)

    @plain
    def prepareForTriggerAvailableNow(self) -> None:
        for each in self._readers.values():
            each.prepareForTriggerAvailableNow()

    @plain
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The next batch of every queue that has one, an equal share of the rows each. When none has, they are waited
        for in turn: a message that comes to another meanwhile waits for up to a second."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.limit
        share = -(-most // len(self._readers))
        before = self._parts(start)
        after = {name: each.advanced(before[name], share, wait=0.0) for name, each in self._readers.items()}
        if after == before:
            turn = LOOK_AGAIN_S / len(self._readers)
            for name, each in self._readers.items():
                after[name] = each.advanced(before[name], share, wait=turn)
                if after[name] != before[name]:
                    break
        return start if after == before else together(self._options.consumer, after)

    @plain
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        first, last = self._parts(start), self._parts(end)
        return [part for name, each in self._readers.items() for part in each.partitions(first[name], last[name])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A slice says of which queue it is."""
        return next(iter(self._readers.values())).read(partition)

    @plain
    def commit(self, end: Offset) -> None:
        for name, part in self._parts(end).items():
            self._readers[name].commit(part)

    @plain
    def reportLatestOffset(self) -> Offset | None:
        found = {name: each.reportLatestOffset() for name, each in self._readers.items()}
        return together(self._options.consumer, {name: part for name, part in found.items() if part is not None})

    def stop(self) -> None:
        for each in self._readers.values():
            each.stop()

    def _parts(self, given: Offset) -> dict[str, Offset]:
        """The offsets of the queues; StoreError when the checkpoint is of others."""
        of = given.get("q", {})
        if given.get("v") != _format() or sorted(of) != list(self._readers):
            was = ", ".join(of) or "one queue"
            raise StoreError(
                f"the checkpoint is of {was}, this query reads {', '.join(self._readers)}: name the same queues, or "
                f"give the query a new checkpoint. {NEW_CHECKPOINT}"
            )
        name = given.get("c", "")
        return {queue: offset(name, generation, count, seq) for queue, (generation, count, seq) in of.items()}
