"""The second seam: what a data pipeline needs of a store. Columns of many messages, planned once and read anywhere.

A plan pins what a read will give; its slices are small, can be pickled, and are read by other processes, each with a
store of its own. `stores/base.py` has the first seam, message by message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from ..errors import ConfigError, Fenced, StoreError
from . import history
from .base import Store
from .records import View

if TYPE_CHECKING:
    import pyarrow as pa

VIEWS: tuple[View, ...] = ("ready", "delayed", "processing", "retry", "dead", "archive")
SETTLED: tuple[View, ...] = ("dead", "archive")

BASE = ("id", "queue", "value", "content_type", "headers", "priority", "attempt", "max_attempts", "enqueued_at")
_OPEN = (*BASE, "visible_at", "error")
_HELD = (*_OPEN, "worker")
_ENDED = (*BASE, "status", "attempts", "claimed_at", "finished_at", "worker", "result", "error", "expires", "history")


def columns(view: View) -> tuple[str, ...]:
    """The columns of a view, in order."""
    return _ENDED if view in SETTLED else _HELD if view == "processing" else _OPEN


def arrow_type(column: str) -> Any:
    """The Arrow type of a column, the same in every view and store."""
    import pyarrow as pa

    if column.endswith("_at") or column == "expires":
        return pa.timestamp("us", tz="UTC")
    if column in ("priority", "attempt", "attempts", "max_attempts"):
        return pa.int32()
    if column in ("value", "result"):
        return pa.binary()
    if column == "history":
        return history.arrow_type()
    return pa.map_(pa.string(), pa.string()) if column == "headers" else pa.string()


def arrow_schema(view: View) -> Any:
    """What the record batches of a view look like."""
    import pyarrow as pa

    return pa.schema([(name, arrow_type(name)) for name in columns(view)])


# Filters: simple enough that every store can apply them exactly.

Op: TypeAlias = Literal["=", "in", "<", "<=", ">", ">="]
FILTERED = ("queue", "id", "priority", "status", "enqueued_at", "finished_at")


class Filter(msgspec.Struct, frozen=True):
    """A column compared with a value; instants are whole microseconds since 1970. A null never passes."""

    column: str
    op: Op
    value: str | int | list[str] | list[int]

    @property
    def values(self) -> list[str] | list[int]:
        return self.value if isinstance(self.value, list) else [self.value]  # type: ignore[return-value]  # one of them

    def passes(self, value: Any) -> bool:
        """Whether one value passes."""
        return value is not None and self.may_pass(value, value)

    def may_pass(self, low: Any, high: Any) -> bool:
        """Whether anything between the two, both included, can pass."""
        if self.op in ("=", "in"):
            return any(low <= each <= high for each in self.values)
        bound: Any = self.value
        within: dict[str, bool] = {"<": low < bound, "<=": low <= bound, ">": high > bound, ">=": high >= bound}
        return within[self.op]


def may_pass(filters: Sequence[Filter], column: str, low: Any, high: Any) -> bool:
    """Whether rows whose column lies between the two can pass all filters on it."""
    return all(each.may_pass(low, high) for each in filters if each.column == column)


def filtered(batch: pa.RecordBatch, filters: Sequence[Filter]) -> pa.RecordBatch:
    """The rows that pass all filters."""
    import pyarrow as pa
    import pyarrow.compute as pc

    compare = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
    for each in filters:
        column = batch.column(each.column)
        if each.column.endswith("_at"):
            column = column.cast(pa.int64())
        if each.op in ("=", "in"):
            wanted = pa.array(each.values, column.type)
            mask = pc.and_(pc.is_in(column, value_set=wanted), pc.is_valid(column))
        else:
            mask = compare[each.op](column, pa.scalar(each.value, column.type))
        batch = batch.filter(mask)
    return batch


# Plans.


class Slice(msgspec.Struct, frozen=True):
    """A part of a plan for one task: opaque to all but the store that made it.

    `rows` is the most there are (0: not known), `size` an estimate in bytes.
    """

    queue: str
    view: View
    rows: int
    size: int
    body: bytes


class Sizing(msgspec.Struct, frozen=True):
    """How a plan is cut: slices of about so many bytes, and at least so many slices while they are worth a task."""

    target: int = 512 << 20
    least: int = 1
    smallest: int = 4 << 20

    def rows(self, rows: int, size: int) -> int:
        """How many rows a slice should have, of so many that are so large."""
        slices = max(-(-size // self.target), min(self.least, size // self.smallest), 1)
        return -(-rows // slices) or 1


WHOLE = Sizing()


# Claim batches.


class Taken(Fenced):
    """Another owner of the consumer is alive."""

    def __init__(self, message: str, *, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


class BatchLost(StoreError):
    """A checkpoint and the store do not speak of the same batches: going on would lose or repeat messages."""


class Ownership(msgspec.Struct, frozen=True):
    """The right to claim and settle for a consumer, until somebody else takes it over."""

    queue: str
    consumer: str
    generation: int  # changes when the claims of the consumer are released
    epoch: int  # changes with every owner
    done: int  # the last settled batch
    total: int  # messages settled up to it


class Batch(msgspec.Struct, frozen=True):
    """A claim batch: messages leased to `consumer:seq`, the same ones until they are settled."""

    generation: int
    seq: int
    count: int
    total: int  # messages of the consumer up to and including this batch
    tries: int  # how many owners have planned to read it


class Staged(msgspec.Struct, frozen=True):
    """Messages that are durable and invisible, until they are published."""

    queue: str
    root: str  # says which incarnation of the queue
    key: str
    rows: int
    size: int
    keys: list[str | None] | None = None  # dedup keys


class Stager(Protocol):
    """Stages the messages of one task for one queue."""

    async def add(self, batch: pa.RecordBatch) -> None:
        """Rows: `value`, and as far as they are there content_type, headers, priority, deliver_at and dedup_key."""

    async def finish(self) -> list[Staged]:
        """What was staged, once it is durable."""


@runtime_checkable
class Abandoned(Protocol):
    """A stager whose messages are in the way of others until they are published or given up."""

    async def abandon(self) -> None:
        """The task has failed."""


@runtime_checkable
class Discarding(Protocol):
    """The sink of such stagers."""

    async def discard(self, staged: Sequence[Staged]) -> None:
        """The write has failed; what was staged is never published."""


class ConsumerInfo(msgspec.Struct, frozen=True):
    """A consumer as operators see it."""

    queue: str
    consumer: str
    generation: int
    holder: str  # who owns it, or "" when nobody does
    claimed: int  # messages in open batches
    batches: int
    done: int
    total: int
    lease: float  # seconds it has left, 0 when nobody owns it
    tries: int  # of the oldest open batch


class Sink(Protocol):
    """The writing half: messages that tasks stage, and that appear in one step."""

    deduplicates: bool  # whether publishing can look dedup keys up in the same step

    async def stager(self, queue: str) -> Stager:
        """Somewhere to put messages that nobody sees yet."""

    async def published(self, queue: str, sink: str) -> int | None:
        """The last batch that a sink has published."""

    async def publish(self, queue: str, sink: str | None, batch: int, staged: Sequence[Staged]) -> bool:
        """Show staged messages, all in one step, together with the mark that says so.

        False: the sink has published this batch, or a later one, before; nothing changes. QueueFull.
        """

    async def sweep(self, queue: str, older_than: float) -> int:
        """Remove what was staged, and not published, more than so many seconds ago; how many objects or rows."""


class Batches(Sink, Protocol):
    """What a store that serves data pipelines has as its `batches`."""

    async def plan_scan(
        self, queue: str, view: View, *, filters: Sequence[Filter] = (), sizing: Sizing = WHOLE
    ) -> list[Slice]:
        """One snapshot of a view in slices; filters leave out what cannot pass, `read_slice` applies them exactly."""

    def read_slice(
        self, part: Slice, *, filters: Sequence[Filter] = (), lenient: bool = False, only: Sequence[str] | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """The rows of a slice, as the plan saw them, in batches of a few megabytes; `only` these columns are needed.

        Messages that left the queue since are found where they went. What was deleted altogether is a StoreError, or
        left out when `lenient`.
        """

    async def own(
        self,
        queue: str,
        consumer: str,
        *,
        holder: str,
        lease: float,
        release_after: float = 0.0,
        instead_of: str | None = None,
    ) -> Ownership:
        """Become the owner of a consumer, which is made when it is new; Taken while another owner is alive.

        `instead_of` is a holder known to be dead, whose lease counts no more.
        `release_after` seconds without an owner its claims go back to the queue by themselves; 0: never.
        """

    async def beat(self, owner: Ownership, lease: float) -> None:
        """Stay alive for `lease` seconds from now; 0: give the ownership up. Fenced."""

    async def claim_batch(self, owner: Ownership, *, after: int, limit: int, wait: float = 0.0) -> Batch | None:
        """Settle everything up to batch `after`, and claim the next one, or find it where a crash left it; one step.

        None: nothing is ready. Fenced when another has taken over; BatchLost when the checkpoint that says `after`
        and the store do not speak of the same batches; StoreError when a batch up to `after` was never planned by
        `manifest`, so that nobody can have read it.
        """

    async def settle_batch(self, owner: Ownership, upto: int) -> int:
        """Complete the messages of all batches up to this one; how many. Settling again is harmless. Fenced;
        StoreError when one of them was never planned."""

    async def manifest(
        self, owner: Ownership, after: int, upto: int, *, sizing: Sizing = WHOLE
    ) -> tuple[list[Batch], list[Slice]]:
        """The batches above `after` up to `upto`, and their messages in slices; BatchLost when one is not open."""

    async def flush(self, queue: str) -> None:
        """Return when all that has ended is where it stays: in the archive, if the queue keeps one."""

    async def consumers(self, queue: str) -> list[ConsumerInfo]:
        """Everybody who has claimed batches of this queue."""

    async def release(self, queue: str, consumer: str, *, force: bool = False) -> int:
        """Give all claims of a consumer back to the queue, without costing an attempt; how many messages.

        The generation changes, so that checkpoints which know of them fail. Taken while an owner is alive, unless
        forced.
        """


NOT_SERVED = (
    "Spark works on queues in file://, s3:// and postgresql:// stores. NATS takes writes and `process`; SlateDB (one "
    "owner) takes `process`; memory:// (one process) takes nothing. Keep a queue that Spark reads in one of the first, "
    "and move messages over with an ordinary worker"
)


def batches_of(store: Store) -> Batches:
    """The second seam of a store; ConfigError where it has none."""
    if store.batches is None:
        raise ConfigError(NOT_SERVED)
    return store.batches
