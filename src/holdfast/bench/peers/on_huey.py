"""huey on SQLite: WAL, fsync on each commit, results off. Its claim deletes the message: at most once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from huey import SqliteHuey

from .driver import main


class OnHuey:
    settings = "SqliteHuey, journal_mode=wal, fsync=True, results=False, cache_mb=64; no bulk call"

    def __init__(self, folder: str) -> None:
        self._huey = SqliteHuey(
            filename=os.path.join(folder, "huey.db"), fsync=True, journal_mode="wal", cache_mb=64, results=False
        )
        self._handler: Callable[[str], None]  # set by `drain`
        self._task = self._huey.task()(self._handle)

    def _handle(self, body: str) -> None:
        self._handler(body)

    def put_many(self, bodies: Sequence[str]) -> None:
        for body in bodies:
            self._task(body)

    def put(self, body: str) -> None:
        self._task(body)

    def drain(self, count: int, handler: Callable[[str], None]) -> None:
        # What its consumer's worker does, without the threads and polling around it.
        self._handler = handler
        for _ in range(count):
            self._huey.execute(self._huey.dequeue())


class OnStorage(OnHuey):
    """Its storage alone: bytes in, bytes out."""

    def put_many(self, bodies: Sequence[str]) -> None:
        for body in bodies:
            self.put(body)

    def put(self, body: str) -> None:
        self._huey.storage.enqueue(body.encode())

    def drain(self, count: int, handler: Callable[[str], None]) -> None:
        for _ in range(count):
            handler(self._huey.storage.dequeue().decode())


def run() -> None:
    main("huey", {"ack": OnHuey, "storage": OnStorage})
