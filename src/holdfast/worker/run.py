"""One run of a worker: its loops, put together, started and stopped in order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any

from .. import message_events
from ..escaping import logger_named
from ..lifetime import CLOSING_S
from ..scheduling import Schedules
from ..stores.base import DEAD, Store
from .batches import BatchSlots
from .call import Call
from .callbacks import Callbacks, OnComplete, OnError
from .claimer import Claimer
from .context import Site
from .heartbeat import Heartbeat
from .in_flight import InFlight, Job
from .isolation import isolation_of
from .outage import Outage, Retrying
from .prefetch import Prefetch
from .schedule_rounds import Rounds
from .settlement import Settlements
from .settler import Settler
from .slots import Slots
from .threads import Threads

if TYPE_CHECKING:
    from ..config import WorkerOptions
    from ..queue import Queue
    from ..retry import RetryFunction, RetryPolicy
    from .handler import Handler

_LOG = logger_named("holdfast.worker")
SETTLE_S = 30.0  # to make the last outcomes durable; what is not, runs again
_CLAIM_CALLS = 8  # at once where a claim is expensive: they share a trip
_LEARNED_TIMES = 10  # what a store asks for in advance may grow by


class Run:
    """Made and used in one event loop, once."""

    def __init__(
        self,
        queue: Queue[Any],
        handler: Handler,
        options: WorkerOptions,
        *,
        worker_id: str,
        lease: float | None,
        maintenance_interval: float,
        retry: RetryPolicy | RetryFunction | None,
        on_error: OnError | None,
        on_complete: OnComplete | None,
        gone: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._own_lease = lease
        self._maintenance_interval = maintenance_interval
        self._gone = gone
        self._worker_id = worker_id
        self._concurrency = options.concurrency
        self._isolation = isolation_of(queue.store)
        self._in_flight = InFlight(self._isolation.settled)
        self._threads = Threads(options.concurrency, f"holdfast-{queue.name}")
        self._callback_threads = None if handler.is_async else Threads(1, f"holdfast-{queue.name}-callbacks")
        settlements = Settlements(queue, worker_id, retry=retry)
        self._callbacks = Callbacks(queue, on_error=on_error, on_complete=on_complete, threads=self._callback_threads)
        self._outage = Outage()
        self._settler = Settler(queue, self._in_flight, settlements, self._callbacks, self._outage)
        self._slots = self._make_slots(handler, options, settlements)
        self._claimer = self._make_claimer(options)
        self._heartbeat = Heartbeat(queue, self._in_flight, self._outage, lease=self._lease, lost=self._lose)
        self._claiming: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._running: list[asyncio.Task[None]] = []
        self._maintaining: asyncio.Task[None] | None = None
        self._scheduling: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._deadline = float("inf")
        self._hurry = asyncio.Event()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _make_claimer(self, options: WorkerOptions) -> Claimer:
        per_slot = options.batch or 1
        at_work = options.concurrency * per_slot
        return Claimer(
            self._queue,
            self._isolation,
            self._in_flight,
            self._slots,
            self._settler,
            self._outage,
            lease=self._lease,
            prefetch=_prefetch(self._queue.store, options, at_work),
            at_work=at_work,
            per_slot=per_slot,
            most=max(_batch_size(self._queue.store, options), at_work),
            calls=_CLAIM_CALLS if self._queue.store.capabilities.prefetch else 1,
        )

    @property
    def busy(self) -> int:
        """Messages whose handler runs."""
        return self._in_flight.open - len(self._in_flight.buffer)

    def _make_slots(self, handler: Handler, options: WorkerOptions, settlements: Settlements) -> Slots:
        site = Site(self._queue, self._worker_id, lease=self._lease, extend=self._extend)
        call = Call(handler, site, timeout=options.timeout, threads=self._threads)
        common: dict[str, Any] = {"concurrency": options.concurrency, "keep_values": self._callbacks.keeps_values}
        if options.batch is not None:
            return BatchSlots(self._in_flight, settlements, call, batch=options.batch, **common)
        return Slots(self._in_flight, settlements, call, **common)

    def start(self, watch: Callable[[Job], None] | None = None) -> None:
        self._callbacks.watch = watch
        self._running = self._slots.start()
        self._settling = self._settler.start()
        self._claiming = self._claimer.start()
        self._heartbeat.start()
        self._maintaining = asyncio.create_task(self._maintain(), name=f"holdfast-maintain-{self._queue.name}")
        if not self._queue.name.endswith(DEAD):
            book = Schedules(self._queue._opened.life, self._queue.events)
            rounds = Rounds(book, lambda: self._queue.store, self._queue.name)
            self._scheduling = asyncio.create_task(rounds.run(), name=f"holdfast-schedules-{self._queue.name}")
        for task in (*self._running, self._settling, self._claiming):
            task.add_done_callback(self._ended_early)
        name, events = self._queue.name, self._queue.events
        events.emit(message_events.worker_started(name, self._worker_id, self._concurrency))

    def is_slot(self, task: asyncio.Task[Any] | None) -> bool:
        return task in self._running

    def stop(self, grace: float) -> asyncio.Task[None]:
        """Begin to stop, or shorten the grace of a stop that has begun."""
        deadline = monotonic() + grace
        if deadline < self._deadline:
            self._deadline = deadline
            self._hurry.set()
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name=f"holdfast-stop-{self._queue.name}")
        return self._stopping

    # ------------------------------------------------------------------ while it runs

    def _lease(self) -> float:
        """Seconds: the worker's own, or the queue's, which may change."""
        return self._queue.options.lease if self._own_lease is None else self._own_lease

    def _lose(self, job: Job) -> None:
        self._slots.lose(job)
        self._queue.events.emit(message_events.lost(self._queue.name, job.message.id))

    async def _extend(self, job: Job, seconds: float) -> bool:
        lease = (job.message.id, job.message.token)
        (end,) = await self._queue.store.extend(self._queue.name, [lease], seconds)
        if end is None and not job.lost and job.settlement is None:
            self._lose(job)
        return end is not None

    async def _maintain(self) -> None:
        retrying = Retrying(self._outage, f"maintain {self._queue.name}")
        interval = self._maintenance_interval
        while True:
            await asyncio.sleep(interval * random.uniform(0.75, 1.25))  # so that processes do not all come at once
            if self._queue.store.is_resting(self._queue.name):
                continue
            await retrying.until_done(self._queue.refresh)
            if not self._queue.name.endswith(DEAD):  # the queue's own workers maintain its dead letters too
                await retrying.until_done(lambda: self._queue.store.maintain(self._queue.name))

    def _ended_early(self, task: asyncio.Task[None]) -> None:
        """A loop that ends by an error ends the worker: half a worker helps nobody."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not self.ended.done():
            _LOG.critical("the worker of %s stops: %s: %s", self._queue.name, type(error).__name__, error)
            self.ended.set_exception(error)
            self.ended.exception()  # seen: it was logged, and `run` raises it
        self.stop(0.0)

    # ------------------------------------------------------------------ on the way out

    async def _stop(self) -> None:
        """No new claims, the buffer given back, running handlers within the grace, the rest released, all settled."""
        self._claimer.close()
        if self._scheduling is not None:
            self._scheduling.cancel()
        self._give_back_buffer()
        self._slots.close()
        await self._wait_for([self._claiming], lambda: CLOSING_S)
        self._give_back_buffer()
        await self._wait_for(self._running, lambda: self._deadline - monotonic())
        self._slots.interrupt()
        await self._wait_for(self._running, lambda: CLOSING_S)
        self._slots.abandon()
        self._settler.close()
        await self._wait_for([self._settling], lambda: SETTLE_S)
        await self._callbacks.close(CLOSING_S)
        await self._heartbeat.stop(CLOSING_S)
        await self._end_tasks()
        self._end()

    def _give_back_buffer(self) -> None:
        buffer = self._in_flight.buffer
        jobs = [buffer.popleft() for _ in range(len(buffer))]
        self._settler.release(jobs)

    async def _wait_for(self, tasks: Iterable[asyncio.Task[None] | None], left: Callable[[], float]) -> None:
        """Until these have ended or their time is up, which another `stop` may shorten."""
        waiting = {task for task in tasks if task is not None and not task.done()}
        while waiting and (seconds := left()) > 0:
            self._hurry.clear()
            hurry = asyncio.create_task(self._hurry.wait())
            done, _ = await asyncio.wait({*waiting, hurry}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            hurry.cancel()
            if not done:
                return
            waiting -= done

    async def _end_tasks(self) -> None:
        tasks = [self._claiming, self._settling, self._maintaining, self._scheduling, *self._running]
        waiting = [task for task in tasks if task is not None and not task.done()]
        for task in waiting:
            task.cancel()
        if waiting:
            await asyncio.wait(waiting, timeout=CLOSING_S)

    def _end(self) -> None:
        self._threads.close()
        if self._callback_threads is not None:
            self._callback_threads.close()
        if left := len(self._in_flight.held):
            _LOG.warning("%d outcomes of %s could not be settled; their leases will expire", left, self._queue.name)
        self._queue.events.emit(message_events.worker_stopped(self._queue.name, self._worker_id))
        self._gone()
        if not self.ended.done():
            self.ended.set_result(None)


def _prefetch(store: Store, options: WorkerOptions, at_work: int) -> Prefetch:
    if options.prefetch is not None:
        return Prefetch(options.prefetch, step=0, most=0)
    known = store.capabilities.prefetch
    return Prefetch(known, step=at_work, most=max(_batch_size(store, options), _LEARNED_TIMES * known))


def _batch_size(store: Store, options: WorkerOptions) -> int:
    """Messages of one call: a store whose calls cost much and whose messages little takes more of them."""
    return store.capabilities.batch_size if options.batch_size is None else options.batch_size
