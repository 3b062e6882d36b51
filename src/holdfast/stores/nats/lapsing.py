"""Messages that expire before anybody claims them: what upkeep does, for claims only see what they are handed.

Only a task itself tells when it expires. So upkeep of a queue that has such tasks, as a mark says, reads each task
once, and remembers those that expire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import damage, deadline
from .connection import WINDOW
from .names import id_of
from .wire import Post

if TYPE_CHECKING:
    from .letters import Letters
    from .partition import Partition


class Lapses:
    """Of one queue, as far as this process has looked."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._is_marked = False
        self._read_upto = 0  # a sequence of the stream of tasks
        self._ends: dict[str, float] = {}  # by id: when it expires

    async def mark(self) -> None:
        """Say that some tasks of the queue expire; before the first of them is stored."""
        if not self._is_marked:
            await self._partition.connection.store([Post(self._partition.names.expiring, b"1", "", None)])
            self._is_marked = True

    async def _marked(self) -> bool:
        names = self._partition.names
        if not self._is_marked:
            self._is_marked = await self._partition.reader.last_exact(names.task_stream, names.expiring) is not None
        return self._is_marked

    async def end(self, letters: Letters) -> int:
        """End what has expired and nobody holds; how many."""
        if self._partition.dead or not await self._marked():
            return 0
        await self._read()
        now, ended = self._partition.connection.now(), 0
        for id in [id for id, end in self._ends.items() if end <= now]:
            done = await letters.lapse(id)
            ended += done is True
            if done is not None:
                del self._ends[id]
            deadline.renew()
        return ended

    async def _read(self) -> None:
        """The tasks that were stored since the last look."""
        partition, names = self._partition, self._partition.names
        while page := await partition.reader.run(names.task_stream, f"{names.task}*.>", self._read_upto + 1, WINDOW):
            for one in page:
                if (end := damage.task_of(one).expires) > 0:
                    self._ends[id_of(one.subject)] = end
            self._read_upto = page[-1].sequence
            deadline.renew()
