"""Backup and restore of queues in JetStream; see `stores/backups.py` for the promises.

There is no snapshot of several streams. Records of ended messages are read first, then tasks with their records, then
the records that were written meanwhile, with the marks of schedules before and after, until nobody has fired in
between; where a message was seen first, there it is. So each is in one state, of a time
between the begin and the end of the copy of its queue. A queue that is restored has streams, and appears when its entry
is written.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ..backups import NewQueue
from .backup_copy import NatsSnapshot
from .backup_restore import NatsRestoring
from .partition import Partition
from .queues import Register
from .schedules import NatsSchedules


class NatsBackups:
    """Of one store."""

    one_instant = False

    def __init__(
        self, register: Register, schedules: NatsSchedules, partition: Callable[[str], Partition], timeout: float
    ) -> None:
        self._register = register
        self._schedules = schedules
        self._partition = partition
        self._timeout = timeout

    @asynccontextmanager
    async def snapshot(self, queues: Sequence[str]) -> AsyncIterator[NatsSnapshot]:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-backup-"))
        try:
            await self._register.all(damaged=False)  # a queue that is not listed must not be left out without a word
            snapshot = NatsSnapshot(folder, self._schedules, self._timeout)
            for name in queues:
                await snapshot.copy(self._partition(name))
            yield snapshot
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @asynccontextmanager
    async def restoring(self, backup: str, queues: Sequence[NewQueue]) -> AsyncIterator[NatsRestoring]:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-restore-"))
        try:
            restoring = NatsRestoring(
                self._register, self._schedules, self._partition, backup, queues, folder, self._timeout
            )
            await restoring.begin()
            yield restoring
        finally:
            shutil.rmtree(folder, ignore_errors=True)
