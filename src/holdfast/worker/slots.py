"""The lanes: `concurrency` long-lived tasks over one buffer, each running one message at a time.

No task, timer or context manager per message: the handler is awaited in the lane itself. A lost lease cancels the lane,
which catches its own cancellation and goes on with the next message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any

from ..codecs import encode_result
from ..stores.records import Settlement
from .call import Call
from .in_flight import Hands, Job
from .settlement import Judge

_WOKEN_AT_ONCE = 4  # slots; each wakes further ones, so fast handlers wake few in vain
_SLICE_S = 0.01  # a slot may go on so long without giving the event loop a turn


class Lane:
    """One of the lanes: what it runs and how it is interrupted."""

    __slots__ = ("interrupts", "jobs", "resting", "task", "waiter")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.jobs: Sequence[Job] = ()
        self.interrupts = 0
        self.resting = False  # waits for a thread that has no outcome any more

    def interrupt(self) -> None:
        """Cancel the handler that runs here, not the lane."""
        if self.task is not None and self.jobs:
            self.interrupts += 1
            self.task.cancel()

    def recover(self) -> None:
        """Forget the cancellations that were meant for the handler."""
        while self.interrupts and self.task is not None:
            self.interrupts -= 1
            self.task.uncancel()

    def is_foreign(self) -> bool:
        """Whether somebody else cancels the lane: then it must end."""
        return self.task is not None and self.task.cancelling() > self.interrupts


class Lanes:
    """All lanes of one worker."""

    def __init__(self, hands: Hands, judge: Judge, call: Call, *, concurrency: int, keep_values: bool) -> None:
        self._hands = hands
        self._judge = judge
        self._call = call
        self._keep_values = keep_values
        self._lanes = [Lane() for _ in range(concurrency)]
        self._idle: list[Lane] = []
        self._woken = 0
        self._closing = False

    def start(self) -> list[asyncio.Task[None]]:
        for number, lane in enumerate(self._lanes):
            lane.task = asyncio.create_task(self._run(lane), name=f"holdfast-lane-{number}")
        return [lane.task for lane in self._lanes if lane.task is not None]

    def put(self, jobs: Sequence[Job]) -> None:
        self._hands.buffer.extend(jobs)
        self._wake()

    def close(self) -> None:
        """Lanes end when they have nothing more to do."""
        self._closing = True
        for lane in self._idle:
            if lane.waiter is not None and not lane.waiter.done():
                lane.waiter.set_result(None)
        self._idle.clear()
        for lane in self._lanes:
            if lane.resting and lane.task is not None:
                lane.task.cancel()

    def lose(self, job: Job) -> None:
        """Somebody else holds this message now: its outcome is dropped, an async handler is cancelled."""
        job.lost = True
        if job.lane is None:
            self._hands.buffer.remove(job)
            self._hands.drop(job)
        elif self._call.is_async and all(other.lost for other in job.lane.jobs):
            job.lane.interrupt()

    def interrupt(self) -> None:
        """Cancel everything that still runs; sync handlers run on, unobserved."""
        for lane in self._lanes:
            for job in lane.jobs:
                job.stale = True
            lane.interrupt()

    def abandon(self) -> None:
        """Give back what even a cancellation did not end."""
        for lane in self._lanes:
            for job in lane.jobs:
                if not job.lost:
                    job.lost = True  # whatever the handler still says
                    self._hands.finish(job, self._judge.released(job))

    # ------------------------------------------------------------------ one lane

    async def _run(self, lane: Lane) -> None:
        buffer, since = self._hands.buffer, monotonic()
        while True:
            if not buffer:
                if not await self._park(lane):
                    return
                since = monotonic()
                continue
            job = buffer.popleft()
            if buffer and self._woken < _WOKEN_AT_ONCE:
                self._wake()
            await self._process(lane, job)
            if (thread := self._call.late.pop(job, None)) is not None:
                await self._outlast(lane, thread)
            if job.finished_at - since > _SLICE_S:
                await asyncio.sleep(0)
                since = monotonic()

    async def _process(self, lane: Lane, job: Job) -> None:
        """Decode, run, judge, hand over."""
        job.lane, lane.jobs = lane, (job,)
        try:
            value = self._decode(job)
        except Exception as error:  # noqa: BLE001 - whatever a payload does to a codec, the worker lives
            self._end(lane, job, self._unreadable(job, error))
            return
        try:
            job.result = await self._call.run(value, job)
            settlement = self._completed(job)
        except asyncio.CancelledError as error:
            settlement = self._cancelled(lane, job, error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the edge of the handler
            settlement = self._failed(job, error)
        self._end(lane, job, settlement)

    def _decode(self, job: Job) -> Any:
        job.started_at = monotonic()
        value = self._call.decode(job.message.payload, job.message.content_type)
        if self._keep_values:
            job.value = value
        return value

    def _completed(self, job: Job) -> Settlement:
        return self._judge.completed(job, None if job.result is None else encode_result(job.result))

    def _failed(self, job: Job, error: BaseException) -> Settlement:
        job.error = error
        return self._judge.failed(job, error)

    def _unreadable(self, job: Job, error: BaseException) -> Settlement:
        job.error = error
        return self._judge.unreadable(job, error)

    def _cancelled(self, lane: Lane, job: Job, error: asyncio.CancelledError) -> Settlement:
        if lane.is_foreign():
            raise error
        return self._judge.released(job) if lane.interrupts else self._failed(job, error)

    def _end(self, lane: Lane, job: Job, settlement: Settlement) -> None:
        """The outcome goes to the settler, unless it is no longer ours to decide."""
        job.finished_at = monotonic()
        job.lane, lane.jobs = None, ()
        if lane.interrupts:
            lane.recover()
        if not job.lost:
            self._hands.finish(job, settlement)
        elif job.settlement is None:
            self._hands.drop(job)

    # ------------------------------------------------------------------ waiting

    def _wanted(self) -> int:
        """How many lanes the buffer could use."""
        return len(self._hands.buffer)

    def _wake(self) -> None:
        wanted = min(self._wanted(), _WOKEN_AT_ONCE)
        while self._woken < wanted and self._idle:
            waiter = self._idle.pop().waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
                self._woken += 1

    async def _park(self, lane: Lane) -> bool:
        """Wait for work; False: there will be none."""
        if self._closing:
            return False
        lane.waiter = asyncio.get_running_loop().create_future()
        self._idle.append(lane)
        await lane.waiter
        lane.waiter = None
        self._woken -= 1
        return True

    async def _outlast(self, lane: Lane, thread: asyncio.Future[Any]) -> None:
        """A sync handler that timed out still has its thread: the lane waits, so that `concurrency` stays true."""
        if self._closing:
            return
        self._hands.blocked += 1
        lane.resting = True
        try:
            await asyncio.wait({thread})
        finally:
            lane.resting = False
            self._hands.blocked -= 1
            self._hands.make_room()
