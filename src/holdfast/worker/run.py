"""One run of a worker: its loops, put together, started and stopped in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any

from .. import message_events
from ..escaping import logger_named
from ..lifetime import CLOSING_S
from ..stores.base import LOOK_AGAIN_S, Store
from ..stores.worker_reports import RunningMessage
from . import upkeep
from .batches import BatchSlots
from .call import Call
from .callbacks import Callbacks, OnComplete, OnError
from .choice import Choice
from .claimer import ChoiceClaimer, Claimer, OneClaimer
from .context import Site
from .heartbeat import Heartbeat
from .in_flight import InFlight, Job
from .isolation import isolation_of
from .outage import Outage
from .prefetch import Prefetch
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
        source: Queue[Any] | Choice,
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
        self._source = source
        self._name = source.name
        self._life = source.life if isinstance(source, Choice) else source._opened.life
        self._own_lease = lease
        self._maintenance_interval = maintenance_interval
        self._gone = gone
        self._worker_id = worker_id
        self._concurrency = options.concurrency
        self._isolation = isolation_of(self._store)
        self._in_flight = InFlight(self._isolation.settled)
        self._threads = Threads(options.concurrency, f"holdfast-{source.name}")
        self._callback_threads = None if handler.is_async else Threads(1, f"holdfast-{source.name}-callbacks")
        settlements = Settlements(worker_id, retry=retry)
        self._callbacks = Callbacks(on_error=on_error, on_complete=on_complete, threads=self._callback_threads)
        self._outage = Outage()
        self._settler = Settler(source.name, self._in_flight, settlements, self._callbacks, self._outage)
        self._slots = self._make_slots(handler, options, settlements)
        self._claimer = self._make_claimer(options)
        self._heartbeat = Heartbeat(
            source.name, lambda: self._store, self._in_flight, self._outage, lease=self._lease, lost=self._lose
        )
        self._claiming: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._running: list[asyncio.Task[None]] = []
        self._keeping_up: list[asyncio.Task[None]] = []
        self._stopping: asyncio.Task[None] | None = None
        self._deadline = float("inf")
        self._hurry = asyncio.Event()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _make_claimer(self, options: WorkerOptions) -> Claimer:
        per_slot = options.batch or 1
        at_work = options.concurrency * per_slot
        common = (self._isolation, self._in_flight, self._slots, self._settler, self._outage)
        measures: dict[str, Any] = {
            "worker_id": self._worker_id,
            "lease": self._lease,
            "prefetch": _prefetch(self._store, options, at_work),
            "at_work": at_work,
            "per_slot": per_slot,
            "most": max(_batch_size(self._store, options), at_work),
            "calls": _CLAIM_CALLS if self._store.capabilities.prefetch else 1,
        }
        if isinstance(self._source, Choice):
            return ChoiceClaimer(self._source, lambda: self._store, *common, **measures)
        return OneClaimer(self._source, *common, **measures)

    @property
    def _store(self) -> Store:
        return self._life.store

    @property
    def busy(self) -> int:
        """Messages whose handler runs."""
        return self._in_flight.open - len(self._in_flight.buffer)

    def running(self, *, most: int) -> list[RunningMessage]:
        """Those messages, the longest first, up to so many."""
        now = monotonic()
        jobs = sorted((job for job in self._in_flight.held if job.slot is not None), key=lambda job: job.started_at)
        return [RunningMessage(job.queue.name, job.message.id, now - job.started_at) for job in jobs[:most]]

    def _make_slots(self, handler: Handler, options: WorkerOptions, settlements: Settlements) -> Slots:
        site = Site(self._worker_id, lease=self._lease, extend=self._extend)
        call = Call(
            handler,
            site,
            codec=self._source.codec,
            timeout=options.timeout,
            threads=self._threads,
            tracer=self._source.events.tracer,
        )
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
        self._keeping_up = self._start_upkeep()
        for task in (*self._running, self._settling, self._claiming):
            task.add_done_callback(self._ended_early)
        self._source.events.emit(message_events.worker_started(self._name, self._worker_id, self._concurrency))

    def _start_upkeep(self) -> list[asyncio.Task[None]]:
        interval = self._maintenance_interval
        if not isinstance(self._claimer, ChoiceClaimer) or not isinstance(source := self._source, Choice):
            assert not isinstance(self._source, Choice)
            return upkeep.one(self._source, self._outage, interval)
        busy, grown = self._claimer.busy, self._claimer.recall_to_look
        several = upkeep.Several(
            source, self._life, source.events, self._outage, interval=interval, busy=busy, grown=grown
        )
        return several.start()

    def is_slot(self, task: asyncio.Task[Any] | None) -> bool:
        return task in self._running

    def stop(self, grace: float) -> asyncio.Task[None]:
        """Begin to stop, or shorten the grace of a stop that has begun."""
        deadline = monotonic() + grace
        if deadline < self._deadline:
            self._deadline = deadline
            self._hurry.set()
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name=f"holdfast-stop-{self._name}")
        return self._stopping

    # ------------------------------------------------------------------ while it runs

    def _lease(self, queue: Queue[Any] | None) -> float:
        """Seconds: the worker's own, or the queue's, which may change; without a queue the shortest of all."""
        if self._own_lease is not None:
            return self._own_lease
        if queue is not None:
            return queue.options.lease
        if isinstance(self._source, Choice):
            return min((each.options.lease for each in list(self._source.queues.values())), default=LOOK_AGAIN_S)
        return self._source.options.lease

    def _lose(self, job: Job) -> None:
        self._slots.lose(job)
        job.queue.events.emit(message_events.lost(job.queue.name, job.message.id))

    async def _extend(self, job: Job, seconds: float) -> bool:
        lease = (job.message.id, job.message.token)
        (end,) = await self._store.extend(job.queue.name, [lease], seconds)
        if end is None and not job.lost and job.settlement is None:
            self._lose(job)
        return end is not None

    def _ended_early(self, task: asyncio.Task[None]) -> None:
        """A loop that ends by an error ends the worker: half a worker helps nobody."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not self.ended.done():
            _LOG.critical("the worker of %s stops: %s: %s", self._name, type(error).__name__, error)
            self.ended.set_exception(error)
            self.ended.exception()  # seen: it was logged, and `run` raises it
        self.stop(0.0)

    # ------------------------------------------------------------------ on the way out

    async def _stop(self) -> None:
        """No new claims, the buffer given back, running handlers within the grace, the rest released, all settled."""
        self._claimer.close()
        for task in self._keeping_up:
            task.cancel()
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
        tasks = [self._claiming, self._settling, *self._keeping_up, *self._running]
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
            _LOG.warning("%d outcomes of %s could not be settled; their leases will expire", left, self._name)
        self._source.events.emit(message_events.worker_stopped(self._name, self._worker_id))
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
