"""The log engine under data pipelines: the methods of `stores/batches.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ....config import StoreOptions
from ....ids import Ids
from ...batches import WHOLE, Batch, ConsumerInfo, Filter, Ownership, Sizing, Slice, Staged, Stager
from ...records import View
from .. import pin, queues
from ..partition import Log
from ..queue_view import Finder
from ..space import Space, Transaction
from . import scan
from .consume import Consuming
from .scan import SliceReader
from .stage import Publishing

if TYPE_CHECKING:
    import pyarrow as pa


class LogBatches:
    """See `stores/batches.py` for the promises."""

    def __init__(
        self,
        space: Space,
        finder: Callable[[str], Finder],
        fresh: Callable[[str], Awaitable[Finder]],
        log: Callable[[str], Log],
        options: StoreOptions,
    ) -> None:
        self._space = space
        self.deduplicates = not space.request_costs
        self._fresh = fresh
        self._log = log
        self._timeout = options.operation_timeout
        self._reader = SliceReader(space, finder, timeout=self._timeout)
        self._publishing = Publishing(space, log, Ids())
        self._consuming = Consuming(space, log, poll_interval=options.poll_interval, timeout=self._timeout)

    async def plan_scan(
        self, queue: str, view: View, *, filters: Sequence[Filter] = (), sizing: Sizing = WHOLE
    ) -> list[Slice]:
        finder = await self._fresh(queue)
        if view == "archive":
            await self._space.transact(partial(_pin, queue), deadline=self._timeout)
        plan = await self._space.read(scan.plan_of(finder, view, filters), deadline=self._timeout)
        return plan.slices(queue, view, sizing)

    def read_slice(
        self, part: Slice, *, filters: Sequence[Filter] = (), lenient: bool = False, only: Sequence[str] | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        return self._reader.read(part, filters, lenient=lenient, only=only)

    # Claim batches.

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
        holders = (holder,) if instead_of is None else (holder, instead_of)
        return await self._consuming.own(queue, consumer, holders=holders, lease=lease, release_after=release_after)

    async def beat(self, owner: Ownership, lease: float) -> None:
        await self._consuming.beat(owner, lease)

    async def claim_batch(self, owner: Ownership, *, after: int, limit: int, wait: float = 0.0) -> Batch | None:
        return await self._consuming.claim(owner, after=after, limit=limit, wait=wait)

    async def settle_batch(self, owner: Ownership, upto: int) -> int:
        return await self._consuming.settle(owner, upto)

    async def manifest(
        self, owner: Ownership, after: int, upto: int, *, sizing: Sizing = WHOLE
    ) -> tuple[list[Batch], list[Slice]]:
        return await self._consuming.manifest(owner, after, upto, sizing=sizing)

    # Staged writes.

    async def stager(self, queue: str) -> Stager:
        return await self._publishing.stager(queue)

    async def published(self, queue: str, sink: str) -> int | None:
        return await self._publishing.published(queue, sink)

    async def publish(self, queue: str, sink: str | None, batch: int, staged: Sequence[Staged]) -> bool:
        limit = (await self._space.read(lambda view: queues.read(view, queue))).options.max_messages
        room = None
        if limit is not None:
            finder = await self._fresh(queue)
            stats = await self._space.read(finder.stats, deadline=self._timeout)
            room = limit - stats.pending - stats.delayed - stats.processing - stats.retry
        return await self._publishing.publish(queue, sink, batch, staged, room=room)

    async def sweep(self, queue: str, older_than: float) -> int:
        return await self._log(queue).window.sweep_staged(older_than)

    # Upkeep.

    async def consumers(self, queue: str) -> list[ConsumerInfo]:
        return await self._consuming.all(queue)

    async def release(self, queue: str, consumer: str, *, force: bool = False) -> int:
        return await self._consuming.release(queue, consumer, force=force)

    async def maintain(self, queue: str) -> dict[str, int]:
        """What of a queue's upkeep is about pipelines."""
        return {"released": await self._consuming.maintain(queue)}


def _pin(queue: str, tx: Transaction) -> None:
    pin.pin(tx, queues.address(queue).root(queues.read(tx, queue)))
