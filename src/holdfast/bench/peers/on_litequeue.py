"""litequeue: WAL, synchronous=FULL (its default is NORMAL), bulk inside one transaction of 1000."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from litequeue import LiteQueue

from .driver import BATCH_MESSAGES, main


class OnLiteQueue:
    settings = "LiteQueue, WAL, synchronous=FULL, 256 MB cache, bulk in transactions of 1000"

    def __init__(self, folder: str) -> None:
        self._queue = LiteQueue(os.path.join(folder, "lite.db"))
        self._queue.conn.execute("PRAGMA synchronous = FULL")

    def put_many(self, bodies: Sequence[str]) -> None:
        for start in range(0, len(bodies), BATCH_MESSAGES):
            with self._queue.transaction():
                for body in bodies[start : start + BATCH_MESSAGES]:
                    self._queue.put(body)

    def put(self, body: str) -> None:
        self._queue.put(body)

    def drain(self, count: int, handler: Callable[[str], None]) -> None:
        for _ in range(count):
            message = self._queue.pop()
            handler(message.data)
            self._queue.done(message.message_id)


def run() -> None:
    main("litequeue", {"ack": OnLiteQueue})
