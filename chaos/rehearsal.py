"""A fault run inside one process: a seeded schedule of producers and workers that crash and sleep, on a manual clock.

It drives the seam directly, so that a store with a known bug can be put in and the checker must find it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.config import QueueOptions
from holdfast.retry import Fixed
from holdfast.stores.base import Store
from holdfast.stores.records import Claimed, Envelope, Settlement
from holdfast.testing.clock import ManualClock

from .checker import check
from .history import Event, History, Killed, Started
from .recorder import KEY, Recorder, audit
from .verdict import Verdict

QUEUE = "rehearsal"
LEASE = 10.0
PATIENCE = 3.0  # seconds of a busy machine in which a claim that can be answered is answered
POISON = "poison"


@dataclass
class Worker:
    """One life of a worker; after a crash the next life has a new name."""

    name: str
    store: Recorder
    history: History
    held: list[Claimed] = field(default_factory=list)
    asleep_until: float = 0.0


class Rehearsal:
    """`open_store(process)` gives each process its view of the store under test."""

    def __init__(
        self,
        open_store: Callable[[str], Store],
        clock: ManualClock,
        *,
        seed: int = 0,
        messages: int = 400,
        poison: int = 3,
    ) -> None:
        self._open_store = open_store
        self._clock = clock
        self._random = random.Random(seed)
        self._left = messages
        self._poison = poison
        self._produced = 0
        self._lives = 0
        self.histories: dict[str, History] = {}

    async def run(self) -> Verdict:
        """The whole story: faults, drain, audit, verdict."""
        store = self._open_store("conductor")
        await store.create_queue(QUEUE, QueueOptions(lease=LEASE, retry=Fixed(1.0), max_attempts=4))
        workers = [self._worker() for _ in range(4)]
        producers = [self._recorder(f"p{number}") for number in range(3)]
        while self._left > 0:
            await self._step(producers, workers)
        zombies = await self._crash_all(workers)
        await self._drain()
        for zombie in zombies:
            while zombie.held:
                await self._finish(zombie, zombie.held.pop(0))
        await audit(store, QUEUE, self._history("audit"))
        verdict = check(self.events())
        verdict.run = "rehearsal"
        return verdict

    def events(self) -> list[tuple[str, Event]]:
        return [(name, event) for name, history in self.histories.items() for event in history.events]

    # ------------------------------------------------------------------ actors

    def _history(self, name: str) -> History:
        return self.histories.setdefault(name, History())

    def _recorder(self, name: str) -> Recorder:
        return Recorder(self._open_store(name), self._history(name), name=name, clock=self._clock)

    def _worker(self) -> Worker:
        self._lives += 1
        name = f"w{self._lives}"
        return Worker(name, self._recorder(name), self._history(name))

    async def _step(self, producers: list[Recorder], workers: list[Worker]) -> None:
        self._clock.advance(self._random.expovariate(5.0))
        place, dice = self._random.randrange(len(workers)), self._random.random()
        if dice < 0.02:
            workers[place] = self._crash(workers[place])
        elif dice < 0.04:
            workers[place].asleep_until = self._clock() + LEASE * self._random.uniform(1.0, 1.5)
        elif dice < 0.06:
            self._crash_producer(producers)
        elif dice < 0.4:
            await self._produce(self._random.choice(producers))
        elif not await self._work(workers[place]):
            workers[place] = self._crash(workers[place])

    def _crash(self, worker: Worker) -> Worker:
        self._history("conductor").write(Killed(self._clock(), worker.name, "SIGKILL"))
        return self._worker()

    async def _crash_all(self, workers: list[Worker]) -> list[Worker]:
        """The last fault: what they hold comes back only if the store notices that the leases are over.

        Those who sleep with something in hand are left to wake up when everything is done.
        """
        for worker in workers:
            worker.held = worker.held or (await worker.store.claim(QUEUE, 3, LEASE)).messages
        sleepers = [worker for worker in workers[:2] if worker.held]
        for worker in workers[2:]:
            self._crash(worker)
        return sleepers

    def _crash_producer(self, producers: list[Recorder]) -> None:
        """A store that had acknowledged too early loses here what it still owes."""
        crash = getattr(self._random.choice(producers), "crash", None)
        if crash is not None:
            crash()

    async def _produce(self, producer: Recorder) -> None:
        size = min(self._left, self._random.randint(1, 5))
        self._left -= size
        if size:
            await producer.append(QUEUE, [self._envelope(producer) for _ in range(size)])

    def _envelope(self, producer: Recorder) -> Envelope:
        self._produced += 1
        kind = POISON if self._produced <= self._poison else "healthy"
        headers = {KEY: f"{producer.name}/{self._produced}", "kind": kind}
        return Envelope(f'{{"n": {self._produced}}}'.encode(), headers=headers)

    async def _work(self, worker: Worker) -> bool:
        """One small piece of work; False: the message in hand has killed the worker."""
        if worker.asleep_until > self._clock():
            return True
        if worker.held:
            return await self._finish(worker, worker.held.pop(0))
        claims = await worker.store.claim(QUEUE, self._random.randint(1, 8), LEASE)
        worker.held = claims.messages
        return True

    async def _finish(self, worker: Worker, message: Claimed) -> bool:
        worker.history.write(Started(self._clock(), message.id, message.attempt))
        if (message.headers or {}).get("kind") == POISON:
            return False
        fails = message.attempt == 1 and self._random.random() < 0.1
        action = Settlement(message.id, message.token, "retry" if fails else "complete", delay=1.0 if fails else 0.0)
        await worker.store.settle(QUEUE, [action])
        return True

    # ------------------------------------------------------------------ the end

    async def _drain(self) -> None:
        """Healthy from here on, but a waiting claim has to notice by itself that a lease is over."""
        worker, idle, rounds = self._worker(), 0, 0
        while idle < 2 and rounds < 1000:
            rounds += 1
            claimed = await self._claim_waiting(worker)
            if claimed is None:
                return
            worker.held = claimed
            idle = 0 if claimed else idle + 1
            while worker.held:
                if not await self._finish(worker, worker.held.pop(0)):
                    worker = self._crash(worker)

    async def _claim_waiting(self, worker: Worker) -> list[Claimed] | None:
        """None: the claim never came back, however far the clock went on."""
        claim = asyncio.ensure_future(worker.store.claim(QUEUE, 10, LEASE, wait=LEASE / 2))
        await asyncio.sleep(0)
        if not claim.done():
            self._clock.advance(LEASE + 1)
        try:
            return (await asyncio.wait_for(claim, PATIENCE)).messages
        except TimeoutError:
            return None
