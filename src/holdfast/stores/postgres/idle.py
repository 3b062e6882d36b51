"""Queues that hold nothing while somebody waits at them: one look for all of them every poll interval."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from ...errors import HoldfastError
from ..base import RESTS_S
from .notify import Bell
from .pool import Pool
from .statements import Statements


class Idle:
    """Of one process. Who waits is woken by the bell; the look rings it for every queue in which something may be."""

    def __init__(self, pool: Pool, sql: Statements, bell: Bell, *, poll_interval: float) -> None:
        self._pool = pool
        self._sql = sql
        self._bell = bell
        self._poll_interval = poll_interval
        self._waiting: Counter[str] = Counter()
        self._empty: dict[str, tuple[int, float]] = {}  # the ticket from before the look, and when that began
        self._kept: dict[str, tuple[int, float]] = {}  # the same of upkeep that found nothing to do
        self._looking: asyncio.Task[None] | None = None

    def seen(self, queue: str) -> float:
        """When the last look found nothing there, by the monotonic clock; nothing is known once it has rung since."""
        ticket, when = self._empty.get(queue, (-1, 0.0))
        return when if ticket == self._bell.ticket(queue) else float("-inf")

    def recent(self) -> float:
        """A look after this is as good as a claim for one who waits until the next look."""
        return time.monotonic() - 2 * self._poll_interval

    async def wait(self, queue: str, seconds: float, *, since: int) -> None:
        """Until something may be there."""
        self._waiting[queue] += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_again(), name="holdfast-postgres-idle")
        try:
            await self._bell.wait(queue, seconds, since=since)
        finally:
            self._waiting[queue] -= 1
            if self._waiting[queue] <= 0:
                del self._waiting[queue]

    async def _look_again(self) -> None:
        """As long as somebody waits, or came back for more since the last look."""
        try:
            while self._waiting:
                await asyncio.sleep(self._poll_interval)
                await self._look()
        finally:
            self._looking = None

    async def _look(self) -> None:
        began, tickets = time.monotonic(), {queue: self._bell.ticket(queue) for queue in self._waiting}
        if not tickets:
            return
        try:
            stirring = {row[0] for row in await self._pool.fetch(self._sql["stirring"], list(tickets), queue="")}
        except HoldfastError:  # those who wait hear of it by a claim
            stirring = set(tickets)
        for queue, ticket in tickets.items():
            if queue in stirring:
                self._bell.ring(queue)
            else:
                self._empty[queue] = (ticket, began)

    def ticket(self, queue: str) -> tuple[int, float]:
        """Now, for `maintained`."""
        return self._bell.ticket(queue), time.monotonic()

    def maintained(self, queue: str, since: tuple[int, float]) -> None:
        """Upkeep that began then has found nothing to do."""
        self._kept[queue] = since

    def is_resting(self, queue: str) -> bool:
        """Since then nothing has been there."""
        ticket, when = self._kept.get(queue, (-1, 0.0))
        return (
            ticket == self._bell.ticket(queue)
            and time.monotonic() - when < RESTS_S
            and self.seen(queue) >= max(when, self.recent())
        )

    def forget(self, queue: str) -> None:
        """It is gone."""
        self._empty.pop(queue, None)
        self._kept.pop(queue, None)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking}, timeout=1.0)
