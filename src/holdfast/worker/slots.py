"""The slots: `concurrency` long-lived tasks over one buffer, each running one message at a time.

No task, timer or context manager per message: the handler is awaited in the slot itself. A lost lease cancels the slot,
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
from .in_flight import InFlight, Job
from .settlement import Settlements

_WOKEN_AT_ONCE = 4  # slots; each wakes further ones, so fast handlers wake few in vain
_SLICE_S = 0.01  # a slot may go on so long without giving the event loop a turn


class Slot:
    """One of the slots: what it runs and how it is interrupted."""

    __slots__ = ("interrupts", "jobs", "resting", "task", "waiter")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.jobs: Sequence[Job] = ()
        self.interrupts = 0
        self.resting = False  # waits for a thread that has no outcome any more

    def interrupt(self) -> None:
        """Cancel the handler that runs here, not the slot."""
        if self.task is not None and self.jobs:
            self.interrupts += 1
            self.task.cancel()

    def recover(self) -> None:
        """Forget the cancellations that were meant for the handler."""
        while self.interrupts and self.task is not None:
            self.interrupts -= 1
            self.task.uncancel()

    def is_foreign(self) -> bool:
        """Whether somebody else cancels the slot: then it must end."""
        return self.task is not None and self.task.cancelling() > self.interrupts


class Slots:
    """All slots of one worker."""

    def __init__(
        self, in_flight: InFlight, settlements: Settlements, call: Call, *, concurrency: int, keep_values: bool
    ) -> None:
        self._in_flight = in_flight
        self._settlements = settlements
        self._call = call
        self._keep_values = keep_values
        self._slots = [Slot() for _ in range(concurrency)]
        self._idle: list[Slot] = []
        self._woken = 0
        self._closing = False

    def start(self) -> list[asyncio.Task[None]]:
        for number, slot in enumerate(self._slots):
            slot.task = asyncio.create_task(self._run(slot), name=f"holdfast-slot-{number}")
        return [slot.task for slot in self._slots if slot.task is not None]

    def put(self, jobs: Sequence[Job]) -> None:
        self._in_flight.buffer.extend(jobs)
        self._wake()

    def close(self) -> None:
        """Slots end when they have nothing more to do."""
        self._closing = True
        for slot in self._idle:
            if slot.waiter is not None and not slot.waiter.done():
                slot.waiter.set_result(None)
        self._idle.clear()
        for slot in self._slots:
            if slot.resting and slot.task is not None:
                slot.task.cancel()

    def lose(self, job: Job) -> None:
        """Somebody else holds this message now: its outcome is dropped, an async handler is cancelled."""
        job.lost = True
        if job.slot is None:
            self._in_flight.buffer.remove(job)
            self._in_flight.drop(job)
        elif self._call.is_async and all(other.lost for other in job.slot.jobs):
            job.slot.interrupt()

    def interrupt(self) -> None:
        """Cancel everything that still runs; sync handlers run on, unobserved."""
        for slot in self._slots:
            for job in slot.jobs:
                job.stale = True
            slot.interrupt()

    def abandon(self) -> None:
        """Give back what even a cancellation did not end."""
        for slot in self._slots:
            for job in slot.jobs:
                if not job.lost:
                    job.lost = True  # whatever the handler still says
                    self._in_flight.finish(job, self._settlements.released(job))

    # ------------------------------------------------------------------ one slot

    async def _run(self, slot: Slot) -> None:
        buffer, since = self._in_flight.buffer, monotonic()
        while True:
            if not buffer:
                if not await self._park(slot):
                    return
                since = monotonic()
                continue
            job = buffer.popleft()
            if buffer and self._woken < _WOKEN_AT_ONCE:
                self._wake()
            await self._process(slot, job)
            if (thread := self._call.late.pop(job, None)) is not None:
                await self._outlast(slot, thread)
            if job.finished_at - since > _SLICE_S:
                await asyncio.sleep(0)
                since = monotonic()

    async def _process(self, slot: Slot, job: Job) -> None:
        """Decode, run, decide, hand over."""
        job.slot, slot.jobs = slot, (job,)
        try:
            value = self._decode(job)
        except Exception as error:  # noqa: BLE001 - whatever a payload does to a codec, the worker lives
            self._end(slot, job, self._unreadable(job, error))
            return
        try:
            job.result = await self._call.run(value, job)
            settlement = self._completed(job)
        except asyncio.CancelledError as error:
            settlement = self._cancelled(slot, job, error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the edge of the handler
            settlement = self._failed(job, error)
        self._end(slot, job, settlement)

    def _decode(self, job: Job) -> Any:
        job.started_at = monotonic()
        value = self._call.decode(job.message.payload, job.message.content_type)
        if self._keep_values:
            job.value = value
        return value

    def _completed(self, job: Job) -> Settlement:
        return self._settlements.completed(job, None if job.result is None else encode_result(job.result))

    def _failed(self, job: Job, error: BaseException) -> Settlement:
        job.error = error
        return self._settlements.failed(job, error)

    def _unreadable(self, job: Job, error: BaseException) -> Settlement:
        job.error = error
        return self._settlements.unreadable(job, error)

    def _cancelled(self, slot: Slot, job: Job, error: asyncio.CancelledError) -> Settlement:
        if slot.is_foreign():
            raise error
        return self._settlements.released(job) if slot.interrupts else self._failed(job, error)

    def _end(self, slot: Slot, job: Job, settlement: Settlement) -> None:
        """The outcome goes to the settler, unless it is no longer ours to decide."""
        job.finished_at = monotonic()
        job.slot, slot.jobs = None, ()
        if slot.interrupts:
            slot.recover()
        if not job.lost:
            self._in_flight.finish(job, settlement)
        elif job.settlement is None:
            self._in_flight.drop(job)

    # ------------------------------------------------------------------ waiting

    def _wanted(self) -> int:
        """How many slots the buffer could use."""
        return len(self._in_flight.buffer)

    def _wake(self) -> None:
        wanted = min(self._wanted(), _WOKEN_AT_ONCE)
        while self._woken < wanted and self._idle:
            waiter = self._idle.pop().waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
                self._woken += 1

    async def _park(self, slot: Slot) -> bool:
        """Wait for work; False: there will be none."""
        if self._closing:
            return False
        slot.waiter = asyncio.get_running_loop().create_future()
        self._idle.append(slot)
        await slot.waiter
        slot.waiter = None
        self._woken -= 1
        return True

    async def _outlast(self, slot: Slot, thread: asyncio.Future[Any]) -> None:
        """A sync handler that timed out still has its thread: the slot waits, so that `concurrency` stays true."""
        if self._closing:
            return
        self._in_flight.blocked += 1
        slot.resting = True
        try:
            await asyncio.wait({thread})
        finally:
            slot.resting = False
            self._in_flight.blocked -= 1
            self._in_flight.make_room()
