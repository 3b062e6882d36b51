"""One schedule: clients, faults and time, from the first message to the drain."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from .bucket import ERROR, Bucket, Reply
from .committer import Steps, insist
from .consumer import claim, extend, receive, settle
from .flusher import flush
from .ghost import Ghost, broken
from .head import Head, apply
from .keys import CONFIG, IDENTITY, Log
from .operator import change
from .producer import append, append_once, replay
from .quarantine import bring_back, identify, keep_aside
from .rules import CACHE, R, Rules
from .scheduler import fire
from .upkeep import bury, create_queue, delete_queue, purge, remove_leftovers, sweep, waste

FAULTS = ("fail", "lose", "late", "crash", "sleep")
ROUNDS = 30  # of the drain, at most


@dataclass(frozen=True)
class Shape:
    """What there is in a schedule: clients, messages and which parts of the protocol they use."""

    producers: int = 2
    consumers: int = 3
    messages: int = 3  # a producer
    shards: int = 1
    attempts: int = 3
    steps: int = 220
    faults: float = 0.12  # of all requests
    kinds: tuple[int, ...] = (3, 3, 3, 1, 3)  # how often each of FAULTS
    gap: int = 0  # ticks between two messages of a producer, at most
    jumps: float = 0.03  # steps after which the clock jumps
    haste: float = 0.06  # steps after which a late request is applied
    pace: float = 0.27  # ticks of the clock a step: the smaller, the more happens within R
    priorities: bool = False
    delays: bool = False
    failures: bool = True  # handlers fail, release, kill
    several: bool = False  # calls of several blocks
    dedup: bool = False
    purge: bool = False
    delete: bool = False
    replay: bool = False
    schedules: bool = False
    changes: bool = False
    retries: bool = False  # producers repeat what is unknown
    touches: float = 0.0  # steps after which some blocks are rewritten
    copies: float = 0.0  # steps after which the whole bucket is a copy
    lazy: float = 0.1  # deliveries that are left to expire
    upkeep: float = 0.4  # how much of a consumer's time goes to flushes and the graveyard
    steady: bool = False  # consumers work, flush and bury in turn


class Chooser(Protocol):
    """Decides who is next, what becomes of the request, and how time goes on."""

    def client(self, clients: list[Client]) -> Client: ...
    def fate(self, client: Client) -> str: ...
    def sleep(self) -> int: ...
    def tick(self, world: World) -> None: ...
    def late(self, waiting: int) -> int | None: ...


class Client:
    def __init__(self, world: World, name: str, program: Any) -> None:
        self.world = world
        self.name = name
        self.program = program
        self.rng = Random(f"{world.seed}/{name}")
        self.error = 0  # of its clock
        self.asleep = 0
        self.lives = 0
        self.sent = 0
        self.done = False
        self._born = 0
        self.start()

    @property
    def rules(self) -> Rules:
        return self.world.rules

    @property
    def ghost(self) -> Ghost:
        return self.world.ghost

    def start(self) -> None:
        """Come to life, or back to it: nothing is remembered but how many messages it has sent."""
        self.lives += 1
        self.me = f"{self.name}#{self.lives}"
        self.seq = 0
        self.known: tuple[int | None, int] = (1, 0)  # incarnation of the queue, and when that was read
        self.epoch = self._opened()
        self.running: Steps = self.program(self)
        self.next(None)

    def _opened(self) -> int:
        """The bucket's epoch, read at opening."""
        identity = self.world.bucket.objects[IDENTITY]
        made_at, epoch = identity.data
        is_copy = identity.created_at - made_at > R  # not swapped by whoever was first: only without A3_epoch
        return self.clock() if is_copy else int(epoch)

    def next(self, reply: Reply | None) -> None:
        try:
            self.request = self.running.send(reply)  # type: ignore[arg-type]
        except StopIteration:
            self.done = True

    def clock(self) -> int:
        return self.world.bucket.now + self.error

    def birth(self) -> int:
        """P1: store time as this client knows it; never back, so that its blocks keep their order."""
        self._born = max(self._born, self.clock())
        return self._born

    def queue(self) -> Steps:
        """The queue's incarnation, read anew when what is known is old; None: there is no queue."""
        if not self.world.shape.delete:
            return 1
        if self.clock() - self.known[1] > CACHE or self.known[1] == 0:
            asked = self.clock()
            status, found = yield from insist(("get", CONFIG))
            self.known = (found.data[0] if status == "ok" else None, asked)
        return self.known[0]

    def knows_queue(self, incarnation: int) -> bool:
        return self.known[0] == incarnation

    def shards(self, incarnation: int) -> list[Log]:
        return [(incarnation, f"s{number}") for number in range(self.world.shape.shards)]

    def applied(self, head: Head, log: Log, intents: list[Any]) -> Any:
        return apply(head, intents, self.clock(), log=log, most=self.world.shape.attempts, rules=self.rules)


