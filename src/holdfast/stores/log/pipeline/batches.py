"""The log engine under data pipelines: the methods of `stores/batches.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from ....config import StoreOptions
from ....ids import Ids
from ...batches import WHOLE, Filter, Sizing, Slice, Staged
from ...records import View
from .. import pin, queues
from ..partition import Log
from ..queue_view import Finder
from ..space import Space, Transaction
from . import scan
from .consume import Consuming
from .scan import SliceReader
from .stage import Publishing


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
        self.deduplicates = not space.request_costs  # a bucket cannot look keys up and show messages in one step
        self._fresh = fresh
        self._log = log
        self._timeout = options.operation_timeout
        self.read_slice = SliceReader(space, finder, timeout=self._timeout).read
        publishing = self._publishing = Publishing(space, log, Ids())
        self.stager, self.published = publishing.stager, publishing.published
        consuming = Consuming(space, log, poll_interval=options.poll_interval, timeout=self._timeout)
        self.own, self.beat, self.release = consuming.own, consuming.beat, consuming.release
        self.claim_batch, self.settle_batch = consuming.claim_batch, consuming.settle_batch
        self.manifest, self.consumers, self.give_back = consuming.manifest, consuming.all, consuming.give_back

    async def plan_scan(
        self, queue: str, view: View, *, filters: Sequence[Filter] = (), sizing: Sizing = WHOLE
    ) -> list[Slice]:
        finder = await self._fresh(queue)
        if view == "archive":
            await self._space.transact(partial(_pin, queue), deadline=self._timeout)
        plan = await self._space.read(scan.plan_of(finder, view, filters), deadline=self._timeout)
        return plan.slices(queue, view, sizing)

    async def flush(self, queue: str) -> None:
        await self._log(queue).flusher.flush_all()

    async def publish(self, queue: str, sink: str | None, batch: int, staged: Sequence[Staged]) -> bool:
        limit = (await self._space.read(lambda view: queues.read(view, queue))).options.max_messages
        room = None
        if limit is not None:
            finder = await self._fresh(queue)
            stats = await self._space.read(finder.stats, deadline=self._timeout)
            room = limit - stats.pending - stats.delayed - stats.processing - stats.retry
        return await self._publishing.publish(queue, sink, batch, staged, room=room)

    async def sweep(self, queue: str, older_than: float) -> int:
        return await self._log(queue).window.staging.sweep(older_than)


def _pin(queue: str, tx: Transaction) -> None:
    pin.pin(tx, queues.address(queue).root(queues.read(tx, queue)))
