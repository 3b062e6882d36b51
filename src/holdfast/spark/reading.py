"""Batch reads: one pinned snapshot of a view, in slices that executors read from the store themselves."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.datasource import Filter as SparkFilter
from pyspark.sql.types import StructType

from .. import queue_reports
from ..errors import QueueNotFound
from ..stores.batches import Filter, Slice, columns, may_pass
from . import pushdown, schema
from .error_text import plain
from .link import Link, link
from .options import Place, Reading

if TYPE_CHECKING:
    import pyarrow as pa


class SlicePartition(InputPartition):
    """A slice of a plan, for one task."""

    def __init__(self, slice: Slice, filters: list[Filter]) -> None:
        self.slice = slice
        self.filters = filters


class SummaryPartition(InputPartition):
    """Rows of a view of whole queues, taken when the read was planned."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows


class Reader(DataSourceReader):
    """Reads one view of some queues, or of all of them. Pickled to executors, so it holds nothing open."""

    def __init__(self, options: Reading, wanted: StructType) -> None:
        schema.check(wanted, schema.of_read(options), f"the view {options.summary or options.view}")
        self._options = options
        self._wanted = wanted
        self._filters = list(options.filters)

    @plain
    def partitions(self) -> list[InputPartition]:
        at = link(self._options.place.url)
        names = at.run(_queues(at, self._options.place.queues, self._filters))
        if self._options.summary:
            return [SummaryPartition(at.run(_SUMMED[self._options.summary](at, names)))]
        found: list[InputPartition] = []
        for name in names:
            plan = at.batches.plan_scan(name, self._options.view, filters=self._filters, sizing=self._options.sizing)
            found += [SlicePartition(each, self._filters) for each in at.run(plan)]
        return found

    @plain
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        fitting = schema.Fitting(self._wanted)
        if isinstance(partition, SummaryPartition):
            yield fitting.rows(partition.rows)
        elif isinstance(partition, SlicePartition):  # Spark makes an empty one of no partitions
            at = link(self._options.place.url)
            batches = at.batches.read_slice(
                partition.slice, filters=partition.filters, lenient=self._options.lenient, only=self._wanted.names
            )
            for batch in at.each(batches):
                if batch.num_rows:
                    yield fitting.fit(batch)


class PushingReader(Reader):
    """The same when Spark asks what filters the source can apply."""

    def pushFilters(self, filters: list[SparkFilter]) -> Iterable[SparkFilter]:
        known = ("queue",) if self._options.summary else columns(self._options.view)
        for each in filters:
            found = pushdown.ours(each, known)
            if found is None:
                yield each
            else:
                self._filters.append(found)


def check(place: Place) -> None:
    """Open the store and look for the queue; QueueNotFound, Unavailable."""
    at = link(place.url)
    at.run(_queues(at, place.queues, []))


def reader(options: Reading, wanted: StructType) -> Reader:
    return (PushingReader if pushdown.asked() else Reader)(options, wanted)


async def _queues(at: Link, named: Sequence[str], filters: list[Filter]) -> list[str]:
    """The queues to read: the named ones, or all; those of them that can pass."""
    for name in named:
        if await at.store.queue(name) is None:
            raise QueueNotFound(f"there is no queue {name!r} to read")
    names = named or [info.name for info in await at.store.queues()]
    return [each for each in names if may_pass(filters, "queue", each, each)]


async def _stats(at: Link, names: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for name in names:
        counts = msgspec.structs.asdict(await at.store.stats(name))
        found.append({"queue": name, **counts, "at": round(await at.store.clock() * 1e6)})
    return found


async def _consumers(at: Link, names: Sequence[str]) -> list[dict[str, Any]]:
    found = [msgspec.structs.asdict(each) for each in await queue_reports.consumers(at.broker, names)]
    now = round(await at.store.clock() * 1e6)
    return [{**each, "at": now} for each in found]


_SUMMED: dict[str, Callable[[Link, Sequence[str]], Coroutine[Any, Any, list[dict[str, Any]]]]] = {
    "stats": _stats,
    "consumers": _consumers,
}
