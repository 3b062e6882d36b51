"""`python -m chaos.bits.killed URL`: sends and completes messages, says which, and ends as a killed process does."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import msgspec

import holdfast

from .story import QUEUE, Kept, value

_COUNT = 10


async def _main(url: str) -> None:
    kept = Kept()
    async with holdfast.connect(url) as broker:
        queue: Any = await broker.queue(QUEUE)
        for number in range(_COUNT):
            sent = value("logged", number, 10)
            kept.waiting[await queue.enqueue(sent, priority=250)] = sent
        for each in await queue.dequeue_many(_COUNT // 2):
            await each.complete()
            kept.finished[each.id] = kept.waiting.pop(each.id)
        sys.stdout.buffer.write(msgspec.json.encode(kept))
        sys.stdout.flush()
        os._exit(0)  # nothing is closed: the write-ahead log stays


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
