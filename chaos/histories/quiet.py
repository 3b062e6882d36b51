"""The end of a history: nobody else is there, everything is drained by one consumer, and everything is read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast.stores.batches import batches_of
from holdfast.sync import Archive, Broker, DeadLetters, Queue

from .callers import given, sighting
from .calls import Answered, Asked, Call, Given, Log, Sighting, now

COUNTS = ("total", "pending", "delayed", "processing", "retry", "dead", "archived", "completed", "failed")
LEASE = 600.0  # seconds: nothing that is drained comes back
DRAINED = "drained"  # the result of what is completed here
_PAGE = 500
_MOST_ERRORS = 20


class Drained(msgspec.Struct, frozen=True):
    given: Given
    began: float
    ended: float


class Rest(msgspec.Struct, kw_only=True):
    """What a queue holds in the end. Counts are those of `stats` before, in the middle of and after the drain."""

    errors: list[str] = []
    drained: list[Drained] = []
    final: dict[str, Sighting] = {}
    dead: list[str] = []  # in the order of the list
    archive: list[str] = []
    dead_count: int = 0
    archive_count: int = 0
    before: dict[str, int] = {}
    middle: dict[str, int] = {}
    after: dict[str, int] = {}


class Ending(msgspec.Struct, kw_only=True):
    """What the conductor knows of a run."""

    store: str
    scale: float
    window: float  # the queues' dedup_window
    shards: int = 1
    queues: dict[str, Rest]
    dead_letter: dict[str, bool]


def release_batches(url: str, queue: str, consumer: str, log: Log) -> None:
    """Whatever a stream still holds goes back; nobody owns it any more."""

    async def release() -> int:
        async with holdfast.connect(url) as broker:
            if consumer not in {each.consumer for each in await batches_of(broker.store).consumers(queue)}:
                return 0
            return await batches_of(broker.store).release(queue, consumer, force=True)

    log.write(Asked(call="quiet.0#1", began=now(), op="release batches", queue=queue))
    released = asyncio.run(release())
    log.write(Answered(call="quiet.0#1", ended=now(), outcome="ok", number=released))


def settle_down(
    broker: Broker, names: Iterable[str], calls: list[Call], *, patience: float, settling: float
) -> dict[str, Rest]:
    """Wait until every lease, delay and retry is over, and what its documentation adds; then drain and read each."""
    queues: dict[str, Queue[Any]] = {name: broker.queue(name, create=False) for name in names}
    for queue in queues.values():
        queue.resume()
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and any(_is_busy(queue) for queue in queues.values()):
        time.sleep(0.2)
    time.sleep(settling)
    return {name: _drain(queue, set(_known(calls, name))) for name, queue in queues.items()}


def _is_busy(queue: Queue[Any]) -> bool:
    stats = queue.stats()
    return bool(stats.delayed or stats.processing or stats.retry)


def _known(calls: list[Call], queue: str) -> Iterator[str]:
    for call in calls:
        if call.queue == queue:
            yield from call.ids
            yield from (each.id for each in call.given)


def _drain(queue: Queue[Any], known: set[str]) -> Rest:
    rest = Rest(before=_counts(queue))
    while (one := _take(queue, rest)) is not None:
        rest.drained.append(one)
    rest.middle = _counts(queue)
    for each in rest.drained:
        try:
            queue.complete(each.given.id, DRAINED)
        except holdfast.HoldfastError as error:
            rest.errors.append(repr(error)[:300])
    rest.after = _counts(queue)
    _read(queue, rest, known)
    return rest


def _take(queue: Queue[Any], rest: Rest) -> Drained | None:
    while len(rest.errors) < _MOST_ERRORS:
        began = now()
        try:
            one = queue.dequeue(lease=LEASE)
        except holdfast.HoldfastError as error:
            rest.errors.append(repr(error)[:300])
            time.sleep(0.2)
            continue
        return Drained(given(one), began, now()) if one is not None else None
    return None


def _read(queue: Queue[Any], rest: Rest, known: set[str]) -> None:
    rest.dead = _pages(queue.dead, rest.final)
    rest.archive = _pages(queue.archive, rest.final)
    rest.dead_count, rest.archive_count = queue.dead.count(), queue.archive.count()
    for id in known - set(rest.final):
        if (record := queue.get(id)) is not None:
            rest.final[id] = sighting(record)


def _pages(letters: DeadLetters[Any] | Archive[Any], final: dict[str, Sighting]) -> list[str]:
    found: list[str] = []
    while page := letters.list(_PAGE, found[-1] if found else None):
        for record in page:
            final[record.id] = sighting(record)
        found += [record.id for record in page]
    return found


def _counts(queue: Queue[Any]) -> dict[str, int]:
    stats = queue.stats()
    return {name: getattr(stats, name) for name in COUNTS}


def write(folder: Path, ending: Ending) -> None:
    (folder / "ending.json").write_bytes(msgspec.json.encode(ending))


def load(folder: Path) -> Ending:
    return msgspec.json.decode((folder / "ending.json").read_bytes(), type=Ending)
