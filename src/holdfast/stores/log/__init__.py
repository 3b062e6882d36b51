"""The log engine: queues on anything that looks like an object store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...config import StoreOptions

if TYPE_CHECKING:
    from .memory import MemorySpace
    from .slatedb import Place
    from .store import LogStore

# Named memory stores live as long as the process, like the folder they stand in for.
_shared: dict[str, MemorySpace] = {}


async def open_memory(
    name: str,
    options: StoreOptions,
    *,
    clock: Callable[[], float] | None = None,
    steps: Callable[[str], Awaitable[None]] | None = None,
) -> LogStore:
    """A store in this process; a name other than "" is shared by all who open it."""
    from .memory import MemorySpace
    from .store import LogStore

    if not name:
        return LogStore(MemorySpace(clock), options, steps=steps)
    return LogStore(_shared.setdefault(name, MemorySpace(clock)), options, steps=steps)


async def open_folder(
    path: Path | str,
    options: StoreOptions,
    *,
    clock: Callable[[], float] | None = None,
    steps: Callable[[str], Awaitable[None]] | None = None,
    wake: bool = True,
) -> LogStore:
    """A store in a folder, shared by any number of processes on this machine."""
    from .folder import FolderSpace
    from .store import LogStore

    space = await FolderSpace.open(
        Path(path),
        poll_interval=options.poll_interval,
        operation_timeout=options.operation_timeout,
        connect_timeout=options.connect_timeout,
        wake=wake,
        clock=clock,
    )
    return LogStore(space, options, steps=steps)


async def open_slate(
    place: Place | str,
    options: StoreOptions,
    *,
    clock: Callable[[], float] | None = None,
    steps: Callable[[str], Awaitable[None]] | None = None,
) -> LogStore:
    """A store in a SlateDB database, owned by this process until another opens it."""
    from .slatedb import SlateSpace, located
    from .store import LogStore

    place = located(place, options) if isinstance(place, str) else place
    return LogStore(await SlateSpace.open(place, options, clock=clock), options, steps=steps)


async def open_cloud(
    place: str,
    options: StoreOptions,
    *,
    clock: Callable[[], float] | None = None,
    steps: Callable[[str], Awaitable[None]] | None = None,
) -> LogStore:
    """A store in a bucket, shared by any number of machines."""
    from .bucket import address

    bucket = address.bucket(place, options)
    from .bucket.space import CloudSpace
    from .bucket.store import LateStore

    space = await CloudSpace.open(
        bucket,
        address.shown(place),
        server=address.server(place, options),
        timeout=options.operation_timeout,
        connect_timeout=options.connect_timeout,
        clock=clock,
    )
    return LateStore(space, options, steps=steps)
