"""What a worker holds: each claimed message from the claim until its outcome is durable."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from ..stores.records import Claimed, Settlement

if TYPE_CHECKING:
    from ..queue import Queue
    from .slots import Slot


class Job(msgspec.Struct, eq=False):
    """One claimed message and what became of it so far."""

    message: Claimed
    since: float  # when it was claimed or its lease last extended, by the monotonic clock
    queue: Queue[Any]
    slot: Slot | None = None  # where it runs
    lost: bool = False  # somebody else may hold it: its outcome is dropped
    stale: bool = False  # nobody waits for this run any more, though its lease was ours
    settlement: Settlement | None = None  # its outcome, once it has one
    value: Any = None  # kept only when a callback will want it
    result: Any = None
    error: BaseException | None = None
    started_at: float = 0.0
    finished_at: float = 0.0


class InFlight:
    """Everything one worker holds, and the signals between its loops."""

    def __init__(self, gone: Callable[[Collection[Job]], None]) -> None:
        self._gone = gone  # told whatever is no longer held
        self.held: set[Job] = set()  # claimed, not yet settled
        self.buffer: deque[Job] = deque()  # waiting for a slot
        self.open = 0  # buffered or running
        self.blocked = 0  # slots whose thread has not come back from a handler that timed out
        self.finished: list[Job] = []  # waiting to be settled
        self.full = False  # the claimer waits for room
        self.room = asyncio.Event()
        self.news = asyncio.Event()  # something waits to be settled
        self.empty = asyncio.Event()  # nothing is held
        self.empty.set()
        self.any = threading.Event()  # something was taken since a thread last found nothing held

    def take(self, messages: Iterable[Claimed], now: float, queue: Queue[Any]) -> list[Job]:
        """Hold what was just claimed."""
        jobs = [Job(message, now, queue) for message in messages]
        if jobs:
            self.held.update(jobs)
            if not self.any.is_set():
                self.any.set()
            self.open += len(jobs)
            self.empty.clear()
        return jobs

    def finish(self, job: Job, settlement: Settlement) -> None:
        """The job has an outcome; it is held until that is durable."""
        job.settlement = settlement
        if not self.finished:
            self.news.set()
        self.finished.append(job)
        self.open -= 1
        if self.full:
            self.make_room()

    def take_finished(self) -> list[Job]:
        """Everything that waits to be settled, now the caller's."""
        jobs, self.finished = self.finished, []
        self.news.clear()
        return jobs

    def settled(self, jobs: Collection[Job]) -> None:
        """The outcomes are durable, or no longer ours to decide."""
        self.held.difference_update(jobs)
        if not self.held:
            self.empty.set()
        self._gone(jobs)

    def drop(self, job: Job) -> None:
        """A job that is no longer ours leaves without an outcome."""
        self.open -= 1
        self.make_room()
        self.settled((job,))

    def make_room(self) -> None:
        """Tell the claimer that it may ask for more."""
        self.full = False
        self.room.set()

    async def wait_for_room(self) -> None:
        self.full = True
        self.room.clear()
        await self.room.wait()
