"""The real engine on a bucket that fails at random, with the invariants of the protocol: seconds instead of minutes.

Producers and consumers have a store and a door of their own. Requests fail, lose their answer or arrive late; processes
are killed or stand still and come back. Windows are short, and the machine's own delays only add to the schedules.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from typing import Any

import pytest

from holdfast.config import QueueOptions
from holdfast.errors import HoldfastError, UnknownOutcome
from holdfast.stores.base import DEAD
from holdfast.stores.log import archive
from holdfast.stores.log.bucket.store import LateStore
from holdfast.stores.records import Envelope, Settlement
from tests.stores.log.bucket.far_bucket import Door, FarBucket, process

WINDOW = 1.0
SECONDS = 5.0
SHORT = {
    "bucket.transaction.WINDOW": WINDOW,
    "bucket.transaction._SURE": 0.3,
    "bucket.space.CloudSpace.window": WINDOW,
    "head.repeat.MARGIN": 0.3,
    "flush.TAKEOVER": 0.3,
    "bucket.repeat_window._LEAST_TIME": 0.5,
    "bucket.promises._SURE": 0.3,
    "bucket.repeat._NAP": 0.1,
    "bucket.graveyard._SOON": 0.05,
    "bucket.requests._FIRST_PAUSE": 0.005,
    "bucket.requests._LONGEST_PAUSE": 0.1,
    "head.machine.NEAR_MOST": 2,
    "head.machine.NEAR_KEPT": 1,
}


class Stage:
    """What was done and answered."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.bucket = FarBucket(time.time, resolution=0.001)
        self.faults = 0.12
        self.until = time.monotonic() + SECONDS
        self.answers: dict[str, str] = {}  # by payload: stored or unknown
        self.keyed: dict[str, set[str]] = {}  # ids that were answered for a dedup key
        self.completed: Counter[str] = Counter()  # by payload: completions that counted
        self.doubtful: set[str] = set()  # payloads of settlements without an answer
        self.leases: dict[str, tuple[str, float]] = {}  # by id: the token, and until when its holder is safe
        self.stolen: list[str] = []
        self._late = itertools.count()

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.until

    def fate(self, kind: str, key: str) -> str:
        """Faults hit writes; the config is spared so that the queue stays."""
        if self.rng.random() >= self.faults or key.startswith(("queues/", "probe/")):
            return "ok"
        return self.rng.choice(("fail", "lose", "late", "lose"))

    async def open(self) -> tuple[LateStore, Door]:
        store, door = await process(self.bucket, timeout=1.0)
        door.fate = self.fate
        return store, door


async def produce(stage: Stage, name: str) -> None:
    store, door = await stage.open()
    for number in itertools.count():
        if stage.is_over:
            break
        if stage.rng.random() < 0.08:
            await crash(stage, store, door)
            store, door = await stage.open()
        payloads = [f"{name}.{number}.{part}" for part in range(stage.rng.choice((1, 1, 1, 2)))]
        key = f"k{stage.rng.randrange(6)}" if len(payloads) == 1 and stage.rng.random() < 0.25 else None
        mixed = len(payloads) > 1  # two priorities: two blocks, all or nothing
        messages = [
            Envelope(each.encode(), priority=place if mixed else 0, dedup_key=key, delay=stage.rng.choice((0, 0, 0.4)))
            for place, each in enumerate(payloads)
        ]
        await send(stage, store, messages, payloads, key)
        await asyncio.sleep(stage.rng.uniform(0.0, 0.15))
    await crash(stage, store, door)


async def send(stage: Stage, store: LateStore, messages, payloads: list[str], key: str | None) -> None:
    for payload in payloads:
        stage.answers[payload] = "unknown"
    try:
        ids = await store.append("q", messages)
    except UnknownOutcome as lost:
        if not lost.ids or stage.rng.random() < 0.5:
            return
        try:
            ids = await lost.retry()
        except HoldfastError:
            return
    except HoldfastError:
        return
    if key is not None:
        stage.keyed.setdefault(key, set()).update(ids)
        return
    for payload in payloads:
        stage.answers[payload] = "stored"


async def crash(stage: Stage, store: LateStore, door: Door) -> None:
    """Its requests fail from now on; what is on its way may arrive. Somebody must still end its tasks."""
    door.is_shut = True
    try:
        await asyncio.wait_for(store.close(), 20.0)
    except (HoldfastError, TimeoutError):
        pass


async def consume(stage: Stage) -> None:
    store, door = await stage.open()
    while not stage.is_over:
        dice = stage.rng.random()
        if dice < 0.04:
            await crash(stage, store, door)
            store, door = await stage.open()
        try:
            if dice > 0.93:
                await store.maintain("q")
            elif dice > 0.88:
                letters = await store.scan("q", "dead", limit=2)
                await store.replay("q", "dead", [each.id for each in letters])
            else:
                await work(stage, store, "q" if dice < 0.75 else "q" + DEAD, stand_still=0.3 < dice < 0.36)
        except HoldfastError:
            pass
        await asyncio.sleep(stage.rng.uniform(0.0, 0.05))
    await crash(stage, store, door)


