"""A process that may open few files, and one that has used them up."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import holdfast

FEW = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import holdfast

async def main():
    async with holdfast.connect(sys.argv[1]) as broker:
        for number in range(200):
            await (await broker.queue(f"q{number}")).enqueue(number)
        queue = await broker.queue("large", bytes)
        await queue.enqueue(bytes(300_000))
        delivery = await queue.dequeue()
        assert len(delivery.value) == 300_000
        await delivery.complete()
asyncio.run(main())
"""


def test_two_hundred_queues_with_sixty_four_descriptors(tmp_path: Path):
    command = [sys.executable, "-c", FEW, (tmp_path / "store").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


async def test_descriptors_are_given_back_to_who_needs_one(tmp_path: Path):
    """Whoever else in the process has opened the rest."""
    async with holdfast.connect(tmp_path.as_uri()) as broker:
        queue = await broker.queue("large", bytes)
        await queue.enqueue(bytes(300_000))
        for number in range(20):
            await (await broker.queue(f"q{number}")).enqueue(number)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, hard))
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            key = (await broker.store.space.read(lambda view: view.list("large@")))[-1]
            found = await broker.store.space.read(lambda view: view.get(key))
        finally:
            for fd in taken:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found is not None
    assert len(found.data) >= 300_000
