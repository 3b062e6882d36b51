"""Simulated processes: each with a store of its own, clients that do random things, and an end that may be sudden."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.errors import HoldfastError, UnknownOutcome
from holdfast.stores.base import DEAD
from holdfast.stores.records import Claimed, Envelope, Settlement

from .history import History
from .plan import Plan

QUEUE = "q"
MOVED = "moved"  # the queue of its dead letters, in some seeds
LEASES = (2.0, 5.0, 12.0)
DELAYS = (0.0, 0.0, 0.0, 0.5, 4.0)
PRIORITIES = (0, 0, 1, 7)
_MOST_HELD = 8


class Client:
    """One caller in a process: random operations, one after the other."""

    def __init__(self, name: str, process: str, store: Any, history: History, plan: Plan) -> None:
        self.name = name
        self.process = process
        self.store = store
        self.history = history
        self.plan = plan
        self.random = random.Random(f"{plan.policy}/{plan.seed}/{name}")
        self.held: list[tuple[str, Claimed]] = []
        self.known: list[str] = []
        self.sent = 0

    async def run(self, steps: int) -> None:
        names, weights = list(self.plan.operations), list(self.plan.operations.values())
        for _ in range(steps):
            operation = self.random.choices(names, weights)[0]
            try:
                await getattr(self, operation)()
            except HoldfastError:
                pass  # it is in the history
            await asyncio.sleep(self.random.expovariate(1 / self.plan.pace))

    async def call(self, kind: str, work: Awaitable[Any], **args: Any) -> Any:
        return await self.history.call(self.process, self.name, kind, work, **args)

    # Producing.

    def envelopes(self, count: int, **terms: Any) -> tuple[list[Envelope], list[str]]:
        names = []
        for _ in range(count):
            self.sent += 1
            names.append(f"{self.name}.{self.sent}")
        size = 400 if self.random.random() < 0.1 else 0
        return [Envelope(f"{each}|{'x' * size}".encode(), **terms) for each in names], names

    async def append(self) -> None:
        dice = self.random
        terms: dict[str, Any] = {"priority": dice.choice(PRIORITIES), "delay": dice.choice(DELAYS)}
        if dice.random() < 0.2:
            terms["max_attempts"] = dice.randint(1, 3)
        count = dice.choice((1, 1, 1, 2, 3))
        if count == 1 and dice.random() < 0.15:
            terms["dedup_key"] = f"k{dice.randrange(4)}"
        await self.send(count, terms)

    async def burst(self) -> None:
        """Calls that come together and may share a write."""
        terms = [{"priority": self.random.choice(PRIORITIES)} for _ in range(self.random.randint(2, 5))]
        await asyncio.gather(*(self.send(1, each) for each in terms), return_exceptions=True)

    async def send(self, count: int, terms: dict[str, Any]) -> None:
        messages, names = self.envelopes(count, **terms)
        if count > 1 and self.random.random() < 0.2:  # one of another priority: two blocks, all or nothing
            other = Envelope(messages[-1].payload, priority=3)
            messages[-1] = other
        again = self.random.random()
        priorities = [each.priority for each in messages]
        try:
            ids = await self.call(
                "append", self.store.append(QUEUE, messages), names=names, terms=terms, priorities=priorities
            )
        except UnknownOutcome as lost:
            if not lost.ids or again < 0.5:
                raise
            ids = await self.call("append", lost.retry(), names=names, terms=terms, priorities=priorities, again=True)
        self.known = (self.known + ids)[-20:]

    # Consuming.

    async def claim(self) -> None:
        await self._claim(QUEUE)

    async def dead(self) -> None:
        await self._claim(MOVED if self.plan.moves else QUEUE + DEAD)

    async def _claim(self, queue: str) -> None:
        if len(self.held) >= _MOST_HELD:
            return
        limit, lease = self.random.choice((1, 1, 2, 4)), self.random.choice(LEASES)
        wait = self.random.choice((0.0, 0.0, 1.0))
        claims = await self.call(
            "claim", self.store.claim(queue, limit, lease, wait=wait), queue=queue, lease=lease, limit=limit
        )
        self.held += [(queue, each) for each in claims.messages]
        self.known = (self.known + [each.id for each in claims.messages])[-20:]

    async def settle(self) -> None:
        if not self.held:
            await self.claim()
        if not self.held:
            return
        queue, _ = self.held[0]
        count = self.random.choice((1, 1, 2, 3))
        some = [each for each in self.held if each[0] == queue][:count]
        settlements = [self._decision(each) for _, each in some]
        self.held = [each for each in self.held if each not in some]
        times = 2 if self.random.random() < 0.1 else 1
        for number in range(times):  # a repeat of the same is success, too
            try:
                await self.call(
                    "settle", self.store.settle(queue, settlements), queue=queue, settlements=settlements, again=number
                )
            except HoldfastError:
                if number + 1 == times:
                    raise

    def _decision(self, held: Claimed) -> Settlement:
        action = self.random.choices(("complete", "retry", "release", "dead"), (6, 3, 2, 1))[0]
        delay = self.random.choice((0.0, 0.3, 3.0)) if action in ("retry", "release") else 0.0
        keep = False if action == "complete" and self.random.random() < 0.1 else None
        error = "went wrong" if action in ("retry", "dead") else None
        return Settlement(held.id, held.token, action, delay=delay, keep=keep, error=error)  # type: ignore[arg-type]

    async def extend(self) -> None:
        if self.held:
            queue, held = self.random.choice(self.held)
            seconds = self.random.choice(LEASES)
            leases = [(held.id, held.token)]
            await self.call(
                "extend", self.store.extend(queue, leases, seconds), queue=queue, leases=leases, lease=seconds
            )

    # The rest.

    async def cancel(self) -> None:
        if self.known:
            id = self.random.choice(self.known)
            await self.call("cancel", self.store.cancel(QUEUE, id), id=id)

    async def get(self) -> None:
        if self.known:
            ids = [self.random.choice(self.known)]
            await self.call("get", self.store.get(QUEUE, ids), ids=ids)

    async def stats(self) -> None:
        await self.call("stats", self.store.stats(QUEUE))

    async def scan(self) -> None:
        view = self.random.choice(("archive", "dead"))
        await self.call("scan", self.store.scan(QUEUE, view, limit=50), view=view)

    async def maintain(self) -> None:
        await self.call("maintain", self.store.maintain(QUEUE))

    async def replay(self) -> None:
        letters = await self.call("scan", self.store.scan(QUEUE, "dead", limit=2), view="dead")
        if letters:
            ids = [each.id for each in letters]
            await self.call("replay", self.store.replay(QUEUE, "dead", ids), ids=ids)

    async def purge(self) -> None:
        await self.call("purge", self.store.purge(QUEUE))

    async def idle(self) -> None:
        """Leases run out, windows pass."""
        await asyncio.sleep(self.random.choice((0.3, 2.0, 6.0, 18.0)))


async def live(
    name: str, clients: list[tuple[str, int]], open_store: Callable[[], Awaitable[Any]], history: History, plan: Plan
) -> None:
    """One life of a process. At its end it closes its store, or just ends."""
    dice = random.Random(f"{plan.policy}/{plan.seed}/{name}/life")
    try:
        store = await open_store()
    except HoldfastError:
        return
    workers = [Client(client, name, store, history, plan) for client, _ in clients]
    await asyncio.gather(*(worker.run(steps) for worker, (_, steps) in zip(workers, clients, strict=True)))
    if dice.random() < 0.5:
        try:
            await history.call(name, name, "close", store.close())
        except HoldfastError:
            pass
