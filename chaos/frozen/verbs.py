"""Every verb that waits for a store, each with a queue of its own that holds what it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import holdfast

_LEASE_SECONDS = 300.0
_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Stock:
    """What a verb finds: two messages that wait, one in hand, one dead and one archived."""

    queue: holdfast.Queue[Any]
    held: holdfast.Delivery[Any]
    ids: list[str]
    dead: str
    archived: str
    added: list[str] = field(default_factory=list)


Call = Callable[[Stock], Awaitable[Any]]


async def stock(broker: holdfast.Broker, name: str) -> Stock:
    queue = await broker.queue(name, lease=_LEASE_SECONDS)
    dead, archived = await queue.enqueue_many(["dead", "archived"])
    first, second = await _taken(queue, 2)
    await first.kill("for the verb")
    await second.complete("done")
    ids = await queue.enqueue_many(["one", "two", "three"])
    [held] = await _taken(queue, 1)
    await broker.schedules.put(_schedule(name))
    return Stock(queue, held, ids, dead, archived)


def _schedule(name: str) -> holdfast.Schedule:
    """One that fires only when it is asked to."""
    return holdfast.Schedule(name=name, queue=name, every=60.0, start=_START, end=_START + timedelta(minutes=5))


async def _taken(queue: holdfast.Queue[Any], count: int) -> list[holdfast.Delivery[Any]]:
    found: list[holdfast.Delivery[Any]] = []
    while len(found) < count:
        found += await queue.dequeue_many(count - len(found), wait=10)
    return found


async def _added(stock: Stock, ids: Awaitable[Any]) -> None:
    """These were acknowledged: they must not be lost."""
    made = await ids
    stock.added += [made] if isinstance(made, str) else made


async def _changed(stock: Stock) -> None:
    """Where messages cannot be changed, the store says so, whatever has become of its server."""
    try:
        await stock.queue.change(stock.ids[1], priority=5)
    except holdfast.ConfigError:
        if stock.queue.store.capabilities.changes_messages:
            raise


VERBS: dict[str, Call] = {
    "enqueue": lambda s: _added(s, s.queue.enqueue("more")),
    "enqueue with a key": lambda s: _added(s, s.queue.enqueue("more", dedup_key="key")),
    "enqueue delayed": lambda s: _added(s, s.queue.enqueue("more", delay=60)),
    "enqueue_many": lambda s: _added(s, s.queue.enqueue_many([*range(100)])),
    "dequeue": lambda s: s.queue.dequeue(),
    "dequeue_many and wait": lambda s: s.queue.dequeue_many(5, wait=0.5),
    "complete": lambda s: s.held.complete("done"),
    "complete_many": lambda s: s.queue.complete_many([s.held]),
    "complete unkept": lambda s: s.held.complete(keep=False),
    "fail": lambda s: s.held.fail("no"),
    "fail_many": lambda s: s.queue.fail_many([s.held], "no"),
    "release": lambda s: s.held.release(),
    "release_many": lambda s: s.queue.release_many([s.held]),
    "kill": lambda s: s.held.kill("no"),
    "kill_many": lambda s: s.queue.kill_many([s.held], "no"),
    "extend": lambda s: s.held.extend(600),
    "extend_many": lambda s: s.queue.extend_many([s.held], 600),
    "take_back": lambda s: s.queue.take_back(s.held.id),
    "change": lambda s: _changed(s),
    "cancel": lambda s: s.queue.cancel(s.ids[2]),
    "cancel running": lambda s: s.queue.cancel(s.held.id, running=True),
    "list": lambda s: s.queue.list("ready"),
    "peek": lambda s: s.queue.peek(),
    "wait": lambda s: s.queue.wait(s.ids[1], 0.5),
    "status": lambda s: s.queue.status(s.ids[0]),
    "get": lambda s: s.queue.get(s.archived),
    "stats": lambda s: s.queue.stats(),
    "refresh": lambda s: s.queue.refresh(),
    "pause": lambda s: s.queue.pause(),
    "resume": lambda s: s.queue.resume(),
    "cleanup": lambda s: s.queue.cleanup(3600),
    "purge": lambda s: s.queue.purge(),
    "dead.list": lambda s: s.queue.dead.list(),
    "dead.count": lambda s: s.queue.dead.count(),
    "dead.replay": lambda s: s.queue.dead.replay(),
    "dead.delete": lambda s: s.queue.dead.delete([s.dead]),
    "dead.purge": lambda s: s.queue.dead.purge(),
    "archive.list": lambda s: s.queue.archive.list(),
    "archive.count": lambda s: s.queue.archive.count(),
    "archive.replay": lambda s: s.queue.archive.replay(ids=[s.archived]),
    "archive.delete": lambda s: s.queue.archive.delete([s.archived]),
    "archive.purge": lambda s: s.queue.archive.purge(),
}
BROKER_VERBS: dict[str, Callable[[holdfast.Broker, str], Awaitable[Any]]] = {
    "queue": lambda broker, name: broker.queue(f"{name}-new"),
    "create_queue": lambda broker, name: broker.create_queue(f"{name}-created"),
    "queues": lambda broker, name: broker.queues(),
    "configure_queue": lambda broker, name: broker.configure_queue(name, max_attempts=7),
    "delete_queue": lambda broker, name: broker.delete_queue(name, force=True),
    "broker.stats": lambda broker, name: broker.stats(),
    "broker.dequeue": lambda broker, name: broker.dequeue([name], wait=0.5),
    "maintain": lambda broker, name: broker.maintain(),
    "check": lambda broker, name: broker.check(),
    "install": lambda broker, name: broker.install(),
    "schedules.put": lambda broker, name: broker.schedules.put(_schedule(name)),
    "schedules.get": lambda broker, name: broker.schedules.get(name),
    "schedules.list": lambda broker, name: broker.schedules.list(),
    "schedules.pause": lambda broker, name: broker.schedules.pause(name),
    "schedules.resume": lambda broker, name: broker.schedules.resume(name),
    "schedules.delete": lambda broker, name: broker.schedules.delete(name),
    "schedules.trigger": lambda broker, name: broker.schedules.trigger(name),
    "schedules.backfill": lambda broker, name: broker.schedules.backfill(name, _START, _START + timedelta(minutes=5)),
    "schedules.tick": lambda broker, name: broker.schedules.tick(),
}
# After these a message that was there may be gone.
REMOVING = (
    *("complete unkept", "cleanup", "purge", "dead.replay", "dead.delete", "dead.purge", "archive.delete"),
    *("archive.purge", "delete_queue"),
)
# These go through the whole store, or through one part of a queue after the other, and each step has the timeout: so
# many timeouts each may take where the server answers, for a stock as above and some fifty queues. On a bucket a
# replay takes 19 requests, each of them slow.
STEPWISE = {
    "connect": 2, "broker.dequeue": 2, "purge": 2, "cleanup": 4, "delete_queue": 6,
    "dead.replay": 6, "dead.delete": 6, "dead.purge": 6, "archive.replay": 6, "archive.delete": 6, "archive.purge": 6,
    "broker.stats": 6, "maintain": 12, "check": 12,
    "schedules.trigger": 2, "schedules.backfill": 3, "schedules.tick": 6,
}  # fmt: skip
STEPS_UNANSWERED = 2  # where nobody answers: the first may be answered from memory
