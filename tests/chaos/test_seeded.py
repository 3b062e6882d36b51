"""A checker that never fails proves nothing: stores with one known bug each, and the count that must betray them."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from chaos.rehearsal import Rehearsal
from chaos.verdict import DECIDING, Verdict, lines
from holdfast.config import StoreOptions
from holdfast.stores.base import Store
from holdfast.stores.log import open_memory
from holdfast.stores.records import Answer, Claimed, Claims, Envelope, Settlement, Status
from holdfast.testing.clock import ManualClock
from tests.toy_store import Room, Row, ToyStore

Opener = Callable[[str], ToyStore]


class AcknowledgesBeforeDurable(ToyStore):
    """Keeps the last few messages in memory only; a crash of a producer takes them along."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.owed: list[str] = []

    async def append(self, queue: str, messages: Sequence[Envelope]) -> list[str]:
        ids = await super().append(queue, messages)
        self.owed = [*self.owed, *ids][-10:]
        return ids

    def crash(self) -> None:
        for room in self.rooms.values():
            for id in self.owed:
                if id in room.rows and room.rows[id].attempts == 0:
                    del room.rows[id]


class NoTokenCheck(ToyStore):
    """Whoever settles a held message settles it."""

    def settle_one(self, room: Room, s: Settlement) -> Answer:
        row = room.rows.get(s.id)
        held = row is not None and row.token is not None
        return super().settle_one(room, msgspec.structs.replace(s, token=row.token) if held else s)


class AcceptsSecondCompletion(ToyStore):
    """Completing what another has completed is called a success."""

    def settle_one(self, room: Room, s: Settlement) -> Answer:
        row = room.rows.get(s.id)
        over = row is not None and row.place == "archive"
        return "ok" if over and s.action == "complete" else super().settle_one(room, s)


class CountsAttemptAtFailure(ToyStore):
    """A message that kills its worker never gets to the line that counts."""

    def take(self, room: Room, row: Row, lease: float) -> Claimed:
        claimed = super().take(room, row, lease)
        row.attempts -= 1
        return claimed

    def settle_one(self, room: Room, s: Settlement) -> Answer:
        row = room.rows.get(s.id)
        if row is not None and row.token == s.token:
            row.attempts += 1
        return super().settle_one(room, s)


class NoPollFallback(ToyStore):
    """A waiting claim wakes for a new message and for nothing else."""

    async def claim(
        self, queue: str, limit: int, lease: float, *, wait: float = 0.0, worker: str | None = None
    ) -> Claims:
        claims = self.claim_now(queue, limit, lease)
        while wait and not claims.messages:
            await self.appended.wait()
        return claims

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.appended = asyncio.Event()


class LosesEveryNth(ToyStore):
    """One of fifty messages is acknowledged and forgotten."""

    seen = 0

    def append_one(self, room: Room, envelope: Envelope) -> str:
        id = super().append_one(room, envelope)
        self.seen += 1
        if self.seen % 50 == 0:
            del room.rows[id]
        return id


class AppendsTwice(ToyStore):
    """A repeat after a lost reply is not recognised."""

    seen = 0

    def append_one(self, room: Room, envelope: Envelope) -> str:
        self.seen += 1
        if self.seen % 50 == 0:
            super().append_one(room, envelope)
        return super().append_one(room, envelope)


class ReleasesTooEarly(ToyStore):
    """The lease is half of what was asked for."""

    def take(self, room: Room, row: Row, lease: float) -> Claimed:
        return super().take(room, row, lease / 2)


class CorruptsPayload(ToyStore):
    """One of fifty payloads comes back with other bytes."""

    seen = 0

    def append_one(self, room: Room, envelope: Envelope) -> str:
        self.seen += 1
        spoiled = msgspec.structs.replace(envelope, payload=envelope.payload[:-1])
        return super().append_one(room, spoiled if self.seen % 50 == 0 else envelope)


class ArchiveMissesOne(ToyStore):
    """A flush drops one of fifty records."""

    seen = 0

    def archive(self, room: Room, row: Row, status: Status, *, keep: bool | None = None) -> None:
        super().archive(room, row, status, keep=keep)
        self.seen += 1
        if self.seen % 50 == 0:
            del room.rows[row.id]


class SettlesBeforeDurable(ToyStore):
    """One of twenty completions is answered and not done: the message comes back."""

    seen = 0

    def settle_one(self, room: Room, s: Settlement) -> Answer:
        self.seen += 1
        return "ok" if self.seen % 20 == 0 and s.action == "complete" else super().settle_one(room, s)


class DeadWithoutTrace(ToyStore):
    """Out of attempts means gone."""

    def bury(self, room: Room, row: Row, reason: str) -> None:
        del room.rows[row.id]


class NewestFirst(ToyStore):
    """A stack instead of a queue."""

    def ready(self, room: Room, place: str) -> Iterator[Row]:
        return iter(reversed(list(super().ready(room, place))))


def shared(kind: type[ToyStore]) -> Callable[[ManualClock], Opener]:
    """Every process of the rehearsal uses the same store."""

    def opener(clock: ManualClock) -> Opener:
        store = kind(clock)
        return lambda process: store

    return opener


