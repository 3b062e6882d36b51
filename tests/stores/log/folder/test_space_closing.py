"""Closing a folder has the time of one call, and holds up nobody, whoever has its lock and whatever its disk does."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from chaos.frozen.places import opened
from holdfast.testing.contract.base import eventually

BRIEF = 1.0  # seconds a call may take
HANGS = 4.0  # seconds
HUNG = f"""
import fcntl, os, sys, time
mounted = os.open(sys.argv[1], os.O_RDONLY)
fcntl.ioctl(mounted, 0xC0045877, 0)
print("hung", flush=True)
time.sleep({HANGS})
fcntl.ioctl(mounted, 0xC0045878, 0)
"""


async def used(url: str) -> tuple[holdfast.Broker, holdfast.Queue[int]]:
    broker = await holdfast.connect(url, operation_timeout=BRIEF)
    queue = await broker.queue("jobs", int)
    await queue.enqueue_many([1, 2])
    delivery = await queue.dequeue(wait=5)
    assert delivery is not None
    await delivery.complete()
    return broker, queue


async def test_a_lock_that_is_held_takes_the_time_of_one_call() -> None:
    """Not that of the flush under way, and then its own."""
    with opened("file") as place:
        broker, queue = await used(place.url)
        begin, end = place.faults["stopped"]
        log: Any = queue.store._log("jobs")  # type: ignore[attr-defined]  # of this store
        await asyncio.to_thread(begin)
        try:
            await eventually(lambda: log._flushing is not None, "a flush")
            began = time.monotonic()
            await broker.close()
            assert time.monotonic() - began < 1.5 * BRIEF
        finally:
            await asyncio.to_thread(end)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs a disk of its own, which root mounts")
async def test_a_disk_that_hangs_holds_up_who_closes_and_nobody_else() -> None:
    """The last connection of all copies SQLite's log: not while it keeps every other thread from running."""
    with opened("file") as place:
        if "hung" not in place.faults:
            pytest.skip("no disk of its own can be mounted here")
        broker, _ = await used(place.url)
        command = [sys.executable, "-c", HUNG, str(Path(place.url.removeprefix("file://")).parent)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as hanging:  # noqa: ASYNC220 - it takes a moment
            assert hanging.stdout is not None
            await asyncio.to_thread(hanging.stdout.readline)
            late, closing = 0.0, asyncio.ensure_future(broker.close())
            while not closing.done():
                began = time.monotonic()
                await asyncio.sleep(0.01)
                late = max(late, time.monotonic() - began)
            await closing
        assert late < HANGS / 2
