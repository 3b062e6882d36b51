"""`holdfast pipeline release`: what a stream has claimed goes back to its queue."""

from __future__ import annotations

import msgspec

from ... import config
from ...broker import Broker
from ...stores.batches import batches_of
from .store import ask


class ReleaseSummary(msgspec.Struct, frozen=True):
    """What a release gave back."""

    queue: str
    consumer: str
    released: int


def release(queue: str, consumer: str, *, url: str | None = None, force: bool = False) -> ReleaseSummary:
    """Give all claims of a consumer back. A checkpoint that knows of them fails from then on instead of reading others.

    Refused while a query of that name is alive, unless forced.
    """
    config.queue_name(queue)

    async def give_back(broker: Broker) -> int:
        return await batches_of(broker.store).release(queue, consumer, force=force)

    return ReleaseSummary(queue, consumer, ask(url, give_back))