def client_clocks(clock: ManualClock) -> Opener:
    """Every process judges leases by its own clock, and that of every second worker is five minutes ahead."""
    first = ToyStore(clock)

    def open_store(process: str) -> ToyStore:
        fast = process.startswith("w") and int(process[1:]) % 2 == 0
        view = ToyStore(lambda: clock() + (300.0 if fast else 0.0))
        view.rooms, view._ids, view._tokens = first.rooms, first._ids, sum(map(ord, process)) * 1_000_000
        return view

    return open_store


SEEDED: dict[str, tuple[Callable[[ManualClock], Opener], str]] = {
    "acknowledge before durable": (shared(AcknowledgesBeforeDurable), "lost"),
    "enqueue loses every nth": (shared(LosesEveryNth), "lost"),
    "archive misses one": (shared(ArchiveMissesOne), "lost"),
    "dead without trace": (shared(DeadWithoutTrace), "lost"),
    "repeat not recognised": (shared(AppendsTwice), "unexpected"),
    "payload spoiled": (shared(CorruptsPayload), "unexpected"),
    "no poll fallback": (shared(NoPollFallback), "unfinished"),
    "second completion accepted": (shared(AcceptsSecondCompletion), "duplicate_completions"),
    "no token check": (shared(NoTokenCheck), "zombie_completions"),
    "settle before durable": (shared(SettlesBeforeDurable), "zombie_completions"),
    "client clock in leases": (client_clocks, "early_steals"),
    "released too early": (shared(ReleasesTooEarly), "early_steals"),
    "attempt counted at failure": (shared(CountsAttemptAtFailure), "miscounted_attempts"),
}


# ---------------------------------------------------------------------- the real engine, broken from outside


class Broken:
    """A real store with something wrong in front of it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.newest: dict[str, str] = {}  # the last token given out, by id
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class HalfTheLease(Broken):
    async def claim(
        self, queue: str, limit: int, lease: float, *, wait: float = 0.0, worker: str | None = None
    ) -> Claims:
        return await self.store.claim(queue, limit, lease / 2, wait=wait, worker=worker)


class AnyToken(Broken):
    async def claim(
        self, queue: str, limit: int, lease: float, *, wait: float = 0.0, worker: str | None = None
    ) -> Claims:
        claims = await self.store.claim(queue, limit, lease, wait=wait, worker=worker)
        self.newest |= {message.id: message.token for message in claims.messages}
        return claims

    async def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Answer]:
        return await self.store.settle(
            queue, [msgspec.structs.replace(each, token=self.newest[each.id]) for each in settlements]
        )


class SaysDone(Broken):
    async def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Answer]:
        self.calls += 1
        return ["ok"] * len(settlements) if self.calls % 20 == 0 else await self.store.settle(queue, settlements)


class RepeatsAppend(Broken):
    async def append(self, queue: str, messages: Sequence[Envelope]) -> list[str]:
        self.calls += 1
        if self.calls % 20 == 0:
            await self.store.append(queue, messages)
        return await self.store.append(queue, messages)


ENGINE = {
    HalfTheLease: "early_steals",
    AnyToken: "zombie_completions",
    SaysDone: "zombie_completions",
    RepeatsAppend: "unexpected",
}


async def rehearse_engine(kind: type[Broken], seed: int) -> Verdict:
    clock = ManualClock()
    store = kind(await open_memory("", StoreOptions(), clock=clock))
    try:
        return await Rehearsal(lambda process: store, clock, seed=seed).run()
    finally:
        await store.close()


@pytest.mark.parametrize("kind", ENGINE, ids=lambda kind: kind.__name__)
async def test_a_seeded_bug_around_the_real_engine_is_caught(kind: type[Broken]) -> None:
    verdict = await rehearse_engine(kind, seed=1)
    assert getattr(verdict, ENGINE[kind]) > 0, verdict
    assert not verdict.valid


@pytest.mark.parametrize("seed", range(4))
async def test_the_real_engine_is_valid(seed: int) -> None:
    verdict = await rehearse_engine(Broken, seed)
    assert verdict.valid, "\n".join(lines(verdict))
    assert verdict.order_inversions == 0
    assert (verdict.acknowledged, verdict.refused > 0, verdict.effective_kills > 0) == (400, True, True)


# ---------------------------------------------------------------------- the toy, broken from inside


async def rehearse(opener: Callable[[ManualClock], Opener], seed: int) -> Verdict:
    clock = ManualClock()
    return await Rehearsal(opener(clock), clock, seed=seed).run()


@pytest.mark.parametrize("name", SEEDED)
async def test_a_seeded_bug_is_caught(name: str) -> None:
    opener, count = SEEDED[name]
    verdict = await rehearse(opener, seed=1)
    assert getattr(verdict, count) > 0, verdict
    assert verdict.examples[count]
    assert not verdict.valid


async def test_a_wrong_order_is_counted() -> None:
    assert (await rehearse(shared(NewestFirst), seed=1)).order_inversions > 0


@pytest.mark.parametrize("seed", range(8))
async def test_a_right_store_is_valid(seed: int) -> None:
    verdict = await rehearse(shared(ToyStore), seed)
    assert verdict.valid, verdict
    assert all(getattr(verdict, name) == 0 for name in DECIDING)
    assert verdict.order_inversions == 0
    assert verdict.acknowledged == 400
    assert verdict.effective_kills > 0, "the schedule must hurt somebody"
    assert verdict.refused > 0, "a sleeper must have come too late"
    assert verdict.dead >= 3, "every poison message ends as a dead letter"
    assert verdict.recovery.count > 0
