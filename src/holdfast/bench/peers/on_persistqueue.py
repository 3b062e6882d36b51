"""persist-queue: the queue with acknowledgements, and the one whose reader commits its position in batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from persistqueue import SQLiteAckQueue, SQLiteQueue

from .driver import BATCH_MESSAGES, main


class OnAckQueue:
    settings = "SQLiteAckQueue, WAL, synchronous=FULL, auto_commit=True; no bulk call"

    def __init__(self, folder: str) -> None:
        self._queue = SQLiteAckQueue(os.path.join(folder, "ack"), auto_commit=True)
        self._queue._putter.execute("PRAGMA synchronous = FULL")

    def put_many(self, bodies: Sequence[str]) -> None:
        for body in bodies:
            self._queue.put(body)

    def put(self, body: str) -> None:
        self._queue.put(body)

    def drain(self, count: int, handler: Callable[[str], None]) -> None:
        for _ in range(count):
            item = self._queue.get(raw=True)
            handler(item["data"])
            self._queue.ack(id=item["pqid"])


class OnCursorQueue:
    settings = (
        f"SQLiteQueue, WAL, synchronous=FULL, auto_commit=False, task_done() every {BATCH_MESSAGES}: "
        "one reader, no retry"
    )

    def __init__(self, folder: str) -> None:
        self._queue = SQLiteQueue(os.path.join(folder, "cursor"), auto_commit=False)
        self._queue._putter.execute("PRAGMA synchronous = FULL")

    def put_many(self, bodies: Sequence[str]) -> None:
        for start in range(0, len(bodies), BATCH_MESSAGES):
            for body in bodies[start : start + BATCH_MESSAGES]:
                self._queue.put(body)
            self._queue.task_done()

    def put(self, body: str) -> None:
        self._queue.put(body)
        self._queue.task_done()

    def drain(self, count: int, handler: Callable[[str], None]) -> None:
        for number in range(1, count + 1):
            handler(self._queue.get())
            if number % BATCH_MESSAGES == 0 or number == count:
                self._queue.task_done()


def run() -> None:
    main("persist-queue", {"ack": OnAckQueue, "cursor": OnCursorQueue})
