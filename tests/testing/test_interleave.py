"""Races in a forced order: late holders, two claimers, flushes cut in three, conflicting producers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast.config import QueueOptions, StoreOptions
from holdfast.stores.base import Store
from holdfast.stores.log import open_folder, open_memory
from holdfast.stores.records import Claimed, Envelope, Settlement
from holdfast.testing.clock import ManualClock
from holdfast.testing.interleave import Stage, interleave

Steps = Callable[[str], Awaitable[None]] | None
FLUSH = ("flush", "flush.frozen", "flush.written", "flush.dropped")


class Bench:
    """Two stores over one space, and a clock that stands still."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.clock = ManualClock()
        self.kind, self.folder, self.name = kind, folder, uuid4().hex
        self.stores: list[Store] = []

    async def open(self, steps: Steps = None) -> Client:
        if self.kind == "memory":
            store = await open_memory(self.name, StoreOptions(), clock=self.clock, steps=steps)
        else:
            store = await open_folder(self.folder, StoreOptions(), clock=self.clock, steps=steps)
        self.stores.append(store)
        return Client(store, self.clock)


class Client:
    """A user of the queue `q` with a memory of what it holds."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.held: list[Claimed] = []

    async def claim(self, limit: int = 1, lease: float = 10) -> list[str]:
        claims = await self.store.claim("q", limit, lease)
        self.held += claims.messages
        return [message.id for message in claims.messages]

    async def complete(self, number: int = 0) -> str:
        message = self.held[number]
        [answer] = await self.store.settle("q", [Settlement(message.id, message.token, "complete")])
        return answer

    async def complete_all(self) -> set[str]:
        settlements = [Settlement(message.id, message.token, "complete") for message in self.held]
        return set(await self.store.settle("q", settlements))

    async def append(self, count: int = 1, **terms: Any) -> list[str]:
        return await self.store.append("q", [Envelope(b"1", **terms) for _ in range(count)])

    async def flush(self) -> object:
        return await self.store.maintain("q")

    async def archived(self) -> list[str]:
        return [stored.id for stored in await self.store.scan("q", "archive", limit=1000)]


@pytest.fixture(params=["memory", "file"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    bench = Bench(request.param, tmp_path / "store")
    yield bench
    for store in bench.stores:
        await store.close()


async def test_order_is_forced() -> None:
    seen: list[str] = []
    a = [(name, lambda name=name: seen.append(f"a.{name}")) for name in ("x", "y", "z")]
    b = [(name, lambda name=name: seen.append(f"b.{name}")) for name in ("x", "y")]
    for order in ("a.x a.y a.z b.x b.y", "b.x b.y a.x a.y a.z", "a.x b.x a.y b.y a.z"):
        seen.clear()
        await interleave(a=a, b=b, order=order)
        assert seen == order.split()


async def test_results_and_errors_are_told() -> None:
    def fail() -> None:
        raise KeyError("b")

    results = await interleave(a=[("x", lambda: 5)], b=[("x", fail)], order="b.x a.x")
    assert results["a.x"] == 5
    assert isinstance(results["b.x"], KeyError)


async def test_points_inside_a_step_wait_for_their_turn() -> None:
    seen: list[str] = []
    stage = Stage("a.work b.look a.inside b.again")
    hook = stage.hook("a")

    async def work() -> None:
        seen.append("begun")
        await hook("not named")
        await hook("inside")
        seen.append("done")

    looks = [("look", lambda: seen.append("look")), ("again", lambda: seen.append("again"))]
    await stage.run(a=[("work", work)], b=looks)
    assert seen == ["begun", "look", "done", "again"]


@pytest.mark.parametrize("order", ["a.x", "a.x b.x c.x"])
async def test_impossible_orders_are_errors(order: str) -> None:
    with pytest.raises((ValueError, AssertionError)):
        await Stage(order, patience=0.05).run(a=[("x", print)], b=[("x", print)])


async def test_late_completion_after_expiry_and_reclaim_is_lost(bench: Bench) -> None:
    a, b = await bench.open(), await bench.open()
    await a.store.create_queue("q", QueueOptions())
    [id] = await a.append()
    results = await interleave(
        a=[("claim", a.claim), ("late", a.complete)],
        b=[("wait", lambda: bench.clock.advance(11)), ("claim", b.claim), ("complete", b.complete)],
        order="a.claim b.wait b.claim a.late b.complete",
    )
    assert (results["a.claim"], results["b.claim"]) == ([id], [id])
    assert (results["a.late"], results["b.complete"]) == ("lost", "ok")
    assert await a.archived() == [id]


async def test_completion_before_the_reclaim_leaves_nothing_to_claim(bench: Bench) -> None:
    a, b = await bench.open(), await bench.open()
    await a.store.create_queue("q", QueueOptions())
    await a.append()
    results = await interleave(
        a=[("claim", a.claim), ("complete", a.complete)],
        b=[("claim", b.claim), ("wait", lambda: bench.clock.advance(11)), ("again", b.claim)],
        order="a.claim b.claim a.complete b.wait b.again",
    )
    assert (results["a.complete"], results["b.claim"], results["b.again"]) == ("ok", [], [])


async def test_two_claimers_with_old_views_never_share_a_message(bench: Bench) -> None:
    a, b = await bench.open(), await bench.open()
    await a.store.create_queue("q", QueueOptions())
    ids = await a.append(4)
    order = "a.one b.one b.two a.two a.three"
    results = await interleave(
        a=[("one", a.claim), ("two", a.claim), ("three", a.claim)],
        b=[("one", b.claim), ("two", b.claim)],
        order=order,
    )
    assert [results[step] for step in order.split()] == [[ids[0]], [ids[1]], [ids[2]], [ids[3]], []]
    assert await a.complete_all() == await b.complete_all() == {"ok"}


@pytest.mark.parametrize("stop", FLUSH[1:])
async def test_another_client_works_between_freeze_write_and_drop(bench: Bench, stop: str) -> None:
    stage = Stage(f"a.flush b.look b.complete b.claim b.append a.{stop} b.again")
    a, b = await bench.open(stage.hook("a")), await bench.open()
    await a.store.create_queue("q", QueueOptions())
    ids = await a.append(6)
    await a.claim(3, lease=1000)
    await b.claim(2, lease=1000)
    await a.complete_all()
    bench.clock.advance(3)  # outcomes are old enough to be written
    looks = [("look", b.archived), ("complete", b.complete_all), ("claim", b.claim), ("append", b.append)]
    results = await stage.run(a=[("flush", a.flush)], b=[*looks, ("again", b.archived)])
    assert results["b.look"] == ids[:3]
    assert results["b.complete"] == {"ok"}
    assert results["b.claim"] == [ids[5]]
    assert results["b.again"] == ids[:5]
    stats = await b.store.stats("q")
    assert (stats.completed, stats.archived, stats.processing, stats.pending) == (5, 5, 1, 1)


@pytest.mark.parametrize("stop", FLUSH[1:3])
async def test_abandoned_flush_is_finished_by_another_and_then_by_its_owner(bench: Bench, stop: str) -> None:
    stage = Stage(f"a.flush b.wait b.flush b.look a.{stop} b.again")
    a, b = await bench.open(stage.hook("a")), await bench.open()
    await a.store.create_queue("q", QueueOptions())
    ids = await a.append(4)
    await a.claim(4, lease=1000)
    await a.complete_all()
    bench.clock.advance(3)
    results = await stage.run(
        a=[("flush", a.flush)],
        b=[
            ("wait", lambda: bench.clock.advance(61)),  # the owner sleeps; both its flush and its round are given up
            ("flush", b.flush),
            ("look", b.archived),
            ("again", b.archived),
        ],
    )
    assert results["b.flush"]["flushed"] == 1
    assert results["b.look"] == results["b.again"] == ids
    assert [await b.complete(n) if b.held else await a.complete(n) for n in range(4)] == ["ok"] * 4
    stats = await a.store.stats("q")
    assert (stats.completed, stats.archived, stats.total) == (4, 4, 4)


@pytest.mark.parametrize("stop", FLUSH[1:3])
async def test_late_settle_during_a_flush_is_lost(bench: Bench, stop: str) -> None:
    stage = Stage(f"a.flush b.late a.{stop} b.later")
    a, b = await bench.open(stage.hook("a")), await bench.open()
    await a.store.create_queue("q", QueueOptions())
    [id] = await a.append()
    await b.claim()
    bench.clock.advance(11)
    await a.claim()
    assert await a.complete() == "ok"
    bench.clock.advance(3)
    results = await stage.run(a=[("flush", a.flush)], b=[("late", b.complete), ("later", b.complete)])
    assert (results["b.late"], results["b.later"]) == ("lost", "lost")
    assert await a.archived() == [id]


@pytest.mark.parametrize("stop", FLUSH[1:3])
async def test_dead_letters_are_seen_once_while_they_move(bench: Bench, stop: str) -> None:
    stage = Stage(f"a.flush b.look a.{stop} b.again")
    a, b = await bench.open(stage.hook("a")), await bench.open()
    await a.store.create_queue("q", QueueOptions())
    ids = await a.append(3)
    await a.claim(3)
    await a.store.settle("q", [Settlement(message.id, message.token, "dead", error="x") for message in a.held])
    bench.clock.advance(3)

    async def look() -> tuple[list[str], int]:
        return [stored.id for stored in await b.store.scan("q", "dead")], (await b.store.stats("q")).dead

    results = await stage.run(a=[("flush", a.flush)], b=[("look", look), ("again", look)])
    assert results["b.look"] == results["b.again"] == (ids, 3)


async def test_conflicting_producers_with_one_dedup_key_agree(bench: Bench) -> None:
    stage = Stage("a.append b.append a.append.committed b.again")
    a, b = await bench.open(stage.hook("a")), await bench.open()
    await b.store.create_queue("q", QueueOptions())

    async def append(client: Client) -> list[str]:
        return await client.append(dedup_key="k")

    results = await stage.run(
        a=[("append", lambda: append(a))], b=[("append", lambda: append(b)), ("again", lambda: append(b))]
    )
    assert results["a.append"] == results["b.append"] == results["b.again"]
    assert (await b.store.stats("q")).total == 1


async def test_producers_keep_their_own_order_whoever_commits_first(bench: Bench) -> None:
    stage = Stage("a.first b.first a.append.committed a.second b.second")
    a, b = await bench.open(stage.hook("a")), await bench.open()
    await b.store.create_queue("q", QueueOptions())
    both = [("first", a.append), ("second", a.append)], [("first", b.append), ("second", b.append)]
    results = await stage.run(a=both[0], b=both[1])
    order = await b.claim(10)
    for client in ("a", "b"):
        sent = [*results[f"{client}.first"], *results[f"{client}.second"]]
        assert [id for id in order if id in sent] == sent
    assert len(order) == 4
