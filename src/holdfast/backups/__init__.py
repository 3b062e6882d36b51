"""Back up, restore and move stores: what a store keeps at one instant, as files that anybody can check."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

from ..broker import Broker, connect
from ..errors import ConfigError, StoreError
from ..stores.base import Store
from ..stores.opening import locate, must_be_there
from . import reading, targets, writing
from .reading import Restored
from .writing import Backup

OnProgress = Callable[[int, int], None]  # rows done since the last call, and how many there are in all
Url = str | os.PathLike[str]


async def backup(source: Url | Broker, target: Url, *, on_progress: OnProgress | None = None) -> Backup:
    """Copy everything that a store keeps to a folder or a bucket, while it is in use; verified.

    `source` is the URL of a store, or an open broker: SlateDB has one owner, who must be the one to back it up.
    What the target has from earlier backups is not copied again where the store can tell. Interrupted, it leaves the
    target at the backup before, and the next one goes on.
    """
    to = targets.opened(target)
    if isinstance(source, Broker):
        return await writing.backup(source.store, to, source=source.url, on_progress=on_progress)
    must_be_there(locate(source))
    if targets.is_inside(locate(target), locate(source)):
        raise ConfigError(f"{to.place} is inside the store: a backup needs a place of its own")
    async with connect(source) as broker:
        if not await broker.queues():
            raise ConfigError(f"the store at {broker.url} has no queues: there is nothing to back up")
        return await writing.backup(broker.store, to, source=broker.url, on_progress=on_progress)


async def restore(
    target: Url, url: Url, *, prefix: str = "", number: int | None = None, on_progress: OnProgress | None = None
) -> Restored:
    """Put the queues of a backup, the last one or that of a `number`, into a store of any kind.

    QueueExists where the store has one of the same name; with a `prefix` they get other names. A restore that was
    interrupted is repeated; what is there already is not added again.
    """
    source = targets.opened(target)
    there, here = locate(target), locate(url)
    if targets.is_inside(there, here) or targets.is_inside(here, there):
        raise ConfigError(f"the store and the backup {source.place} need places of their own, side by side")
    found = await reading.manifest(source, number)
    names = reading.new_queues(found, prefix)
    await reading.verified(source, found)
    async with connect(url) as broker:
        return await reading.restore(broker.store, source, found, names, on_progress=on_progress)


async def move(url: Url, to: Url, *, prefix: str = "", on_progress: OnProgress | None = None) -> Restored:
    """Put everything of one store into another of any kind.

    The queues of the first are paused, must have no message in hand, and stay paused, so that nothing runs twice: start
    producers and workers on the other, and delete them when you are content. On an error they are as before.
    """
    must_be_there(locate(url))
    if locate(url) == locate(to) and not prefix:
        raise ConfigError("both URLs name the same store")
    async with connect(url) as broker, connect(to) as other:
        paused = await _pause(broker)
        try:
            await _nothing_in_hand(broker)
            with tempfile.TemporaryDirectory(prefix="holdfast-move-") as folder:
                between = targets.opened(folder)
                await writing.backup(broker.store, between, source=broker.url, paused=paused, on_progress=on_progress)
                found = await reading.manifest(between, None)
                queues = reading.new_queues(found, prefix)
                return await reading.restore(other.store, between, found, queues, on_progress=on_progress)
        except BaseException:
            await _resume(broker.store, paused)
            raise


async def _pause(broker: Broker) -> list[str]:
    """The queues that were not paused before."""
    running = [info.name for info in await broker.queues() if not info.paused]
    for name in running:
        await broker.store.pause(name, True)
    return running


async def _resume(store: Store, names: list[str]) -> None:
    for name in names:
        await store.pause(name, False)


async def _nothing_in_hand(broker: Broker) -> None:
    held = {name: stats.processing for name, stats in (await broker.stats()).items() if stats.processing}
    if held:
        listed = ", ".join(f"{count:,} of {name}" for name, count in held.items())
        raise StoreError(f"messages are in hand ({listed}): stop the workers, and move when they are done")


__all__ = ["Backup", "OnProgress", "Restored", "backup", "move", "restore"]
