"""PostgreSQL under data pipelines: views, claim batches and staged writes, as `stores/batches.py` promises."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from .consuming import ClaimBatches
from .maintenance import REMEMBERED_S
from .notify import Bell
from .partition import Topic
from .pool import Pool
from .registry import Registry
from .scanning import Scans
from .staging import StagedWrites


class PostgresBatches(Scans, ClaimBatches, StagedWrites):
    """The three parts of the second seam, over one pool."""

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
        changed: Callable[[str], None],
    ) -> None:
        Scans.__init__(self, pool, registry, topic, connect=connect)
        ClaimBatches.__init__(self, pool, registry, topic, bell, poll_interval=poll_interval, changed=changed)
        StagedWrites.__init__(self, pool, registry, topic, number=number, changed=changed)

    async def flush(self, queue: str) -> None:
        pass  # the statement that settles also archives

    async def maintain(self, queue: str) -> dict[str, int]:
        """What of a queue's upkeep is about pipelines."""
        swept = await self.sweep(queue, REMEMBERED_S)
        return {"released": await self.release_abandoned(queue), "orphans": swept}
