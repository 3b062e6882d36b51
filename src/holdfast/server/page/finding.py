"""Where a message is, by its id alone. Every queue may have it: the likely ones are asked first."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

import msgspec

from ... import ids
from ...queue_reports import QueueReport
from ...stores.base import Store

FINDING_S = 2.0  # what somebody who waits for a page can wait for
PATIENT_S = 30.0  # for those who ask for all queues
_ASKED_QUEUES = 200  # queues of one call: the time is looked at in between


class Found(msgspec.Struct, frozen=True):
    """The queue that knows the message; None: none of those that were asked."""

    queue: str | None
    asked: int
    queues: int

    @property
    def is_whole(self) -> bool:
        """Whether there is nothing left to ask."""
        return self.queue is not None or self.asked == self.queues


def likely(id: str, reports: Sequence[QueueReport], came: Mapping[str, int]) -> list[str]:
    """All queues. First those into which messages came when this one was made, by how many (`came`, as the history of
    the page knows it); then those that are older than the message, the busiest first; last those that hold nothing or
    were made later: a message can get there by a restored backup. Pure."""
    number = ids.number(id)
    born = ids.born_at(number) if number is not None else 0.0

    def rank(report: QueueReport) -> tuple[int, int, str]:
        stats = report.stats
        if report.name in came:
            return 0, -came[report.name], report.name
        is_unlikely = not stats.total or report.created_at.timestamp() > born
        return 2 if is_unlikely else 1, -(stats.total + stats.completed), report.name

    return [each.name for each in sorted(reports, key=rank)]


async def find(store: Store, id: str, names: Sequence[str], *, seconds: float) -> Found:
    """Ask these queues in their order, some at a time, until one knows the message or the time is over."""
    asked = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while asked < len(names):
                some = names[asked : asked + _ASKED_QUEUES]
                found = await store.find_queue(some, id)
                asked += len(some)
                if found is not None:
                    return Found(found, asked, len(names))
    return Found(None, asked, len(names))
