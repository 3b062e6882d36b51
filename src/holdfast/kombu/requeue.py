"""A requeue: the message comes again at once, says that it was delivered before, and its attempt is not counted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from kombu.utils.json import dumps, loads

from ..deliveries import Delivery
from ..errors import HoldfastError
from ..queue import Queue

_MARKING_S = 2.0  # it waits so long to be marked: who dies meanwhile leaves it to come again without the mark
_REQUEUED = "requeued by its consumer"


async def requeue(queue: Queue[bytes], deliveries: Sequence[Delivery[bytes]]) -> list[bool]:
    """In input order, False where the lease was lost. A store that cannot change messages counts the attempt."""
    if not queue.store.capabilities.changes_messages:
        return await queue.fail_many(deliveries, _REQUEUED, retry_in=0.0)
    done = await queue.release_many(deliveries, delay=_MARKING_S)
    given_back = [delivery for delivery, is_done in zip(deliveries, done, strict=True) if is_done]
    await asyncio.gather(*(_mark(queue, delivery) for delivery in given_back))
    return done


async def _mark(queue: Queue[bytes], delivery: Delivery[bytes]) -> None:
    message: dict[str, Any] = loads(delivery.payload.decode())
    mark_redelivered(message)
    try:
        await queue.change(delivery.id, delay=0, value=dumps(message).encode())
    except HoldfastError:  # it has ended, or the store is away: it comes again without the mark
        pass


def mark_redelivered(message: dict[str, Any]) -> None:
    """As kombu's messages say it, in both places."""
    message["redelivered"] = message["properties"]["delivery_info"]["redelivered"] = True
