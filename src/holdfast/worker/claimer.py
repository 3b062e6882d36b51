"""The claimers: they ask the store for as many messages as slots are free, from one queue or from several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

from .. import message_events
from ..errors import QueueNotFound
from ..queue import Queue
from ..stores.base import CALLS_AT_ONCE, LONG_POLL_S, LOOK_AGAIN_S, Store
from ..stores.records import Claims
from .choice import Choice, Turns
from .in_flight import InFlight, Job
from .isolation import Isolation
from .outage import AWAY, Outage, Retrying
from .prefetch import BUFFERED_S, Prefetch
from .settler import Settler
from .slots import Slots

Answers: TypeAlias = list[tuple[Queue[Any], Claims]]
LOOKS_PART = 10  # looking at who has something takes one part in so many of a busy worker's time


class Claimer:
    """One loop; also this worker's member of the isolation of its store. Where it asks is for `_ask` to say."""

    def __init__(
        self,
        name: str,
        store: Callable[[], Store],
        isolation: Isolation,
        in_flight: InFlight,
        slots: Slots,
        settler: Settler,
        outage: Outage,
        *,
        worker_id: str,
        lease: Callable[[Queue[Any]], float],
        prefetch: Prefetch,
        at_work: int,
        per_slot: int,
        most: int,
        calls: int = 1,
    ) -> None:
        self._name = name
        self._store = store
        self._isolation = isolation
        self._in_flight = in_flight
        self._slots = slots
        self._settler = settler
        self._worker_id = worker_id
        self._lease = lease  # seconds
        self._prefetch = prefetch
        self._at_work = at_work
        self._per_slot = per_slot
        self._most = most  # messages of one call
        self._calls = calls  # at once, where all of them cost one trip
        self._retrying = Retrying(outage, f"claim from {name}")
        self._wait = 0.0
        self._claimed_before = False  # whether the last answer was full
        self._breath = 0.0
        self._call: asyncio.Task[Answers] | None = None
        self._alone: Job | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._thinning: asyncio.TimerHandle | None = None

    def start(self) -> asyncio.Task[None]:
        self._isolation.join(self)
        self._task = asyncio.create_task(self._run(), name=f"holdfast-claimer-{self._name}")
        return self._task

    def close(self) -> None:
        """No new claims. A claim that is being answered is let through: what it brings is given back."""
        self._closing = True
        if self._thinning is not None:
            self._thinning.cancel()
        if self._call is not None:
            self.recall()
        elif self._task is not None:
            self._task.cancel()

    def recall(self) -> None:
        if self._call is not None and self._wait:
            self._cancel(self._call)

    def _cancel(self, call: asyncio.Task[Answers]) -> None:
        """Again and again: a wait that ends in the same moment may swallow a cancellation (asyncio.wait_for does)."""
        if not call.done():
            call.cancel()
            asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._cancel, call)

    def quiet(self) -> bool:
        return self._call is None and all(job is self._alone for job in self._in_flight.held)

    async def _run(self) -> None:
        try:
            while not self._closing:
                await self._turn()
        finally:
            self._isolation.leave(self)

    async def _turn(self) -> None:
        """Wait until there is reason to claim, claim, pass on what came."""
        await self._isolation.opened()
        await self._isolation.calm()
        await self._settler.well.wait()  # what cannot be settled must not pile up
        room = await self._room()
        if not self._isolation.is_open:
            return
        answers = await self._retrying.until_done(lambda: self._claim(partial(self._ask, room)))
        jobs = self._take(answers)
        self._learn(jobs, full=len(jobs) >= room)
        if self._closing:
            self._settler.release(jobs)
        elif jobs:
            await self._pass_on(jobs)
        await self._pace(len(jobs), room)

    async def _pass_on(self, jobs: Sequence[Job]) -> None:
        """To the slots; one that must run alone came in a call of its own."""
        dangerous = [job for job in jobs if job.message.alone]
        others = [job for job in jobs if not job.message.alone]
        if others:
            self._isolation.suspect(job for job in others if job.message.recovered)
            self._slots.put(others)
            self._thin_later()
        for job in dangerous:
            await self._meet(job)

    async def _room(self) -> int:
        """Where a claim is expensive, once half of what was claimed in advance is used up: no slot is idle before."""
        in_flight = self._in_flight
        while True:
            extra = self._prefetch.extra
            room = self._at_work + extra - in_flight.open - in_flight.blocked * self._per_slot
            if room > (extra // 2 if self._calls > 1 else 0):
                return min(room, self._most * (1 if self._wait else self._calls))
            await in_flight.wait_for_room()

    async def _claim(self, ask: Callable[[], Coroutine[Any, Any, Answers]]) -> Answers:
        """One call to the store, which `recall` can end when it only waits."""
        asked_at = monotonic()
        self._call = asyncio.create_task(ask())
        try:
            answers = await self._call
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr] # we are in a task
                raise
            answers = []
        finally:
            self._call = None
            self._isolation.changed()
        in_vain = not _has_any(answers) and monotonic() - asked_at < min(self._wait, AWAY.base)
        self._breath = min(LOOK_AGAIN_S, self._breath * 2 or AWAY.base) if in_vain else 0.0
        return answers

    def _take(self, answers: Answers) -> list[Job]:
        """Tell of what came, and hold it."""
        jobs: list[Job] = []
        for queue, claims in answers:
            for event in message_events.claimed(queue.name, claims):
                queue.events.emit(event)
            jobs += self._in_flight.take(claims.messages, monotonic(), queue)
        return jobs

    async def _ask(self, limit: int) -> Answers:
        """Up to so many messages, from wherever it is time to ask."""
        raise NotImplementedError

    async def _ask_all(self, asked: Sequence[tuple[Queue[Any], int]]) -> Answers:
        """Several calls at once, each for so many of a queue."""
        found = await asyncio.gather(*(self._ask_once(*each) for each in asked), return_exceptions=True)
        answers = [
            (queue, each) for (queue, _), each in zip(asked, found, strict=True) if not isinstance(each, BaseException)
        ]
        if not _has_any(answers):
            for each in found:
                if isinstance(each, BaseException):
                    raise each  # else what was claimed comes first: a store that is away shows at the next call
        return answers

    async def _ask_once(self, queue: Queue[Any], limit: int) -> Claims:
        return await queue._opened.ask(limit, self._lease(queue), wait=self._wait, worker=self._worker_id)

    async def _pace(self, got: int, asked: int) -> None:
        """After a full answer ask again at once; else let the next claim wait for a message."""
        self._wait = 0.0 if got >= asked else LONG_POLL_S
        if self._breath and not self._closing:
            await asyncio.sleep(self._breath)

    # ------------------------------------------------------------------ prefetching, where nobody asked for it

    def _learn(self, jobs: Sequence[Job], *, full: bool) -> None:
        in_flight = self._in_flight
        full_again, waiting = full and self._claimed_before, len(in_flight.buffer)
        size = sum(len(job.message.payload) for job in jobs) if full_again else 0
        is_dry = in_flight.open == len(jobs)  # before these came
        self._prefetch.answered(full=full_again, dry=is_dry, waiting=waiting, size=size)
        self._claimed_before = full

    def _thin_later(self) -> None:
        if self._thinning is None and self._prefetch.extra and self._prefetch.is_learned:
            self._thinning = asyncio.get_running_loop().call_later(BUFFERED_S, self._thin)

    def _thin(self) -> None:
        """Give back what no slot has taken in all this time: another worker may be idle."""
        self._thinning = None
        buffer, limit = self._in_flight.buffer, monotonic() - BUFFERED_S
        if not buffer:
            return
        waited = [job for job in buffer if job.since <= limit]
        for job in waited:
            buffer.remove(job)
        self._settler.release(waited)
        if waited:
            self._prefetch.forget()
        if buffer:
            self._thinning = asyncio.get_running_loop().call_later(BUFFERED_S, self._thin)

    # ------------------------------------------------------------------ dangerous messages

    async def _meet(self, job: Job) -> None:
        """A message that must run alone. Unless this process is idle it goes back first: whatever runs here now may
        be just what kills processes, and this message has no attempt to lose."""
        isolation, self._alone = self._isolation, job
        try:
            if isolation.is_open and isolation.is_quiet():
                async with isolation.alone():
                    await self._run_alone(job)
            else:
                self._settler.release([job])
                if isolation.is_open:
                    await self._claim_when_quiet(job.queue)
        finally:
            self._alone = None

    async def _claim_when_quiet(self, queue: Queue[Any]) -> None:
        """Let everything else end, then claim again: most likely the same message."""
        async with self._isolation.alone():
            self._wait = 0.0
            ask = partial(self._ask_all, [(queue, 1)])
            for job in self._take(await self._retrying.until_done(lambda: self._claim(ask))):
                await self._run_alone(job)

    async def _run_alone(self, job: Job) -> None:
        if self._closing:
            self._settler.release([job])
        else:
            self._slots.put([job])
            await self._in_flight.empty.wait()


