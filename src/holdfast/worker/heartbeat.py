"""The heartbeat: extends the leases of everything in hand, from a thread where the store can, so that a blocked event
loop loses nothing; else from a task."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any

from ..errors import QueueNotFound
from ..queue import Queue
from ..stores.base import PAGE_ROWS, Store
from .in_flight import InFlight, Job
from .outage import Outage
from .settler import by_queue

BEATS_PER_LEASE = 3  # two may fail before the lease is lost


class Heartbeat:
    """Looks every third of a lease; extends what is a third of a lease old."""

    def __init__(
        self,
        name: str,
        store: Callable[[], Store],
        in_flight: InFlight,
        outage: Outage,
        *,
        lease: Callable[[Queue[Any] | None], float],
        lost: Callable[[Job], None],
    ) -> None:
        self._name = name
        self._store = store
        self._lease = lease  # seconds: a queue's, or the shortest
        self._in_flight = in_flight
        self._outage = outage
        self._doing = f"extend leases of {name}"
        self._lost = lost
        self._closing = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        threading.Thread(target=self._watch, name=f"holdfast-heartbeat-{self._name}", daemon=True).start()

    async def stop(self, deadline: float) -> None:
        """Nothing is extended after this."""
        self._closing.set()
        self._in_flight.any.set()
        if self._task is not None:
            self._task.cancel()
        if self._ended is not None:
            await asyncio.wait({self._ended}, timeout=deadline)

    # ------------------------------------------------------------------ in the thread

    def _watch(self) -> None:
        able = True
        while able and not self._closing.wait(self._interval):
            able = self._extend_in_thread(self._due())
            self._rest()
        if able:
            self._call_loop(self._end)
        else:
            self._call_loop(self._go_on_as_task)

    def _rest(self) -> None:
        """Until something is held: the threads of a thousand idle workers would wake for nothing."""
        taken = self._in_flight.any
        taken.clear()
        if not self._in_flight.held and not self._closing.is_set():
            taken.wait()

    def _extend_in_thread(self, jobs: list[Job]) -> bool:
        """False: this store cannot."""
        for queue, part in _parts(jobs):
            try:
                ends = self._store().extend_from_thread(queue.name, _leases(part), self._lease(queue))
            except QueueNotFound:  # its messages went with it; those of other queues are still held
                continue
            except Exception as error:  # noqa: BLE001 - the store may be away; the next look tries again
                self._failed(error)
                return True
            if ends is None:
                return False
            self._outage.worked(self._doing)
            self._call_loop(self._extended, part, ends)
        return True

    def _call_loop(self, callback: Callable[..., None], *args: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed: the worker is gone
            self._closing.set()

    # ------------------------------------------------------------------ as a task

    def _go_on_as_task(self) -> None:
        self._end()
        if not self._closing.is_set():
            self._task = asyncio.create_task(self._watch_in_loop())

    async def _watch_in_loop(self) -> None:
        jobs = self._due()
        while True:
            for queue, part in _parts(jobs):
                try:
                    ends = await self._store().extend(queue.name, _leases(part), self._lease(queue))
                except QueueNotFound:
                    continue
                except Exception as error:  # noqa: BLE001 - the store may be away; the next look tries again
                    self._failed(error)
                    break
                self._outage.worked(self._doing)
                self._extended(part, ends)
            await asyncio.sleep(self._interval)
            jobs = self._due()

    # ------------------------------------------------------------------ both

    @property
    def _interval(self) -> float:
        return self._lease(None) / BEATS_PER_LEASE

    def _due(self) -> list[Job]:
        old = monotonic() - self._interval
        # list() of a set is one step of the interpreter: safe while the event loop's thread runs
        return [job for job in list(self._in_flight.held) if job.since <= old and not job.lost]

    def _extended(self, jobs: Sequence[Job], ends: Sequence[float | None]) -> None:
        now = monotonic()
        for job, end in zip(jobs, ends, strict=True):
            if end is not None:
                job.since = now
            elif job in self._in_flight.held and job.settlement is None and not job.lost:
                self._lost(job)

    def _failed(self, error: Exception) -> None:
        if not self._closing.is_set():
            self._outage.failed(self._doing, error)

    def _end(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


def _parts(jobs: list[Job]) -> Iterator[tuple[Queue[Any], Sequence[Job]]]:
    """Of one queue each, and not too many."""
    for mine in by_queue(jobs):
        for start in range(0, len(mine), PAGE_ROWS):
            yield mine[0].queue, mine[start : start + PAGE_ROWS]


def _leases(jobs: Sequence[Job]) -> list[tuple[str, str]]:
    return [(job.message.id, job.message.token) for job in jobs]
