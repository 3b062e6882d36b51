"""The claimer: asks the store for as many messages as slots are free, one call at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from .. import message_events
from ..queue import Queue
from ..stores.base import LONG_POLL_S, LOOK_AGAIN_S
from ..stores.records import Claims
from .in_flight import InFlight, Job
from .isolation import Isolation
from .outage import AWAY, Outage, Retrying
from .prefetch import BUFFERED_S, Prefetch
from .settler import Settler
from .slots import Slots


class Claimer:
    """One loop; also this worker's member of the isolation of its store."""

    def __init__(
        self,
        queue: Queue[Any],
        isolation: Isolation,
        in_flight: InFlight,
        slots: Slots,
        settler: Settler,
        outage: Outage,
        *,
        lease: Callable[[], float],
        prefetch: Prefetch,
        at_work: int,
        per_slot: int,
        most: int,
        calls: int = 1,
    ) -> None:
        self._queue = queue
        self._isolation = isolation
        self._in_flight = in_flight
        self._slots = slots
        self._settler = settler
        self._lease = lease  # seconds
        self._prefetch = prefetch
        self._at_work = at_work
        self._per_slot = per_slot
        self._most = most  # messages of one call
        self._calls = calls  # at once, where all of them cost one trip
        self._retrying = Retrying(outage, f"claim from {queue.name}")
        self._wait = 0.0
        self._claimed_before = False  # whether the last answer was full
        self._breath = 0.0
        self._call: asyncio.Task[Claims] | None = None
        self._alone: Job | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._thinning: asyncio.TimerHandle | None = None

    def start(self) -> asyncio.Task[None]:
        self._isolation.join(self)
        self._task = asyncio.create_task(self._run(), name=f"holdfast-claimer-{self._queue.name}")
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

    def _cancel(self, call: asyncio.Task[Claims]) -> None:
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
        claims = await self._retrying.until_done(lambda: self._claim(room))
        self._tell(claims)
        self._learn(claims, full=len(claims.messages) >= room)
        jobs = self._in_flight.take(claims.messages, monotonic())
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

    async def _claim(self, limit: int) -> Claims:
        """One call to the store, which `recall` can end when it only waits."""
        asked_at = monotonic()
        self._call = asyncio.create_task(self._ask(limit))
        try:
            claims = await self._call
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr] # we are in a task
                raise
            claims = Claims([])
        finally:
            self._call = None
            self._isolation.changed()
        in_vain = not (claims.messages or claims.expired) and monotonic() - asked_at < min(self._wait, AWAY.base)
        self._breath = min(LOOK_AGAIN_S, self._breath * 2 or AWAY.base) if in_vain else 0.0
        return claims

    def _tell(self, claims: Claims) -> None:
        for event in message_events.claimed(self._queue.name, claims):
            self._queue.events.emit(event)

    async def _ask(self, limit: int) -> Claims:
        if limit <= self._most:
            return await self._ask_once(limit)
        parts = [min(self._most, limit - start) for start in range(0, limit, self._most)]
        answers = await asyncio.gather(*map(self._ask_once, parts), return_exceptions=True)
        found = [each for each in answers if isinstance(each, Claims)]
        if not any(each.messages or each.expired for each in found):
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer  # else what was claimed comes first: a store that is away shows at the next call
        return Claims(
            [message for each in found for message in each.messages], [gone for each in found for gone in each.expired]
        )

    async def _ask_once(self, limit: int) -> Claims:
        return await self._queue.store.claim(self._queue.name, limit, self._lease(), wait=self._wait)

    async def _pace(self, got: int, asked: int) -> None:
        """After a full answer ask again at once; else let the next claim wait for a message."""
        self._wait = 0.0 if got >= asked else LONG_POLL_S
        if self._breath and not self._closing:
            await asyncio.sleep(self._breath)

    # ------------------------------------------------------------------ prefetching, where nobody asked for it

    def _learn(self, claims: Claims, *, full: bool) -> None:
        in_flight = self._in_flight
        full_again, waiting = full and self._claimed_before, len(in_flight.buffer)
        size = sum(len(message.payload) for message in claims.messages) if full_again else 0
        self._prefetch.answered(full=full_again, dry=not in_flight.open, waiting=waiting, size=size)
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
                    await self._claim_when_quiet()
        finally:
            self._alone = None

    async def _claim_when_quiet(self) -> None:
        """Let everything else end, then claim again: most likely the same message."""
        async with self._isolation.alone():
            self._wait = 0.0
            claims = await self._retrying.until_done(lambda: self._claim(1))
            self._tell(claims)
            for job in self._in_flight.take(claims.messages, monotonic()):
                await self._run_alone(job)

    async def _run_alone(self, job: Job) -> None:
        if self._closing:
            self._settler.release([job])
        else:
            self._slots.put([job])
            await self._in_flight.empty.wait()
