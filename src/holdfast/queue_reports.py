"""What a store says of its queues and of the streams that consume them, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from . import config
from .broker import Broker
from .config import QueueOptions
from .errors import QueueNotFound
from .stores.base import QueueInfo
from .stores.batches import batches_of
from .stores.records import Stats


class QueueReport(msgspec.Struct, frozen=True):
    """A queue: what it is set to and what is in it."""

    name: str
    paused: bool
    created_at: datetime
    options: QueueOptions
    stats: Stats


class ConsumerReport(msgspec.Struct, frozen=True):
    """A Spark stream as the store knows it: who runs it, what it holds, and what waits for it."""

    queue: str
    consumer: str
    owner: str  # "": nobody
    lease: float  # seconds that the owner has left
    batch: int  # the last one claimed
    claimed: int  # messages it holds
    tries: int  # of the oldest batch it holds
    settled: int  # messages, since it began
    lag: int  # messages that are ready, and those it holds


async def overview(broker: Broker) -> list[QueueReport]:
    """Every queue, by name."""
    return [_reported(info, stats) for info, stats in await broker.store.stats_of_all()]


async def report(broker: Broker, name: str) -> QueueReport:
    """One queue."""
    info = await broker.store.queue(config.queue_name(name))
    if info is None:
        raise QueueNotFound(f"there is no queue {name!r}")
    return _reported(info, await broker.store.stats(info.name))


async def consumers(broker: Broker, names: Sequence[str] | None = None) -> list[ConsumerReport]:
    """The consumers of these queues, or of all; ConfigError where the store serves no streams."""
    batches = batches_of(broker.store)
    found: list[ConsumerReport] = []
    for queue in [info.name for info in await broker.store.queues()] if names is None else names:
        known = await batches.consumers(queue)
        ready = (await broker.store.stats(queue)).pending if known else 0
        for each in known:
            seq, lag = each.done + each.batches, ready + each.claimed
            found.append(
                ConsumerReport(
                    queue, each.consumer, each.holder, each.lease, seq, each.claimed, each.tries, each.total, lag
                )
            )
    return found


def _reported(info: QueueInfo, stats: Stats) -> QueueReport:
    return QueueReport(info.name, info.paused, datetime.fromtimestamp(info.created_at, UTC), info.options, stats)