def produce(client: Client) -> Steps:
    shape, rng = client.world.shape, client.rng
    home = int(client.name[1:])
    while client.sent < shape.messages:
        if shape.gap:
            yield "wait", rng.randint(0, shape.gap)
        incarnation = yield from client.queue()
        if incarnation is None:
            yield "wait", 3
            continue
        client.sent += 1
        value = f"{client.name}.{client.sent}"
        shards = client.shards(incarnation)
        log = shards[(home if client.rules.shard_per_producer else client.sent) % len(shards)]
        if shape.dedup and rng.random() < 0.7:
            yield from append_once(client, log, f"key{rng.randrange(2)}", [value])
        elif shape.several and rng.random() < 0.7:
            yield from append(client, log, [value + "a", value + "b"])
        elif shape.delays and rng.random() < 0.5:
            yield from append(client, log, [value], delay=rng.choice((4, 30)))
        else:
            priority = rng.randrange(2) if shape.priorities else 0
            yield from append(client, log, [value], priority=priority, sender=(client.name, priority, client.sent))


def consume(client: Client) -> Steps:
    shape, rng = client.world.shape, client.rng
    while True:
        incarnation = yield from client.queue()
        if incarnation is None:
            yield "wait", 3
            continue
        if shape.steady:
            for chore in (_work, flush, bury, *([fire] if shape.schedules else [])):
                yield from chore(client, (incarnation, "s0"))
            continue
        logs = [*client.shards(incarnation), (incarnation, "dead")]
        log = rng.choice(logs) if rng.random() < 0.8 else logs[0]
        if rng.random() < shape.upkeep:
            yield from rng.choice(_upkeep(shape, log))(client, log)
        else:
            yield from _work(client, log)


def _upkeep(shape: Shape, log: Log) -> list[Any]:
    chores = [flush, flush, bury, bury]
    main = log[1] != "dead"
    if shape.several and main:
        chores.append(sweep)
    if shape.purge and main:
        chores.append(purge)
    if shape.changes and main:
        chores += [change, change]
    if shape.replay and main:
        chores += [replay, replay]
    if shape.schedules and main:
        chores += [fire, fire]
    if shape.delete:
        chores.append(lambda client, log: remove_leftovers(client))
    if shape.touches or shape.copies:
        chores += [keep_aside, keep_aside]
    return chores


def _work(client: Client, log: Log) -> Steps:
    rng = client.rng
    deliveries = yield from claim(client, log, rng.randint(1, 3))
    held = []
    for delivery in deliveries:
        row = yield from receive(client, delivery)
        if row is not None and rng.random() >= client.world.shape.lazy:
            held.append(delivery)
    if held and rng.random() < 0.15:
        yield from extend(client, held[0])
    if held:
        yield from settle(client, held, [_action(client, delivery) for delivery in held])


def _action(client: Client, delivery: Any) -> str:
    dice = client.rng.random()
    if not client.world.shape.failures or dice < 0.5:
        return "complete"
    if delivery[0][1] == "dead":
        row = client.ghost.contents[delivery[1]][delivery[2]]
        return "moved" if row.id[0] != "again" else "complete"
    return "retry" if dice < 0.8 else "release" if dice < 0.88 else "dead"


def manage(client: Client) -> Steps:
    """Deletes the queue and makes it anew."""
    yield "wait", client.rng.randint(5, 40)
    yield from delete_queue(client)
    yield "wait", client.rng.randint(0, 20)
    yield from create_queue(client)


