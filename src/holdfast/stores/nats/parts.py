"""Everything that works on one queue, or on its dead letters, put together."""

from __future__ import annotations

import time
from collections.abc import Callable

from ...ids import Ids
from ..base import LONG_POLL_S, RESTS_S
from . import maintenance
from .appending import Appender
from .claiming import Claimer
from .copying import Copier
from .letters import Letters
from .living_keys import LivingKeys
from .lookup import Looker
from .partition import Partition
from .settling import Settler


class Parts:
    """One of each, around one partition."""

    def __init__(self, partition: Partition, ids: Ids, others: Callable[[str], Parts]) -> None:
        self.partition = partition
        self.copier = Copier(partition, lambda other: others(other).partition)
        self.settler = Settler(partition, self.copier)
        self.claimer = Claimer(partition, self.settler)
        self.appender = Appender(partition, ids)
        self.living_keys = LivingKeys(partition, self.appender)
        self.looker = Looker(partition)
        self.letters = Letters(partition, self.copier, self.settler)
        self._kept_at = float("-inf")  # by our own clock: when upkeep began that found nothing to do

    async def maintain(self) -> dict[str, int]:
        began = time.monotonic()
        done = await maintenance.maintain(self.partition, self.letters, self.copier, self.living_keys)
        if done and not any(done.values()):
            self._kept_at = began
        return done

    @property
    def is_resting(self) -> bool:
        """Since upkeep found nothing to do nothing has happened, and somebody waits here and looks."""
        kept, now = self._kept_at, time.monotonic()
        return max(self.partition.stirred_at, now - RESTS_S) < kept <= self.partition.consumers.bare_at and (
            now - self.partition.consumers.bare_at < LONG_POLL_S
        )

    async def upgrade(self) -> list[str]:
        from . import upgrading  # only `install` needs it

        return await upgrading.upgrade(self.partition)

    def close(self) -> None:
        self.partition.consumers.close()
        self.partition.wake()
