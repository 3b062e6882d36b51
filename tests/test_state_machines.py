"""Random histories: every store must answer like the oracle in `holdfast.testing.model`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy  # noqa: F401 - Hypothesis looks at it, also while a store's thread is in the middle of importing it
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from holdfast.config import QueueOptions, StoreOptions
from holdfast.errors import MessageNotFound
from holdfast.retry import Exponential, NoRetry
from holdfast.stores.base import Store
from holdfast.stores.log import open_folder, open_memory, open_slate, slatedb
from holdfast.stores.records import Change, Envelope, Settlement
from holdfast.testing.clock import ManualClock
from holdfast.testing.model import Model
from tests.toy_store import ToyStore

T = TypeVar("T")
EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "25"))
VIEWS = ("ready", "delayed", "processing", "retry", "dead", "archive")
QUEUE, DEAD = "q", "q/dead"

# Fractions that no sum of advances reaches: what happens at the very instant is nobody's promise.
LEASES = st.sampled_from([2.017, 10.017])
DELAYS = st.sampled_from([0.0, 0.0, 3.013])
ADVANCES = st.sampled_from([0.3, 1.3, 3.3, 12.3, 400.3])
CHANGES = st.builds(
    Change,
    priority=st.sampled_from([None, 0, 5]),
    delay=st.sampled_from([None, 0.0, 3.013]),
    payload=st.sampled_from([None, b"changed"]),
)
ENVELOPES = st.builds(
    Envelope,
    payload=st.sampled_from([b"", b"1", b"[2]"]),
    headers=st.sampled_from([None, {"k": "v"}]),
    priority=st.sampled_from([0, 0, 7, 255]),
    delay=DELAYS,
    dedup_key=st.sampled_from([None, None, None, "a", "b"]),
    max_attempts=st.sampled_from([None, None, 1, 2]),
)
ACTIONS = st.sampled_from(["complete", "retry", "retry", "dead", "release"])
KEEPS = st.sampled_from([None, None, False])
SELDOM = st.sampled_from([False, False, False, True])
PICK = st.integers(0, 7)  # counts from the newest; an index, since ids differ from run to run
OPTIONS = st.builds(
    QueueOptions,
    dedup_window=st.just(30.011),
    retry=st.sampled_from([Exponential(), Exponential(), NoRetry()]),
    dead_letter=st.sampled_from([True, True, False]),
    archive=st.sampled_from([True, True, False]),
)


ARGUMENTS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "append": {"envelopes": st.lists(ENVELOPES, min_size=1, max_size=4)},
    "claim": {"limit": st.integers(1, 4), "lease": LEASES, "dead": SELDOM},
    "settle": {
        "which": PICK,
        "stale": SELDOM,
        "action": ACTIONS,
        "delay": DELAYS,
        "keep": st.sampled_from([None, False]),
    },
    "extend": {"which": PICK, "stale": SELDOM, "seconds": LEASES},
    "advance": {"seconds": ADVANCES},
    "cancel": {"which": PICK, "running": SELDOM},
    "change": {"which": PICK, "change": CHANGES},
    "take_back": {"which": st.lists(PICK, min_size=1, max_size=2)},
    "pause": {"paused": SELDOM},
    "purge": {},
    "replay": {"which": st.lists(PICK, max_size=3), "view": st.sampled_from(["dead", "archive"])},
    "discard": {"which": st.lists(PICK, max_size=3), "view": st.sampled_from(["dead", "archive"])},
    "maintain": {},
    "reopen": {},
}
OFTEN = (
    ["append"] * 3
    + ["claim"] * 6
    + ["settle"] * 6
    + ["extend", "advance"] * 3
    + ["cancel", "replay", "take_back", "change"] * 2
)
STEPS = st.sampled_from([*OFTEN, "pause", "purge", "discard", "maintain", "reopen"]).flatmap(
    lambda verb: st.tuples(st.just(verb), st.fixed_dictionaries(ARGUMENTS[verb]))
)


def pick(choices: Sequence[T], which: int) -> T:
    """One of the newest."""
    return choices[-1 - which % len(choices)]


class Histories(RuleBasedStateMachine):
    """Drives one queue of a store and the oracle side by side."""

    stores: type[Stores]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.folder = TemporaryDirectory()
        self.opener = self.stores(self.clock, Path(self.folder.name))
        self.held: list[tuple[str, str, bool]] = []  # every lease ever given: id, token, of a dead letter

    def run(self, call: Awaitable[T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(call, 20))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.close())
        self.loop.close()
        self.folder.cleanup()

    @initialize(options=OPTIONS)
    def begin(self, options: QueueOptions) -> None:
        self.store = self.run(self.opener.open())
        self.run(self.store.create_queue(QUEUE, options))
        self.model = Model(options, self.clock())

    def append(self, envelopes: list[Envelope]) -> None:
        self.model.append(envelopes, self.run(self.store.append(QUEUE, envelopes)))

    def claim(self, limit: int, lease: float, dead: bool) -> None:
        worker = f"worker {len(self.held) % 3}"
        claims = self.run(self.store.claim(DEAD if dead else QUEUE, limit, lease, worker=worker))
        self.model.claim(limit, lease, claims, dead=dead, worker=worker)
        self.held += [(message.id, message.token, dead) for message in claims.messages]

    def settle(self, which: int, stale: bool, action: Any, delay: float, keep: bool | None) -> None:
        if not self.held:
            return
        id, token, dead = pick(self.held, which)
        why = "because" if action in ("retry", "dead") else None
        result, keep = (b"7", keep) if action == "complete" else (None, None)
        settlement = Settlement(id, "stale" if stale else token, action, delay, result, why, keep)
        [answer] = self.run(self.store.settle(DEAD if dead else QUEUE, [settlement]))
        self.model.settle(settlement, answer, dead=dead)

    def extend(self, which: int, stale: bool, seconds: float) -> None:
        if not self.held:
            return
        id, token, dead = pick(self.held, which)
        token = "stale" if stale else token
        [end] = self.run(self.store.extend(DEAD if dead else QUEUE, [(id, token)], seconds))
        self.model.extend(id, token, seconds, end)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.advance(seconds)

    def change(self, which: int, change: Change) -> None:
        if not self.model.entries or not self.store.capabilities.changes_messages:
            return
        id = pick(list(self.model.entries), which)
        try:
            answer = self.run(self.store.change(QUEUE, id, change))
        except MessageNotFound:
            self.model.change(id, change, None)
        else:
            self.model.change(id, change, answer)

    def take_back(self, which: list[int]) -> None:
        ids = [pick(list(self.model.entries), each) for each in which] if self.model.entries else []
        self.model.take_back(ids, self.run(self.store.take_back(QUEUE, ids)))

    def cancel(self, which: int, running: bool) -> None:
        if not self.model.entries:
            return
        id = pick(list(self.model.entries), which)
        try:
            answer = self.run(self.store.cancel(QUEUE, id, running=running))
        except MessageNotFound:
            self.model.cancel(id, None, running=running)
        else:
            self.model.cancel(id, answer, running=running)

    def pause(self, paused: bool) -> None:
        self.run(self.store.pause(QUEUE, paused))
        self.model.paused = paused

    def purge(self) -> None:
        self.model.purge(self.run(self.store.purge(QUEUE)))

    def replay(self, which: list[int], view: Any) -> None:
        ids = self.not_held(which)
        count = self.run(self.store.replay(QUEUE, view, ids))
        fresh = [
            row for row in self.run(self.store.scan(QUEUE, "ready", limit=1000)) if row.id not in self.model.entries
        ]
        self.model.replay(view, ids, count, {(row.headers or {})["replayed_from"]: row.id for row in fresh})

    def discard(self, which: list[int], view: Any) -> None:
        ids = self.not_held(which)
        self.model.discard(view, ids, self.run(self.store.discard(QUEUE, view, ids)))

    def not_held(self, which: list[int]) -> list[str]:
        """Mostly messages that have ended: of the others there is nothing to replay or delete."""
        free = [entry for entry in self.model.entries.values() if not (entry.place == "dead" and entry.token)]
        free.sort(key=lambda entry: (entry.ended != "", entry.place != "gone"))
        return [pick(free, index).id for index in which] if free else []

    def maintain(self) -> None:
        self.run(self.store.maintain(QUEUE))

    def reopen(self) -> None:
        self.run(self.store.close())
        self.store = self.run(self.opener.open())
        self.advance(0.1)  # a new producer: its ids are above the old ones by the clock alone

    @rule(step=STEPS)
    def act(self, step: tuple[str, dict[str, Any]]) -> None:
        """One rule for all verbs, so that their weights are ours: a history without claims tells little."""
        verb, how = step
        getattr(self, verb)(**how)

    @invariant()
    def looks_right(self) -> None:
        if not hasattr(self, "model"):
            return
        ids = list(self.model.entries)
        for id, answer in zip(ids, self.run(self.store.get(QUEUE, ids)), strict=True):
            self.model.get(id, answer)
        for view in VIEWS:
            self.model.scan(view, self.run(self.store.scan(QUEUE, view, limit=1000)))
        self.model.upcoming("delayed", self.run(self.store.upcoming(QUEUE, "delayed", limit=1000)))
        self.model.upcoming("retry", self.run(self.store.upcoming(QUEUE, "retry", limit=1000)))
        self.model.peek(self.run(self.store.peek(QUEUE, 1000)))
        self.model.stats(self.run(self.store.stats(QUEUE)))


class Stores:
    """Opens one store, again and again, on the clock of the test."""

    def __init__(self, clock: ManualClock, folder: Path) -> None:
        self.clock = clock
        self.folder = folder

    async def open(self) -> Store:
        raise NotImplementedError


class Toys(Stores):
    async def open(self) -> Store:
        self.toy = getattr(self, "toy", None) or ToyStore(self.clock)
        return self.toy


class Memories(Stores):
    async def open(self) -> Store:
        return await open_memory(self.folder.name, StoreOptions(), clock=self.clock)


class Folders(Stores):
    async def open(self) -> Store:
        return await open_folder(self.folder, StoreOptions(), clock=self.clock, wake=False)


class Slates(Stores):
    async def open(self) -> Store:
        return await open_slate(slatedb.local(self.folder), StoreOptions(), clock=self.clock)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("stores", "examples"),
    [(Toys, EXAMPLES), (Memories, EXAMPLES), (Folders, EXAMPLES // 2), (Slates, EXAMPLES // 2)],
)
def test_store_answers_like_the_model(stores: type[Stores], examples: int) -> None:
    run_histories(stores, examples)


def run_histories(stores: type[Stores], examples: int, *, seeded: bool = False) -> None:
    """So many random histories; with HOLDFAST_SHRINK set a failing one is made small."""
    phases = [Phase.generate, Phase.shrink] if "HOLDFAST_SHRINK" in os.environ else [Phase.generate]
    run_state_machine_as_test(
        type("Histories", (Histories,), {"stores": stores}),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            phases=phases,
            derandomize=seeded,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
