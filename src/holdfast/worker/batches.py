"""Slots for a handler that takes a list: each run has as many messages as wait, up to `batch`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any

from ..stores.records import Settlement
from .call import Call
from .in_flight import InFlight, Job
from .settlement import Settlements
from .slots import Slot, Slots


class BatchSlots(Slots):
    """One outcome of the handler is the outcome of all its messages, unless it returns one for each."""

    def __init__(
        self,
        in_flight: InFlight,
        settlements: Settlements,
        call: Call,
        *,
        concurrency: int,
        keep_values: bool,
        batch: int,
    ) -> None:
        super().__init__(in_flight, settlements, call, concurrency=concurrency, keep_values=keep_values)
        self._batch = batch

    def _wanted(self) -> int:
        return -(-len(self._in_flight.buffer) // self._batch)

    async def _run(self, slot: Slot) -> None:
        buffer = self._in_flight.buffer
        while buffer or await self._park(slot):
            jobs = [buffer.popleft() for _ in range(min(self._batch, len(buffer)))]
            if buffer:
                self._wake()
            if jobs:
                await self._process_all(slot, jobs)
                await asyncio.sleep(0)

    async def _process_all(self, slot: Slot, jobs: Sequence[Job]) -> None:
        """Decode, run, decide, hand over."""
        slot.jobs = jobs
        for job in jobs:
            job.slot = slot
        good = [job for job in jobs if self._readable(job)]
        values = [job.value for job in good]
        if not good:
            slot.jobs = ()
            return
        slot.jobs = good
        try:
            results = await self._call.run(values, good[0])
            settlements = self._settled(good, results)
        except asyncio.CancelledError as error:
            settlements = [self._cancelled(slot, job, error) for job in good]
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the edge of the handler
            settlements = [self._failed(job, error) for job in good]
        for job, settlement in zip(good, settlements, strict=True):
            self._end(slot, job, settlement)
        if (thread := self._call.late.pop(good[0], None)) is not None:
            await self._outlast(slot, thread)

    def _readable(self, job: Job) -> bool:
        """Decode into the job; what cannot be decoded is dead and does not trouble the others."""
        job.started_at = monotonic()
        try:
            job.value = self._call.decode(job.message.payload, job.message.content_type)
        except Exception as error:  # noqa: BLE001 - whatever a payload does to a codec, the worker lives
            job.slot, job.finished_at = None, job.started_at
            self._in_flight.finish(job, self._unreadable(job, error))
            return False
        return True

    def _settled(self, jobs: Sequence[Job], results: Any) -> list[Settlement]:
        if results is None:
            return [self._settlements.completed(job, None) for job in jobs]
        if not isinstance(results, list | tuple) or len(results) != len(jobs):
            raise TypeError(f"a batch handler returns None or a list of as many results as values ({len(jobs)})")
        return [self._settled_one(job, result) for job, result in zip(jobs, results, strict=True)]

    def _settled_one(self, job: Job, result: Any) -> Settlement:
        """A result of its own, or an exception of its own."""
        if isinstance(result, Exception):
            return self._failed(job, result)
        job.result = result
        try:
            return self._completed(job)
        except Exception as error:  # noqa: BLE001 - a result that cannot be encoded fails its own message only
            return self._failed(job, error)
