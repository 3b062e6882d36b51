"""What a worker has in its hands: each claimed message from the claim until its outcome is durable."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..messages import Claimed, Settlement

if TYPE_CHECKING:
    from .lanes import Lane


class Job:
    """One claimed message and what became of it so far."""

    __slots__ = (
        "error", "finished_at", "lane", "lost", "message", "result", "settlement", "since", "stale", "started_at",
        "value",
    )  # fmt: skip

    def __init__(self, message: Claimed, since: float) -> None:
        self.message = message
        self.since = since  # when it was claimed or its lease last extended, by the loop's clock
        self.lane: Lane | None = None  # where it runs
        self.lost = False  # somebody else may hold it: its outcome is dropped
        self.stale = False  # nobody waits for this run any more, though its lease was ours
        self.settlement: Settlement | None = None  # its outcome, once it has one
        self.result: Any = None
        self.error: BaseException | None = None
        self.started_at = 0.0
        self.finished_at = 0.0
        self.value: Any = None  # kept only when a callback will want it


class Hands:
    """Everything one worker holds, and the signals between its loops."""

    def __init__(self) -> None:
        self.held: dict[str, Job] = {}  # by token: claimed, not yet settled
        self.buffer: deque[Job] = deque()  # waiting for a lane
        self.open = 0  # buffered or running
        self.blocked = 0  # lanes whose thread has not come back from a handler that timed out
        self.finished: list[Job] = []  # waiting to be settled
        self.room = asyncio.Event()  # something was finished
        self.news = asyncio.Event()  # something waits to be settled
        self.empty = asyncio.Event()  # nothing is held
        self.empty.set()

    def take(self, messages: Iterable[Claimed], now: float) -> list[Job]:
        """Hold what was just claimed."""
        jobs = [Job(message, now) for message in messages]
        if jobs:
            self.held.update((job.message.token, job) for job in jobs)
            self.open += len(jobs)
            self.empty.clear()
        return jobs

    def finish(self, job: Job, settlement: Settlement) -> None:
        """The job has an outcome; it is held until that is durable."""
        job.settlement = settlement
        self.finished.append(job)
        self.open -= 1
        self.room.set()
        self.news.set()

    def take_finished(self) -> list[Job]:
        """Everything that waits to be settled, now the caller's."""
        jobs, self.finished = self.finished, []
        self.news.clear()
        return jobs

    def settled(self, jobs: Iterable[Job]) -> None:
        """The outcomes are durable, or no longer ours to decide."""
        held = self.held
        for job in jobs:
            held.pop(job.message.token, None)
        if not held:
            self.empty.set()

    def drop(self, job: Job) -> None:
        """A job that is no longer ours leaves without an outcome."""
        self.open -= 1
        self.room.set()
        self.settled((job,))
