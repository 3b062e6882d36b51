"""From a target to a store: everything is verified before anything changes, and appears when all of it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from .. import config, schedules
from ..errors import ConfigError, StoreError
from ..retry import NoRetry
from ..stores import backups
from ..stores.backups import NewQueue, Restoring, backups_of
from ..stores.base import Store
from ..stores.scheduling import Scheduled, taken
from . import manifest as manifests
from .manifest import File, Manifest, QueueEntry
from .targets import Target

if TYPE_CHECKING:
    import pyarrow as pa

_EXPIRED = "lease expired"
_VERIFIED_AT_ONCE = 4  # files: each is in memory whole
_ORDER = ("archive", "dead", "open", "keys")


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    number: int
    instant: str  # that the state is of
    queues: list[str]  # their names in the store
    messages: int
    already: bool = False  # they had been restored before: nothing was added


async def manifest(target: Target, number: int | None) -> Manifest:
    """The last one, or that of a number; StoreError where there is none."""
    there = manifests.numbers(await asyncio.to_thread(target.sizes))
    if not there:
        raise StoreError(f"there is no backup at {target.place}")
    if number is not None and number not in there:
        raise StoreError(f"{target.place} has no backup {number}; it has {', '.join(map(str, there))}")
    name = manifests.manifest_name(there[-1] if number is None else number)
    data = await asyncio.to_thread(target.read, name)
    others = ", ".join(str(each) for each in there if manifests.manifest_name(each) != name)
    return manifests.decode(
        data or b"", f"{target.place}/{name}", cure=f"--number takes another ({others})" if others else ""
    )


def new_queues(found: Manifest, prefix: str) -> dict[str, NewQueue]:
    """The queues as they will be, by the names they had; ConfigError."""
    if prefix:
        config.queue_name(prefix, what="bad prefix")
    names = {queue.name: config.queue_name(prefix + queue.name) for queue in found.queues}
    return {queue.name: _new(queue, names, prefix) for queue in found.queues}


def _new(queue: QueueEntry, names: dict[str, str], prefix: str) -> NewQueue:
    target = queue.options.dead_letter
    if isinstance(target, str):
        target = names.get(target, target)
    return NewQueue(
        name=names[queue.name],
        options=msgspec.structs.replace(queue.options, dead_letter=target),
        paused=queue.paused,
        created_at=queue.created_at,
        completed=queue.completed,
        failed=queue.failed,
        consumers=queue.consumers,
        sinks=queue.sinks,
        schedules=[_renamed(each, names[queue.name], prefix) for each in queue.schedules],
    )


def _renamed(each: Scheduled, queue: str, prefix: str) -> Scheduled:
    """A schedule for the queue's new name: there is one of a name in a store."""
    name = schedules.checked_name(prefix + each.plan.name)
    return Scheduled(msgspec.structs.replace(each.plan, name=name, queue=queue), each.mark)


async def _names_are_free(store: Store, queues: Iterable[NewQueue]) -> None:
    """ConfigError where a schedule of another queue has a name that is needed."""
    for new in queues:
        for each in new.schedules:
            there = await store.schedules.find(each.plan.name) if store.schedules is not None else None
            if there is not None and there.plan.queue != new.name:
                raise taken(each.plan.name, there.plan.queue)


async def verified(target: Target, found: Manifest) -> None:
    """Every file is there as it was written; Damaged."""
    turns = asyncio.Semaphore(_VERIFIED_AT_ONCE)

    async def one(file: File) -> None:
        async with turns:
            await asyncio.to_thread(lambda: manifests.check(file, target.read(file.name), target.place) and None)

    await asyncio.gather(*(one(file) for file in found.files().values()))


async def restore(
    store: Store,
    target: Target,
    found: Manifest,
    queues: dict[str, NewQueue],
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> Restored:
    """Put the queues of a manifest into a store."""
    tell = on_progress or (lambda done, of: None)
    total = sum(file.rows for queue in found.queues for files in queue.sections.values() for file in files)
    await _names_are_free(store, queues.values())
    async with backups_of(store).restoring(found.id, list(queues.values())) as restoring:
        already = restoring.done
        if not already:
            for queue in found.queues:
                for section in _ORDER:
                    for file in queue.sections.get(section, ()):
                        await add(restoring, target, queue, queues[queue.name], section, file)
                        tell(file.rows, total)
            await restoring.finish()
    return Restored(
        number=found.number,
        instant=found.instant,
        queues=[queue.name for queue in queues.values()],
        messages=0
        if already
        else sum(q.rows(section) for q in found.queues for section in ("open", "dead", "archive")),
        already=already,
    )


async def add(restoring: Restoring, target: Target, queue: QueueEntry, new: NewQueue, section: str, file: File) -> None:
    """The rows of one file."""
    data = await asyncio.to_thread(lambda: manifests.check(file, target.read(file.name), target.place))
    table = await asyncio.to_thread(manifests.rows, data)
    if section == "keys":
        return await restoring.add(new.name, "keys", table, None)
    table = backups.normal(table)
    if section == "open":
        table, ended = _without_spent(table, new)
        if ended.num_rows:
            await _end(restoring, new, ended, queue.at)
        return await restoring.add(new.name, "open", table, None)
    if section not in ("dead", "archive"):
        raise ConfigError(f"{target.place} has {section!r}, which this version of Holdfast does not know: upgrade")
    await restoring.add(new.name, section, table, data)  # type: ignore[arg-type]  # one of the two


def _without_spent(table: pa.Table, new: NewQueue) -> tuple[pa.Table, pa.Table]:
    """Messages, and those that somebody had in hand for the last time they may run."""
    import pyarrow as pa
    import pyarrow.compute as pc

    held = pc.fill_null(table["held"], False)
    if not pc.any(held).as_py():
        return table, table.slice(0, 0)
    if isinstance(new.options.retry, NoRetry):
        spent = held
    else:
        limit = pc.fill_null(table["own_max_attempts"], pa.scalar(new.options.max_attempts, pa.int32()))
        spent = pc.and_(held, pc.greater_equal(table["attempts"], limit))
    return table.filter(pc.invert(spent)), table.filter(spent)


async def _end(restoring: Restoring, new: NewQueue, ended: pa.Table, at: float) -> None:
    """As a lease ends that nobody extends: a dead letter, or failed where the queue has none."""
    dead = new.options.dead_letter is not False
    rows = backups.rows_of(ended)
    for row in rows:
        row.status, row.error, row.finished_at, row.held = ("dead" if dead else "failed"), _EXPIRED, at, False
    if dead or new.options.archive:
        rows.sort(key=lambda row: row.id)
        await restoring.add(new.name, "dead" if dead else "archive", backups.table(rows), None)
