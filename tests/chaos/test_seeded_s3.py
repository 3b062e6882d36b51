"""The engine on a bucket that fails is valid; with one known bug each, the checker must find them.

Several clients in this process, each with memory of its own, on one bucket in memory behind seeded faults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from obstore.store import MemoryStore

from chaos.evidence import gather
from chaos.rehearsal import Rehearsal
from chaos.verdict import Verdict, lines
from holdfast.config import StoreOptions
from holdfast.errors import StoreError
from holdfast.stores.log.bucket import space, transaction
from holdfast.stores.log.bucket.faults import Doubt, Refused
from holdfast.stores.log.bucket.requests import Wire
from holdfast.stores.log.store import LogStore
from holdfast.testing.clock import ManualClock
from tests.servers.faulty import FaultyBucket
from tests.servers.proxy import Faults

FAULTS = Faults(unavailable=0.05, dropped=0.05, conflict=0.04, truncated=0.02)
MANY = Faults(unavailable=0.1, dropped=0.2, conflict=0.1)  # so that a bug cannot hide
POISON = 3


class IgnoresIfMatch(FaultyBucket):
    def put(self, path: str, file: Any, *, mode: Any = "overwrite", **options: Any) -> Any:
        return super().put(path, file, mode="overwrite" if isinstance(mode, dict) else mode, **options)


@dataclass
class Rehearsed:
    verdict: Verdict
    bucket: FaultyBucket
    unheard: int  # claims that were applied and that nobody got: their replies were lost, and not found again

    @property
    def as_it_should(self) -> bool:
        return self.verdict.valid and self.verdict.dead == POISON and self.unheard == 0


def unheard(rehearsal: Rehearsal) -> int:
    claims = gather(rehearsal.events()).claims.values()
    return sum(max(claim.attempt for _, claim in of_one) - len(of_one) for of_one in claims)


async def rehearse(seed: int, bucket: type[FaultyBucket] = FaultyBucket, faults: Faults = FAULTS) -> Rehearsed:
    clock, shared, opened = ManualClock(), bucket(MemoryStore(), faults, seed=seed), []

    def open_store(process: str) -> LogStore:
        opened.append(LogStore(space.CloudSpace(shared, "s3://bucket", timeout=20.0, clock=clock), StoreOptions()))
        return opened[-1]

    rehearsal = Rehearsal(open_store, clock, seed=seed, messages=150, poison=POISON)
    try:
        verdict = await rehearsal.run()
    finally:
        shared.faults = Faults()
        for store in opened:
            await store.close()
    return Rehearsed(verdict, shared, unheard(rehearsal))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_lost_and_nothing_is_done_twice(seed: int) -> None:
    done = await rehearse(seed)
    assert done.as_it_should, (done.unheard, *lines(done.verdict))
    assert done.verdict.acknowledged == 150
    assert all(done.bucket.hits[kind] > 0 for kind in ("unavailable", "dropped", "conflict", "truncated"))


def taken_for_done(error: type[Exception]) -> Callable[[pytest.MonkeyPatch], None]:
    """A create that ends in this error is taken for done."""

    def seed(monkeypatch: pytest.MonkeyPatch) -> None:
        honest = Wire.create

        def create(self: Wire, *args: Any) -> Any:
            try:
                return honest(self, *args)
            except error:
                return None

        monkeypatch.setattr(Wire, "create", create)

    return seed


def lost_replies_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replacement that was applied is applied again when its reply is lost."""
    monkeypatch.setattr(transaction.Attempt, "happened", lambda self, now: False)


def conditions_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the client: the bucket is another."""


SEEDED: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], type[FaultyBucket]]] = {
    "409 taken as taken": (taken_for_done(Refused), FaultyBucket),
    "503 taken as done": (taken_for_done(Doubt), FaultyBucket),
    "lost replies are failures": (lost_replies_are_failures, FaultyBucket),
    "If-Match ignored": (conditions_are_ignored, IgnoresIfMatch),
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("bug", SEEDED)
async def test_a_seeded_bug_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed_bug, bucket = SEEDED[bug]
    seed_bug(monkeypatch)
    try:
        done = await rehearse(1, bucket, MANY)
    except StoreError:
        return  # the engine has found a head or a block that cannot be, and says so
    assert not done.as_it_should, lines(done.verdict)
