"""Several queues waited for at once: one LISTEN, and one statement every poll interval for what nobody announced.

That statement reads the counts of all queues. One that holds nothing needs no claim to be known as empty; of the others
it tells which have changed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ...errors import QueueNotFound
from ..base import EMPTY_S
from .notify import Bell
from .pool import Pool
from .statements import Statements


class Empty(msgspec.Struct, frozen=True, gc=False):
    """Nothing was to be claimed: the ticket from before, and until when that is believed."""

    ticket: int
    until: float


class Several:
    """What is known of the queues that somebody waits for together."""

    def __init__(self, pool: Pool, sql: Statements, bell: Bell, *, poll_interval: float) -> None:
        self._pool = pool
        self._sql = sql
        self._bell = bell
        self._poll_interval = poll_interval
        self._known: dict[str, Empty | None] = {}
        self._marks: dict[str, Any] = {}
        self._next_look = 0.0

    def __contains__(self, queue: str) -> bool:
        return queue in self._known

    def found(self, queue: str) -> None:
        """There may be more."""
        self._known[queue] = None

    def empty(self, queue: str, ticket: int, due: float | None) -> None:
        """A claim found nothing, and something is due in so many seconds; of a paused queue perhaps for a while."""
        pause = EMPTY_S if due is None else max(due, self._poll_interval if due <= 0 else 0.001)
        self._known[queue] = Empty(ticket, time.monotonic() + min(pause, EMPTY_S))

    def forget(self, queue: str) -> None:
        """It is gone."""
        self._known.pop(queue, None)

    async def ready(self, queues: Sequence[str], *, wait: float) -> list[str]:
        """As the seam says."""
        deadline = time.monotonic() + wait
        if any(queue not in self._known for queue in queues):
            self._known = dict.fromkeys(queues) | self._known
            self._next_look = 0.0
        while True:
            if time.monotonic() >= self._next_look:
                await self._look()
            tickets = {queue: self._bell.ticket(queue) for queue in queues}
            now = time.monotonic()
            ends = [self._until(queue, ticket) for queue, ticket in tickets.items()]
            soonest = min(*ends, self._next_look, deadline) if ends else deadline
            if now >= deadline or any(end <= now for end in ends):
                return [queue for queue, end in zip(tickets, ends, strict=True) if end <= now]
            await self._bell.wait_any(tickets, soonest - now)

    def _until(self, queue: str, ticket: int) -> float:
        """When it may have something, by our own clock."""
        known = self._known.get(queue)
        return known.until if known is not None and known.ticket == ticket else 0.0

    async def _look(self) -> None:
        self._next_look = time.monotonic() + self._poll_interval  # before the await: others go on with what we have
        tickets = {queue: self._bell.ticket(queue) for queue in self._known}
        try:
            found = await self._pool.fetch(self._sql["holding"], queue="")
        except QueueNotFound:  # nothing is installed
            return
        marks = {row[0]: tuple(row) for row in found}
        until = time.monotonic() + EMPTY_S
        for queue, ticket in tickets.items():
            if queue not in marks:
                self._known[queue] = Empty(ticket, until)
            elif marks[queue] != self._marks.get(queue):
                self._known[queue] = None
        self._marks = marks
