"""PostgreSQL under data pipelines: the methods of `stores/batches.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...config import QueueOptions
from ..batches import WHOLE, Batch, ConsumerInfo, Filter, Ownership, Sizing, Slice, Staged, Stager
from ..records import Stats, View
from .consuming import Consuming
from .partition import Topic
from .pool import Pool
from .registry import Registry
from .scanning import Scanner
from .staging import Publishing
from .wake import Bell

if TYPE_CHECKING:
    import pyarrow as pa

_ORPHAN = 3600.0  # seconds after which staged messages count as left behind


class PostgresBatches:
    """See `stores/batches.py` for the promises."""

    deduplicates = True

    def __init__(
        self,
        pool: Pool,
        registry: Registry,
        topic: Callable[[str], Topic],
        bell: Bell,
        *,
        poll_interval: float,
        number: Callable[[], int],
        connect: Callable[[], Awaitable[Any]],
        stats: Callable[[str], Awaitable[Stats]],
        changed: Callable[[str], None],
    ) -> None:
        self._pool = pool
        self._registry = registry
        self._topic = topic
        self._number = number
        self._stats = stats
        self._changed = changed
        self._scanner = Scanner(pool, topic, connect)
        self._consuming = Consuming(pool, topic, bell, poll_interval=poll_interval)
        self._publishing = Publishing(pool, topic)

    async def _options(self, queue: str) -> QueueOptions:
        return (await self._registry.must(queue)).options

    async def close(self) -> None:
        await self._scanner.close()

    async def plan_scan(
        self, queue: str, view: View, *, filters: Sequence[Filter] = (), sizing: Sizing = WHOLE
    ) -> list[Slice]:
        usual = (await self._options(queue)).max_attempts
        return await self._scanner.plan(queue, view, filters=filters, sizing=sizing, usual=usual)

    def read_slice(
        self, part: Slice, *, filters: Sequence[Filter] = (), lenient: bool = False, only: Sequence[str] | None = None
    ) -> AsyncIterator[pa.RecordBatch]:  # every column is in the answer of the server anyway
        return self._scanner.read(part, filters, lenient=lenient)

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
        usual = (await self._options(owner.queue)).max_attempts
        return await self._consuming.manifest(owner, after, upto, sizing=sizing, usual=usual)

    # Staged writes.

    async def stager(self, queue: str) -> Stager:
        return await self._publishing.stager(queue, self._number)

    async def published(self, queue: str, sink: str) -> int | None:
        return await self._publishing.published(queue, sink)

    async def publish(self, queue: str, sink: str | None, batch: int, staged: Sequence[Staged]) -> bool:
        options, room = await self._options(queue), None
        if options.max_messages is not None:
            stats = await self._stats(queue)
            room = options.max_messages - stats.pending - stats.delayed - stats.processing - stats.retry
        window = options.dedup_window
        done = await self._publishing.publish(queue, sink, batch, staged, room=room, window=window)
        self._changed(queue)
        return done

    async def sweep(self, queue: str, older_than: float) -> int:
        return await self._publishing.sweep(queue, older_than)

    # Upkeep.

    async def consumers(self, queue: str) -> list[ConsumerInfo]:
        return await self._consuming.all(queue)

    async def release(self, queue: str, consumer: str, *, force: bool = False) -> int:
        count = await self._consuming.release(queue, consumer, force=force)
        self._changed(queue)
        return count

    async def maintain(self, queue: str) -> dict[str, int]:
        """What of a queue's upkeep is about pipelines."""
        swept = await self.sweep(queue, _ORPHAN)
        return {"released": await self._consuming.maintain(queue), "orphans": swept}
