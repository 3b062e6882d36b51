"""Looking for bad schedules: at random, and all with at most k deviations from an undisturbed one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from .ghost import Violation
from .rules import E, R, Rules
from .world import FAULTS, Client, Shape, World

SLEEPS = (2, R // 2, R + 2, 2 * R, 4 * R)


class Dice:
    """Chooses at random, from a seed."""

    def __init__(self, seed: int, shape: Shape) -> None:
        self.rng = Random(seed)
        self.shape = shape

    def client(self, clients: list[Client]) -> Client:
        return self.rng.choice(clients)

    def fate(self, client: Client) -> str:
        if self.rng.random() >= self.shape.faults:
            return "ok"
        return self.rng.choices(FAULTS, self.shape.kinds)[0]

    def sleep(self) -> int:
        return self.rng.choice(SLEEPS)

    def tick(self, world: World) -> None:
        dice = self.rng.random()
        if dice < self.shape.jumps:
            world.bucket.now += self.rng.choice(SLEEPS)
        elif dice < self.shape.jumps + self.shape.pace:
            world.bucket.now += 1
        if self.shape.faults and dice > 0.95:
            self.rng.choice(world.clients).error = self.rng.randint(-E, E)

    def late(self, waiting: int) -> int | None:
        return self.rng.randrange(waiting) if waiting and self.rng.random() < self.shape.haste else None


def shape_of(seed: int) -> Shape:
    """Each seed has its own mix of features."""
    return replace(_shape_of(seed), schedules=Random(f"{seed}/schedules").random() < 0.3)


def _shape_of(seed: int) -> Shape:
    rng = Random(-seed - 1)

    def perhaps(chance: float) -> bool:
        return rng.random() < chance

    shape = Shape(
        messages=rng.choice((2, 3, 4)),
        shards=rng.choice((1, 1, 1, 2)),
        attempts=rng.choice((1, 2, 3)),
        faults=rng.choice((0.0, 0.06, 0.12, 0.12, 0.25)),
        gap=rng.choice((0, 0, 4, 15)),
        jumps=rng.choice((0.0, 0.03, 0.03, 0.08)),
        haste=rng.choice((0.02, 0.06, 0.2)),
        pace=rng.choice((0.05, 0.27, 0.27)),
        priorities=perhaps(0.3),
        delays=perhaps(0.4),
        failures=perhaps(0.7),
        several=perhaps(0.3),
        dedup=perhaps(0.3),
        purge=perhaps(0.3),
        delete=perhaps(0.15),
        replay=perhaps(0.25),
        lazy=rng.choice((0.0, 0.1, 0.3)),
        upkeep=rng.choice((0.3, 0.5, 0.7)),
    )
    if not perhaps(0.25):
        return shape
    # With dedup keys and purges a new date may show a message once more: known, and said in the docs.
    shape = replace(shape, dedup=False, replay=False, purge=False, delete=False)
    return replace(shape, retries=perhaps(0.5), touches=rng.choice((0.0, 0.01)), copies=rng.choice((0.0, 0.01)))


def world_of(seed: int, rules: Rules, shape: Shape | None = None) -> World:
    shape = shape or shape_of(seed)
    return World(seed, shape, rules, Dice(seed, shape))


def broken_by(world: World) -> str | None:
    """Run the schedule to its end: the promise it breaks, or None."""
    try:
        world.run()
    except Violation as error:
        return str(error)
    return None


class Script:
    """Everybody in turn, time steady; at given steps something else happens."""

    RUN = 3  # steps until it is another's turn

    def __init__(self, deviations: dict[int, str]) -> None:
        self.deviations = deviations
        self.step = -1
        self.turn = 0

    def client(self, clients: list[Client]) -> Client:
        self.step += 1
        self.turn += self.RUN if self.deviations.get(self.step) == "switch" else 1
        return clients[self.turn // self.RUN % len(clients)]

    def fate(self, client: Client) -> str:
        wanted = self.deviations.get(self.step, "ok")
        return wanted if wanted in FAULTS else "ok"

    def sleep(self) -> int:
        return 3 * R

    def tick(self, world: World) -> None:
        if self.step % self.RUN == 0:
            world.bucket.now += 1
        if self.deviations.get(self.step) == "jump":
            world.bucket.now += R + 2 * E

    def late(self, waiting: int) -> int | None:
        return 0 if waiting and self.step % 25 == 24 else None


SMALL = Shape(producers=2, consumers=2, messages=1, failures=False, lazy=0.0, steps=70, steady=True)
SCHEDULED = replace(SMALL, schedules=True)
DEVIATIONS = (*FAULTS, "switch", "jump")


def plans(steps: int, most: int, first: int = 0) -> Iterator[dict[int, str]]:
    """All ways to deviate at most `most` times within so many steps."""
    yield {}
    if most == 0:
        return
    for step in range(first, steps):
        for deviation in DEVIATIONS:
            for rest in plans(steps, most - 1, step + 1):
                yield {step: deviation, **rest}


def scripted(plan: dict[int, str], rules: Rules, shape: Shape = SMALL) -> World:
    return World(0, shape, rules, Script(plan))
