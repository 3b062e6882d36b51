"""SlateDB bare: the same bytes, the same settings, the same durability as the store on it, and no queue around them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast.bench.measure import Sample, Stopwatch
from holdfast.bench.raw import scratch
from holdfast.stores.log.slatedb import local
from holdfast.stores.log.slatedb.binding import slatedb
from holdfast.stores.log.slatedb.disk import Disk


async def durable_puts(folder: Path | None, count: int, size: int, per_put: int = 1) -> Sample:
    """One after the other: put, flush, `await_durable`, and the files synced; units are messages.

    With our copy in the place of the binding's loop (see `slatedb/copying.py`): without it 1 MiB takes 160 ms.
    """
    data = os.urandom(size)
    with scratch(folder) as where:
        place, package = local(where), slatedb()
        builder = package.DbBuilder(place.path, place.object_store())
        builder.with_settings(place.settings())
        database = await builder.build()
        disk = Disk(where / place.path)
        await asyncio.to_thread(disk.sync_everything)
        flush = package.FlushOptions(flush_type=package.FlushType.WAL)
        watch = Stopwatch()
        for number in range(count):
            handle = await database.put(f"inbox/{number:08}".encode(), data)
            await database.flush_with_options(flush)
            await handle.await_durable()
            disk.sync()
        seconds = watch.seconds()
        await database.shutdown()
        return Sample(count * per_put, seconds)
