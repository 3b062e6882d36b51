"""The settler: gathers everything that was finished and tells the store in one call; meanwhile more gathers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from ..errors import MessageError, QueueNotFound
from ..messages import Answer, Settlement
from .herald import Herald
from .job import Hands, Job
from .judge import Judge
from .patience import Outage, Patience
from .source import Source

_LOG = logging.getLogger("holdfast.worker")


class Settler:
    """One loop. Outcomes are kept until the store has answered; a repeat with the same token is harmless."""

    def __init__(self, source: Source, hands: Hands, judge: Judge, herald: Herald, outage: Outage) -> None:
        self._source = source
        self._hands = hands
        self._judge = judge
        self._herald = herald
        self._patience = Patience(outage, f"settle in {source.name}")
        self._closing = False

    @property
    def well(self) -> asyncio.Event:
        """Set while the store takes outcomes."""
        return self._patience.well

    def start(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._run(), name=f"holdfast-settler-{self._source.name}")

    def close(self) -> None:
        """End when everything is settled."""
        self._closing = True
        self._hands.news.set()

    def release(self, jobs: Iterable[Job]) -> None:
        """Give messages back that did not run; it costs them no attempt."""
        for job in jobs:
            self._hands.finish(job, self._judge.released(job))

    async def _run(self) -> None:
        while True:
            await self._hands.news.wait()
            jobs = self._hands.take_finished()
            if jobs:
                await self._settle(jobs)
            elif self._closing:
                return
            if self._closing:
                self._hands.news.set()

    async def _settle(self, jobs: Sequence[Job]) -> None:
        try:
            answers = await self._told(jobs)
        except MessageError as error:
            await self._settle_without(jobs, error)
            return
        self._hands.settled(jobs)
        await self._herald.settled(jobs, answers)

    async def _told(self, jobs: Sequence[Job]) -> list[Answer]:
        settlements = [job.settlement for job in jobs if job.settlement is not None]
        return await self._patience.until_done(lambda: self._tell(settlements))

    async def _tell(self, settlements: Sequence[Settlement]) -> list[Answer]:
        try:
            return await self._source.settle(settlements)
        except QueueNotFound:  # the messages went with their queue
            return ["unknown"] * len(settlements)

    async def _settle_without(self, jobs: Sequence[Job], error: MessageError) -> None:
        """One of these the store will never take, a result too large for it: the others must not wait for it."""
        if len(jobs) > 1:
            for job in jobs:
                await self._settle([job])
        elif jobs[0].error is None:
            jobs[0].error = error
            jobs[0].settlement = self._judge.failed(jobs[0], error)
            await self._settle(jobs)
        else:
            _LOG.error("the outcome of %s cannot be stored; its lease will expire: %s", jobs[0].message.id, error)
            self._hands.settled(jobs)