class World:
    def __init__(self, seed: int, shape: Shape, rules: Rules, chooser: Chooser) -> None:
        self.seed = seed
        self.shape = shape
        self.rules = rules
        self.chooser = chooser
        self.ghost = Ghost(shape.attempts, calm=not (shape.faults or shape.touches or shape.copies))
        self.bucket = Bucket(self.ghost)
        self.bucket.carry_out(("create", CONFIG, (1, 1, ())))
        self.bucket.carry_out(("create", IDENTITY, (self.bucket.now, 0)))
        self.late: list[Any] = []
        self._fresh = 0
        self.taken = 0  # steps
        self.copied = 0  # times
        self._rewrites = Random(f"{seed}/rewrites")
        programs = [(f"p{n}", produce) for n in range(shape.producers)]
        programs += [(f"c{n}", consume) for n in range(shape.consumers)]
        programs += [("m0", manage)] if shape.delete else []
        self.clients = [Client(self, name, program) for name, program in programs]

    def fresh(self) -> int:
        self._fresh += 1
        return self._fresh

    def run(self) -> None:
        """Raises Violation when the schedule breaks a promise."""
        while self.taken < self.shape.steps:
            self.step()
        self._wake()
        self._drain()
        self.ghost.finish()

    def step(self, *, faults: bool = True) -> None:
        self.taken += 1
        living = [client for client in self.clients if not client.done]
        awake = [client for client in living if client.asleep <= self.bucket.now]
        if not awake:
            if not living:
                self.taken = self.shape.steps
                return
            self.bucket.now = min(client.asleep for client in living)
            awake = [client for client in living if client.asleep <= self.bucket.now]
        client = self.chooser.client(awake)
        self._carry_out(client, self.chooser.fate(client) if faults else "ok")
        number = self.chooser.late(len(self.late))
        if number is not None:
            self.bucket.carry_out(self.late.pop(number))
        self.chooser.tick(self)
        if faults:
            self._rewrite()

    def _rewrite(self) -> None:
        """Somebody gives objects new dates: of some blocks, or of the whole bucket."""
        rng = self._rewrites
        if self.shape.touches and rng.random() < self.shape.touches:
            for key in [key for key in self.bucket.objects if key.folder in ("inbox", "later")]:
                if rng.random() < 0.5:
                    self.ghost.touches(key)
                    self.bucket.rewrite(key)
        if self.shape.copies and rng.random() < self.shape.copies:
            self.copy()

    def copy(self) -> None:
        """The bucket is copied or restored, and opened.

        Known, and left out: what lies there late then comes back once, and so does a repeat that arrives between the
        copy and its opening; a rewrite in place within R of the last one is not recognised, and needs `recover`.
        """
        made_at, epoch = self.bucket.objects[IDENTITY].data
        if self.bucket.now - made_at <= R:
            return
        for key, found in self.bucket.objects.items():
            late = found.created_at - key.birth > R and found.created_at > epoch
            if key.folder in ("inbox", "later") and late:
                return
        self.copied += 1
        for key in list(self.bucket.objects):
            self.bucket.rewrite(key)
        self.bucket.now += 1
        self._finish(identify(Client(self, "c8", _nothing)))

    def _carry_out(self, client: Client, fate: str) -> None:
        request = client.request
        if request[0] == "wait":
            client.asleep = self.bucket.now + request[1]
            client.request = ("wake",)
        elif request[0] == "wake":
            client.next(("ok", None))
        elif fate == "crash":
            client.running.close()
            client.start()
        elif fate == "sleep":
            client.asleep = self.bucket.now + self.chooser.sleep()
        elif fate == "fail":
            client.next(ERROR)
        elif fate == "late":
            self.late.append(request)
            client.next(ERROR)
        else:
            reply = self.bucket.carry_out(request)
            client.next(ERROR if fate == "lose" else reply)

    def _wake(self) -> None:
        """Sleepers come back as zombies, and then everybody goes."""
        zombies = [client for client in self.clients if client.asleep > self.bucket.now]
        for client in sorted(zombies, key=lambda each: each.asleep):
            self.bucket.now = max(self.bucket.now, client.asleep)
            for _ in range(12):
                if client.done or client.request[0] == "wait":
                    break
                self._carry_out(client, "ok")
        for client in self.clients:
            client.running.close()

    def _drain(self) -> None:
        """Nothing fails any more. Late requests are applied before it and in the middle of it."""
        self._apply_late(len(self.late) // 2)
        client = Client(self, "c9", _nothing)
        for number in range(ROUNDS):
            current = self.bucket.objects[CONFIG].data[0]
            client.known = (current, self.bucket.now)
            logs = [*client.shards(current), (current, "dead")] if current else []
            for log in logs:
                self._finish(_drain_log(client, log))
                self._bring_back(client, log, number)
            self._finish(remove_leftovers(client))
            if number == 2:
                self._apply_late(len(self.late))
            if number > 2 and not waste(client, logs):
                return
            self.bucket.now += R // 2
        broken("a drained queue is empty", *waste(client, logs))

    def _bring_back(self, client: Client, log: Log, number: int) -> None:
        """What an epoch lets pass by itself; in the end all. At first it is cut short, wherever that hits."""
        everything = number > ROUNDS // 3
        cut = self._rewrites.randrange(12) if number % 3 < 2 else None
        self._finish(bring_back(client, log, everything=everything), cut)

    def _apply_late(self, count: int) -> None:
        for _ in range(count):
            self.bucket.carry_out(self.late.pop(0))

    def _finish(self, program: Steps, most: int | None = None) -> None:
        reply: Reply | None = None
        left = -1 if most is None else most
        try:
            while left:
                left -= 1
                request = program.send(reply)  # type: ignore[arg-type]
                if request[0] == "wait":
                    self.bucket.now += request[1]
                    reply = ("ok", None)
                else:
                    reply = self.bucket.carry_out(request)
        except StopIteration:
            return


def _nothing(client: Client) -> Steps:
    yield "wait", 1


def _drain_log(client: Client, log: Log) -> Steps:
    deliveries = yield from claim(client, log, 9)
    if deliveries:
        yield from settle(client, deliveries, ["complete"] * len(deliveries))
    yield from flush(client, log)
    yield from keep_aside(client, log)
    yield from bury(client, log)
    if client.world.shape.several:
        yield from sweep(client, log)