class OneClaimer(Claimer):
    """From one queue."""

    def __init__(self, queue: Queue[Any], *common: Any, **options: Any) -> None:
        super().__init__(queue.name, lambda: queue.store, *common, **options)
        self._queue = queue

    async def _ask(self, limit: int) -> Answers:
        if limit <= self._most:
            return [(self._queue, await self._ask_once(self._queue, limit))]
        parts = [min(self._most, limit - start) for start in range(0, limit, self._most)]
        return await self._ask_all([(self._queue, part) for part in parts])


class ChoiceClaimer(Claimer):
    """From several queues: one wait for all of them, then from whose turn it is."""

    def __init__(self, choice: Choice, store: Callable[[], Store], *common: Any, **options: Any) -> None:
        super().__init__(choice.name, store, *common, **options)
        self._choice = choice
        self._turns = Turns(choice.wanted)
        self._next_look = 0.0
        self.busy: set[str] = set()  # queues that gave something

    async def _ask(self, limit: int) -> Answers:
        while self._isolation.is_open:
            await self._look()
            queues = [self._choice.queues[name] for name in self._turns.pick(min(limit, CALLS_AT_ONCE))]
            if not queues:
                return []
            part = min(limit // len(queues), self._most)
            answers = await self._ask_all([(queue, part) for queue in queues])
            for queue, claims in answers:
                count = len(claims.messages)
                is_empty = count < part and not claims.expired and not any(each.alone for each in claims.messages)
                self._turns.took(queue.name, count, is_empty=is_empty)
                if count:
                    self.busy.add(queue.name)
            if _has_any(answers):
                return answers
        return []

    async def _look(self) -> None:
        """Who may have something: waited for when nobody does, else now and then, for a tenth of the time at most."""
        began, is_idle = monotonic(), self._turns.is_idle
        if is_idle or began >= self._next_look:
            names = list(self._choice.queues)
            self._turns.add(await self._store().ready(names, wait=self._wait if is_idle else 0.0))
            self._next_look = monotonic() if is_idle else began + LOOKS_PART * (monotonic() - began)

    async def _ask_once(self, queue: Queue[Any], limit: int) -> Claims:
        """From one that is ready: nobody waits at a single queue."""
        try:
            return await queue._opened.ask(limit, self._lease(queue), worker=self._worker_id)
        except QueueNotFound:
            self._choice.forget(queue.name)
            return Claims([])

    def recall_to_look(self) -> None:
        """There are more queues than those that are waited for."""
        if self._turns.is_idle:
            self.recall()


def _has_any(answers: Answers) -> bool:
    return any(claims.messages or claims.expired for _, claims in answers)