async def work(stage: Stage, store: LateStore, queue: str, *, stand_still: bool) -> None:
    asked = time.time()
    claims = await store.claim(queue, stage.rng.randint(1, 4), 0.8)
    for each in claims.messages:
        token, safe = stage.leases.get(each.id, ("", 0.0))
        if token != each.token and asked < safe and queue == "q" and each.attempt > 1 and not each.recovered:
            stage.stolen.append(each.id)
        stage.leases[each.id] = (each.token, asked + 0.8)
    if stand_still:
        await asyncio.sleep(1.5 * WINDOW)
    actions = [stage.rng.choice(("complete", "complete", "retry", "release", "dead")) for _ in claims.messages]
    settlements = [
        Settlement(each.id, each.token, action, delay=stage.rng.choice((0.0, 0.3)) if action == "retry" else 0.0)
        for each, action in zip(claims.messages, actions, strict=True)
    ]
    for each in claims.messages:
        stage.leases.pop(each.id, None)  # from here on it may be given back
    payloads = [each.payload.decode() for each in claims.messages]
    try:
        answers = await store.settle(queue, settlements) if settlements else []
    except HoldfastError:
        stage.doubtful.update(payloads)
        raise
    for payload, action, answer in zip(payloads, actions, answers, strict=True):
        if action == "complete" and answer == "ok":
            stage.completed[payload] += 1


async def mail(stage: Stage) -> None:
    """Late requests arrive, at random times."""
    while not stage.is_over:
        await asyncio.sleep(stage.rng.uniform(0.0, 0.6))
        waiting = stage.bucket.waiting
        if waiting:
            stage.bucket.deliver(stage.rng.randrange(len(waiting)) + 1)


async def drain(stage: Stage) -> LateStore:
    """Nothing fails any more: everything is completed, written, deleted and forgotten."""
    stage.faults = 0.0
    stage.bucket.deliver()
    store, _ = await stage.open()
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        for queue in ("q", "q" + DEAD):
            claims = await store.claim(queue, 100, 5.0)
            if claims.messages:
                await store.settle(queue, [Settlement(each.id, each.token, "complete") for each in claims.messages])
                stage.completed.update(each.payload.decode() for each in claims.messages)
        await store.maintain("q")
        stats = await store.stats("q")
        if stats.total == stats.archived and not waiting(stage):
            return store
        await asyncio.sleep(0.2)
    raise AssertionError(f"the queue is not empty: {stats} {waiting(stage)}")


def waiting(stage: Stage) -> list[str]:
    """Blocks that somebody may still absorb; what came late was never acknowledged, and is kept apart."""
    keys = [*stage.bucket.named("/inbox/"), *stage.bucket.named("/later/")]
    return [key for key in keys if "/late/" not in key]


@pytest.fixture
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SHORT.items():
        monkeypatch.setattr(f"holdfast.stores.log.{name}", value)


@pytest.mark.usefixtures("short_windows")
@pytest.mark.parametrize(
    "options", [{}, {"shards": 2}, {"archive": False}], ids=["one head", "two shards", "no archive"]
)
async def test_promises_hold(options: dict[str, Any]) -> None:
    stage = Stage(1)
    store, _ = await stage.open()
    await store.create_queue("q", QueueOptions(max_attempts=3, **options))
    await asyncio.gather(produce(stage, "p0"), produce(stage, "p1"), *(consume(stage) for _ in range(3)), mail(stage))
    last = await drain(stage)
    try:
        check(stage)
        if options.get("archive", True):
            check_archive(stage)
    finally:
        await store.close()
        await last.close()


def check(stage: Stage) -> None:
    stored = [each for each, answer in stage.answers.items() if answer == "stored"]
    assert len(stored) > 5, "too little happened"
    assert [each for each, count in stage.completed.items() if count > 1] == [], "completed twice"
    ended = stage.completed.keys() | stage.doubtful
    assert [each for each in stored if each not in ended] == [], "acknowledged and lost"
    assert [each for each in ended if each not in stage.answers] == [], "unexpected"
    assert stage.stolen == [], "claimed while its lease was alive"
    assert [key for key, some in stage.keyed.items() if len(some) > 1] == [], "two ids for one dedup key"


def check_archive(stage: Stage) -> None:
    rows = [
        record for key in stage.bucket.named("/archive/") for record in archive.decode(stage.bucket.objects[key][0])[0]
    ]
    ids = Counter(record.id for record in rows)
    assert [id for id, count in ids.items() if count > 1] == [], "an id in two files, or twice in one"
    payloads = Counter(record.payload.decode() for record in rows)
    assert [each for each, count in payloads.items() if count > 1] == [], "one message became two"
    assert [each for each in payloads if each not in stage.answers] == [], "unexpected in the archive"
    stored = {each for each, answer in stage.answers.items() if answer == "stored"} | stage.completed.keys()
    assert stored - payloads.keys() == set(), "acknowledged or completed, and no record of it"
