"""One seed from its beginning to its verdict."""

from __future__ import annotations

import asyncio
import hashlib
import random
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from holdfast.config import QueueOptions, StoreOptions
from holdfast.errors import HoldfastError
from holdfast.retry import Fixed
from holdfast.stores.records import Settlement

from .baton import Bell, Hang, Process, World
from .faults import Dice
from .history import History
from .judge import Judge, Rest
from .loop import VirtualLoop
from .plan import Plan
from .seams import in_world
from .spaces import Simulated, simulated
from .workload import MOVED, QUEUE, Client, live

_ALL_OVER_S = 60.0  # every lease, delay and late write is over after this
_DRAINS = 60
_FORGOTTEN_S = 25.0  # the repeat window and more
_REQUESTS_A_STEP = 4
_REWRITES_AT_REST = 0.5  # of the seeds with rewritten dates
_SURGES = 0.15  # of the seeds


class Outcome(msgspec.Struct):
    """What came of a seed."""

    policy: str
    seed: int
    violations: list[str]
    hits: dict[str, int]
    faults: int  # that were drawn, muted ones included
    trace: str
    calls: int
    requests: int
    seconds: float  # of virtual time
    switches: int
    delivered: int


class Scene:
    def __init__(self, plan: Plan, world: World) -> None:
        self.plan = plan
        self.world = world
        self.dice = Dice(plan.mix, f"{plan.policy}/{plan.seed}")
        self.random = random.Random(f"{plan.policy}/{plan.seed}/scene")
        self.history = History(world)
        self.bad: list[str] = []
        self.rest = Rest(drained=[])
        self.space: Simulated = simulated(plan, world, self.dice, self._breach)
        self.space.request_made = self._request_made
        self.processes: list[Process] = []
        self._alive = 0
        self._ended = Bell(world)
        self._lives: Counter[str] = Counter()
        self._clients: dict[str, list[tuple[str, int]]] = {}
        expected = plan.processes * plan.clients * plan.steps * _REQUESTS_A_STEP
        self._troubles = sorted(
            (self.random.randrange(1, expected), kind)
            for kind, count in (
                ("freeze", plan.mix.freezes),
                ("kill", plan.mix.kills),
                ("rewrite", plan.mix.rewrites),
            )
            for _ in range(count)
        )

    def _breach(self, text: str) -> None:
        self.bad.append(f"{text} (at {self.world.now:.3f})")

    def run(self) -> None:
        self.dice.is_quiet = True
        self._spawn(self._process("setup"), self._setup)
        self._until_all_ended()
        self.dice.is_quiet = False
        self.world.laziness = self.plan.mix.laziness
        for number in range(self.plan.processes):
            self._begin(f"p{number}", [self.plan.steps] * self.plan.clients)
        self._until_all_ended()
        self.dice.is_quiet = True
        self.world.laziness = 0.0
        self.world.sleep(_ALL_OVER_S)
        if self.plan.mix.rewrites and self.random.random() < _REWRITES_AT_REST and self.dice.happens("rewrite"):
            self._rewrite()
        self.rest.began = self.world.now
        self._spawn(self._process("drain"), self._drain)
        self._until_all_ended()

    def _until_all_ended(self) -> None:
        while self._alive:
            self._ended.wait()

    # Processes.

    def _process(self, name: str) -> Process:
        offset = self.random.random()
        ticks, wall = (offset * 1e6, self.random.choice((0.0, -3600.0, 300.0))) if self.plan.mix.clocks else (1e3, 0.0)
        process = Process(name, f"{self.plan.policy}/{self.plan.seed}", ticks=ticks, wall=wall)
        self.processes.append(process)
        return process

    def _begin(self, name: str, steps: list[int]) -> None:
        self._lives[name] += 1
        life = f"{name}{'abcdefgh'[self._lives[name] - 1]}"
        clients = [(f"{life}{number}", count) for number, count in enumerate(steps)]
        self._clients[life] = clients
        self._spawn(
            self._process(life),
            lambda: live(life, clients, self._opener(life), self.history, self.plan),
        )

    def _opener(self, name: str) -> Callable[[], Awaitable[Any]]:
        options = StoreOptions(operation_timeout=self.plan.timeout, poll_interval=1.0, connect_timeout=30.0)
        return lambda: self.space.open(name, options)

    def _spawn(self, process: Process, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._alive += 1
        self.world.spawn(process, lambda: self._live(process, main))

    def _live(self, process: Process, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        loop = VirtualLoop(self.world)
        try:
            loop.run_until_complete(main())
        except Exception as error:  # noqa: BLE001  callers see only errors of ours, and those are in the history
            self._breach(f"{process.name} ended with {error!r}")
        self._over(process)

    def _over(self, process: Process) -> None:
        if process.is_alive:
            process.is_alive = False
            self.space.gone(process.name)
            self._alive -= 1
            self._ended.ring()

    # Troubles.

    def _request_made(self, count: int) -> None:
        while self._troubles and count >= self._troubles[0][0]:
            _, kind = self._troubles.pop(0)
            if not self.dice.is_quiet:
                delay = self.random.random() * 4 * self.plan.trip
                victim = self.world.process if self.random.random() < 0.7 else self._anybody()
                length = self.random.choice((1.0, 6.0, 20.0, 40.0))
                if self.dice.happens(kind):
                    self.world.at(delay, partial(self._strike, kind, victim, length))

    def _anybody(self) -> Process:
        return self.random.choice([each for each in self.processes if each.is_alive] or self.processes)

    def _strike(self, kind: str, victim: Process, length: float) -> None:
        if self.dice.is_quiet or not victim.is_alive or victim.name not in self._clients:
            return
        if kind == "freeze":
            victim.frozen_until = self.world.now + length
        elif kind == "rewrite":
            self._rewrite()
        else:
            name, steps = victim.name[:-1], [max(2, count // 2) for _, count in self._clients[victim.name]]
            self._alive += 1  # whoever waits for all to end waits for the next life too
            self._over(victim)
            self.world.at(length / 4, lambda: self._again(name, steps))

    def _rewrite(self) -> None:
        self.space.rewrite(self.random.choice((0.3, 1.0)), keep_tags=self.random.random() < 0.5)

    def _again(self, name: str, steps: list[int]) -> None:
        self._alive -= 1
        self._begin(name, steps)

    # Before and after.

    async def _setup(self) -> None:
        store = await self._opener("setup")()
        await store.create_queue(
            QUEUE,
            QueueOptions(
                max_attempts=3,
                shards=self.plan.shards,
                archive=self.plan.archive,
                retry=Fixed(0.5),
                dedup_window=86400.0,
                dead_letter=MOVED if self.plan.moves else True,
            ),
        )
        if self.plan.moves:
            await store.create_queue(MOVED, QueueOptions(archive=self.plan.archive, retry=Fixed(0.5)))
        await store.close()

    async def _drain(self) -> None:
        store = await self._opener("drain")()
        try:
            await self._empty(store)
        except HoldfastError:
            pass  # it is in the history, and in the quiet every error is a breach
        except Exception as error:  # noqa: BLE001
            self._breach(f"the drain ended with {error!r}")
        await store.close()

    async def _empty(self, store: Any) -> None:
        client = Client("drain", "drain", store, self.history, self.plan)
        if self.plan.mix.rewrites:  # work goes on until somebody notices
            await client.send(1, {"priority": 0})
            await client.claim()
            await self._settle_all(client)
            await asyncio.sleep(1.0)
        await self.space.recover(client)
        if self.random.random() < _SURGES:
            await self._surge(client)
        await self._claim_all(client, adding=self.random.randrange(4))  # in the quiet, too, something is added
        await client.call("maintain", store.maintain(QUEUE))  # a flush that was left behind may bring something back
        await self._claim_all(client)
        if self.plan.moves:
            await client.call("maintain", store.maintain(MOVED))
            await self._claim_all(client, queue=MOVED)
        await self._look(store, client)

    async def _claim_all(self, client: Client, *, adding: int = 0, queue: str = QUEUE) -> None:
        idle = 0
        for _ in range(_DRAINS):
            if adding and self.random.random() < 0.4:
                adding -= 1
                await client.send(self.random.choice((1, 3)), {"priority": self.random.choice((0, 1, 7))})
                await asyncio.sleep(self.random.choice((0.0, 0.01, 0.4, 3.0)))
            if await self._claim(client, self.random.choice((1, 1, 2, 5)), queue):
                idle = 0
            elif not adding:
                idle += 1
                if idle == 2:
                    break
                await asyncio.sleep(2.0)
        await self._settle_all(client)

    async def _surge(self, client: Client) -> None:
        """Urgent messages come when the head holds others already, more than a claim takes in."""
        for priority, count in ((0, 3), (7, 6)):
            for _ in range(count):
                await client.send(1, {"priority": priority})
            for _ in range(count - 2):
                await self._claim(client, 1)

    async def _claim(self, client: Client, limit: int, queue: str = QUEUE) -> bool:
        work = client.store.claim(queue, limit, 600.0)
        claims = await client.call("claim", work, queue=queue, lease=600.0, limit=limit)
        call = self.history.calls[-1]
        if queue == QUEUE:
            self.rest.drained += [(call, each) for each in claims.messages]
        client.held += [(queue, each) for each in claims.messages]
        if client.held and self.random.random() < 0.3:
            await self._settle_all(client)
        return bool(claims.messages or claims.expired)

    async def _settle_all(self, client: Client) -> None:
        if client.held:
            queue = client.held[0][0]  # in the drain one after the other
            settlements = [Settlement(each.id, each.token, "complete") for _, each in client.held]
            client.held = []
            work = client.store.settle(queue, settlements)
            answers = await client.call("settle", work, queue=queue, settlements=settlements)
            if any(answer != "ok" for answer in answers):
                self._breach(f"in the quiet {answers} were answered to completions")

    async def _look(self, store: Any, client: Client) -> None:
        await asyncio.sleep(_FORGOTTEN_S)
        for queue in (QUEUE, MOVED) if self.plan.moves else (QUEUE,):
            await client.call("maintain", store.maintain(queue))
        await asyncio.sleep(_FORGOTTEN_S)
        self.rest.archive = await _everything(store, QUEUE, "archive")
        self.rest.dead = await _everything(store, QUEUE, "dead")
        if self.plan.moves:
            self.rest.moved = [each for view in ("archive", "dead") for each in await _everything(store, MOVED, view)]
        self.rest.stats = await client.call("stats", store.stats(QUEUE))
        await client.call("claim", store.claim(QUEUE, 1, 600.0), queue=QUEUE, lease=600.0, limit=1)
        self.space.empty()


async def _everything(store: Any, queue: str, view: str) -> list[Any]:
    found: list[Any] = []
    while page := await store.scan(queue, view, after=found[-1].id if found else None, limit=500):
        found += page
    return found


def play(plan: Plan, *, shown: list[str] | None = None) -> Outcome:
    """Run one seed; call it inside `batch.ready()`. `shown` gets its calls."""
    world = World(f"{plan.policy}/{plan.seed}")
    with in_world(world):
        scene = Scene(plan, world)
        digest = hashlib.blake2b(digest_size=16)
        scene.space.watchers.append(
            lambda key, before, after: digest.update(f"{world.now!r} {key} {len(after or b'')}\n".encode())
        )
        try:
            with scene.space.in_place():
                scene.run()
        except Hang as hang:
            scene.bad.append(f"hang: {hang}")
        finally:
            world.end()
        if world.failure is not None:
            trace = "".join(traceback.format_exception(world.failure)[-4:])
            scene.bad.append(f"an error nobody caught: {world.failure!r}\n{trace}")
        scene.bad += Judge(plan, scene.history, scene.rest, scene.space.slack).run()
    for call in scene.history.calls:
        digest.update(f"{call}\n".encode())
    if shown is not None:
        shown += [str(plan), *map(str, scene.history.calls)]
    return Outcome(
        plan.policy,
        plan.seed,
        scene.bad,
        dict(scene.dice.hits),
        len(scene.dice.numbers),
        digest.hexdigest(),
        len(scene.history.calls),
        scene.space.requests,
        world.now,
        world.switches,
        sum(len(call.answer.messages) for call in scene.history.calls if call.kind == "claim" and call.is_ok),
    )
