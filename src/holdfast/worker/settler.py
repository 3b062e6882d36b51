"""The settler: gathers everything that was finished and tells the store in one call; meanwhile more gathers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ..errors import HoldfastError, MessageError, QueueNotFound
from ..escaping import logger_named
from ..message_events import Attempt, lost
from ..stores.base import CALLS_AT_ONCE
from ..stores.records import Answer, Settlement
from .callbacks import Callbacks
from .in_flight import InFlight, Job
from .outage import AWAY, FINAL, PASSING, Outage, Refused, Retrying
from .settlement import Settlements

T = TypeVar("T")
_LOG = logger_named("holdfast.worker")
_REFUSALS = 5  # of one outcome, some three seconds, before it ends otherwise: a store may be well again by then


class Settler:
    """One loop. Outcomes are kept until the store has answered; a repeat with the same token is harmless.

    An outcome that the store refuses for good must not hold up the others: it is found by halves, and ends otherwise.
    """

    def __init__(
        self, name: str, in_flight: InFlight, settlements: Settlements, callbacks: Callbacks, outage: Outage
    ) -> None:
        self._name = name
        self._in_flight = in_flight
        self._settlements = settlements
        self._callbacks = callbacks
        self._outage = outage
        self._doing = f"settle in {name}"
        self._retrying = Retrying(outage, self._doing)
        self._aside: list[Job] = []  # refused, and nobody knows yet whether the store or the outcome is to blame
        self._rounds = 0
        self._closing = False

    @property
    def well(self) -> asyncio.Event:
        """Set while the store takes outcomes."""
        return self._retrying.well

    def start(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._run(), name=f"holdfast-settler-{self._name}")

    def close(self) -> None:
        """End when everything is settled."""
        self._closing = True
        self._in_flight.news.set()

    def release(self, jobs: Iterable[Job]) -> None:
        """Give messages back that did not run; it costs them no attempt."""
        for job in jobs:
            self._in_flight.finish(job, self._settlements.released(job))

    async def _run(self) -> None:
        while True:
            await self._news()
            jobs = [*self._aside, *self._in_flight.take_finished()]
            self._aside = []
            if jobs:
                await self._settle(jobs)
            elif self._closing:
                return
            if self._closing:
                self._in_flight.news.set()

    async def _news(self) -> None:
        """Something waits to be settled, or it is time to try again what was refused."""
        if not self._aside:
            await self._in_flight.news.wait()
            return
        news = asyncio.Event() if self._closing else self._in_flight.news  # which is always set on the way out
        with suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), AWAY.after(self._rounds + 1))

    async def _settle(self, jobs: Sequence[Job]) -> None:
        refused = [each for some in await gathered(map(self._taken, by_queue(jobs))) for each in some]
        if refused:
            is_waited_for = self._closing or any(job.message.alone for job, _ in refused)
            is_over = is_waited_for and self._rounds >= _REFUSALS
            await self._deal_with(refused, is_theirs=len(refused) < len(jobs) or is_over)
        if self._rounds and not self._aside:
            self._rounds = 0
            self._outage.worked(self._doing)

    async def _deal_with(self, refused: Sequence[tuple[Job, Exception]], *, is_theirs: bool) -> None:
        """What is refused while others are taken, or in the store's own words for a while, ends otherwise."""
        self._rounds += 1
        if is_theirs or (self._rounds >= _REFUSALS and isinstance(refused[-1][1], HoldfastError)):
            refused = [(job, error) for job, error in refused if not await self._taken_otherwise(job, error)]
        if refused and is_theirs:
            self._give_up(refused)
        elif refused:
            await self._put_aside(refused)

    async def _put_aside(self, refused: Sequence[tuple[Job, Exception]]) -> None:
        """Nobody knows yet whether it is them or the store: one waits for what the next gets, several for the store."""
        self._aside = [job for job, _ in refused]
        error = refused[-1][1]
        if len(refused) > 1:
            await self._retrying.pause(error)
            self._in_flight.news.set()
        else:
            self._outage.failed(self._doing, error)

    def _give_up(self, refused: Sequence[tuple[Job, Exception]]) -> None:
        for job, error in refused:
            _LOG.error("the outcome of %s cannot be stored; its lease will expire: %s", job.message.id, error)
        self._in_flight.settled([job for job, _ in refused])

    async def _taken(self, jobs: Sequence[Job]) -> list[tuple[Job, Exception]]:
        """Tell the store of some of one queue; those it refuses, found by halves, and why."""
        try:
            answers = await self._told(jobs, [job.settlement for job in jobs if job.settlement is not None])
        except MessageError as error:
            return await self._apart(jobs) if len(jobs) > 1 else await self._too_much(jobs[0], error)
        except Refused as refusal:
            return await self._apart(jobs) if len(jobs) > 1 else [(jobs[0], refusal.error)]
        self._in_flight.settled(jobs)
        await self._callbacks.settled(jobs, answers)
        return []

    async def _apart(self, jobs: Sequence[Job]) -> list[tuple[Job, Exception]]:
        half = len(jobs) // 2
        return [*await self._taken(jobs[:half]), *await self._taken(jobs[half:])]

    async def _too_much(self, job: Job, error: MessageError) -> list[tuple[Job, Exception]]:
        """The store says what is wrong with this very one, such as a result too large for it: no need to try again."""
        if not await self._taken_otherwise(job, error):
            self._give_up([(job, error)])
        return []

    async def _taken_otherwise(self, job: Job, error: Exception) -> bool:
        """End a message of which the store refuses the outcome, as near to it as can be; False: it refuses all."""
        outcome = job.settlement
        for other in self._settlements.instead(job, error):
            for settlement in (outcome, other):  # the outcome itself again: the store may be well by now
                if settlement is not None and await self._is_taken(job, settlement, error):
                    return True
        job.settlement = outcome
        return False

    async def _is_taken(self, job: Job, settlement: Settlement, error: Exception) -> bool:
        try:
            answers = await self._told((job,), [settlement])
        except (MessageError, Refused):
            return False
        if settlement is not job.settlement:
            _LOG.warning("the outcome of %s was refused, so it is %s: %s", job.message.id, settlement.action, error)
            if job.settlement is not None and settlement.action != job.settlement.action:
                job.error = job.error or error
            job.settlement = settlement
        self._in_flight.settled((job,))
        await self._callbacks.settled((job,), answers)
        return True

    async def _told(self, jobs: Sequence[Job], settlements: Sequence[Settlement]) -> list[Answer]:
        return await self._retrying.until_done(lambda: self._tell(jobs, settlements))

    async def _tell(self, jobs: Sequence[Job], settlements: Sequence[Settlement]) -> list[Answer]:
        try:
            return await jobs[0].queue._opened.settle(settlements, lambda index: _attempt(jobs[index]))
        except QueueNotFound:  # the messages went with their queue
            for job in jobs:
                job.queue.events.emit(lost(job.queue.name, job.message.id))
            return ["unknown"] * len(settlements)
        except (*PASSING, *FINAL):
            raise
        except Exception as error:  # whatever a store says no with
            raise Refused(error) from error


def by_queue(jobs: Sequence[Job]) -> list[Sequence[Job]]:
    """Those of each queue; mostly it is one."""
    first = jobs[0].queue if jobs else None
    if all(job.queue is first for job in jobs):
        return [jobs] if jobs else []
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.queue.name, []).append(job)
    return list(found.values())


async def gathered(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All of it, some at a time; one alone costs no task. An error is raised when everything has ended."""
    works = list(work)
    if len(works) == 1:
        return [await works[0]]
    turns = asyncio.Semaphore(CALLS_AT_ONCE)

    async def one(work: Coroutine[Any, Any, T]) -> T:
        async with turns:
            return await work

    answers = await asyncio.gather(*map(one, works), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]


def _attempt(job: Job) -> Attempt:
    return Attempt(job.message.attempt, job.finished_at - job.started_at, job.result)
