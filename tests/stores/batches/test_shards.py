"""A consumer of several shards is cut off, or taken over, at every single change of a head: each message comes once."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from obstore.store import MemoryStore

from holdfast.config import QueueOptions, StoreOptions
from holdfast.errors import Fenced
from holdfast.stores.batches import Taken
from holdfast.stores.log.bucket.space import CloudSpace
from holdfast.stores.log.bucket.store import LateStore
from holdfast.stores.log.pipeline.consume import Consuming
from holdfast.stores.records import Envelope, Settlement

QUEUE, CONSUMER = "emails", "a-1.b"  # a name that looks like a token of a shard
SHARDS, COUNT, LIMIT = 3, 24, 9


class Cut(Exception):
    """The process is dead."""


class Gate:
    """Counts the changes of heads that a driver makes, and ends it at one of them."""

    def __init__(self, at: int = 0, how: str = "before") -> None:
        self.at, self.how = at, how
        self.steps = 0
        self.late: list[Callable[[], Awaitable[object]]] = []

    async def around(self, change):
        self.steps += 1
        if not self.at or self.steps < self.at:
            return await change()
        if self.steps == self.at and self.how == "after":
            await change()
        elif self.steps == self.at and self.how == "late":
            self.late.append(change)
        raise Cut


class Meanwhile(Gate):
    """Lets somebody else try something before one change of a head."""

    def __init__(self, at: int, other: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self.step, self.other = at, other

    async def around(self, change):
        self.steps += 1
        if self.steps == self.step:
            with contextlib.suppress(Taken):
                await self.other()
        return await change()


class Gated:
    """A log, or its committer, with a gate before its changes."""

    def __init__(self, under, gate: Gate) -> None:
        self._under, self._gate = under, gate

    def __getattr__(self, name):
        return getattr(self._under, name)

    @property
    def committer(self):
        return Gated(self._under.committer, self._gate)

    async def edit(self, change, *, demand=0):
        return await self._gate.around(lambda: self._under.edit(change, demand=demand))


class Query:
    """What Spark keeps of a stream: the batch it has planned, the last one it has committed, and what the sink has."""

    def __init__(self) -> None:
        self.generation, self.planned, self.done = 0, 0, 0
        self.sink: dict[int, list[int]] = {}


class Driver:
    """A process that reads the stream, with a view of the bucket of its own."""

    def __init__(self, bucket, gate: Gate | None = None) -> None:
        space = CloudSpace(bucket, "s3://bucket", timeout=20.0, clock=time.time)
        self.store = LateStore(space, StoreOptions())
        self.gate = gate or Gate()
        log = self.store._log
        self.batches = Consuming(space, lambda queue: Gated(log(queue), self.gate), poll_interval=1.0, timeout=20.0)

    async def own(self, **terms):
        number = next(_HOLDERS)
        terms = {"lease": 60.0} | terms
        self.owner = await self.batches.own(QUEUE, CONSUMER, holder=str(number), instead_of=str(number - 1), **terms)

    async def plan(self, query: Query) -> bool:
        """The next batch, as Spark asks for it; False: there is none."""
        if query.planned == query.done:
            batch = await self.batches.claim_batch(self.owner, after=query.done, limit=LIMIT)
            if batch is None:
                return False
            query.planned = batch.seq
        return True

    async def run(self, query: Query) -> None:
        _, slices = await self.batches.manifest(self.owner, query.done, query.planned)
        found = [part for each in slices async for part in self.store.batches.read_slice(each)]
        rows = sorted(int(row["value"]) for part in found for row in part.to_pylist())
        assert query.sink.setdefault(query.planned, rows) == rows, "a batch is the same for every owner"
        query.done = query.planned

    async def all(self, query: Query) -> None:
        await self.own()
        while await self.plan(query):
            await self.run(query)


_HOLDERS = itertools.count(1)


@pytest.fixture
async def drivers():
    made: list[Driver] = []

    def make(bucket, *gate) -> Driver:
        made.append(Driver(bucket, *gate))
        return made[-1]

    yield make
    for each in made:
        each.gate.at = 0
        await each.store.close()


async def filled(drivers, counts=(12, 8, 4)):
    """A bucket whose shards have so many messages."""
    bucket = MemoryStore()
    driver = drivers(bucket)
    await driver.store.create_queue(QUEUE, QueueOptions(shards=SHARDS))
    numbers = iter(range(sum(counts)))
    for driver.store.home, count in enumerate(counts):
        await driver.store.append(QUEUE, [Envelope(b"%d" % next(numbers)) for _ in range(count)])
    return bucket


async def judge(driver: Driver, sink: list[int], count=COUNT, open=0) -> None:
    assert Counter(sink) == Counter(range(count)), "each message once"
    stats = await driver.store.stats(QUEUE)
    assert (stats.pending, stats.processing, stats.retry) == (0, open, 0)
    assert stats.completed == count - open


def rows(query: Query) -> list[int]:
    return [value for batch in query.sink.values() for value in batch]


async def test_batches_come_from_all_shards(drivers):
    driver, query = drivers(await filled(drivers)), Query()
    await driver.all(query)
    assert [len(batch) for batch in query.sink.values()] == [9, 9, 6]
    assert {value // 12 for value in query.sink[1]} == {0, 1}, "of several shards"
    await judge(driver, rows(query))
    (info,) = await driver.batches.all(QUEUE)
    assert (info.claimed, info.done, info.total) == (0, 3, COUNT)


@pytest.mark.parametrize("counts", [(0, 0, 24), (24, 0, 0), (0, 1, 0)])
async def test_one_shard_that_has_more_gives_more(drivers, counts):
    driver, query = drivers(await filled(drivers, counts)), Query()
    await driver.all(query)
    assert len(query.sink) == -(-sum(counts) // LIMIT)
    await judge(driver, rows(query), sum(counts))


async def test_a_limit_below_the_number_of_shards(drivers):
    driver, query = drivers(await filled(drivers, (0, 0, 2))), Query()
    await driver.own()
    for _ in range(2):
        query.planned = (await driver.batches.claim_batch(driver.owner, after=query.done, limit=1)).seq
        await driver.run(query)
    assert await driver.batches.claim_batch(driver.owner, after=2, limit=1) is None
    await judge(driver, rows(query), 2)


async def steps_of_a_run(drivers) -> int:
    driver = drivers(await filled(drivers))
    await driver.all(Query())
    return driver.gate.steps


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_driver_that_dies_at_any_step(drivers, how):
    steps = await steps_of_a_run(drivers)
    assert steps > 20
    for at in range(1, steps + 1):
        bucket, query = await filled(drivers), Query()
        with contextlib.suppress(Cut):
            await drivers(bucket, Gate(at, how)).all(query)
        driver = drivers(bucket)
        await driver.all(query)
        await judge(driver, rows(query))


@pytest.mark.timeout(120)
async def test_a_change_that_arrives_late_from_any_step(drivers):
    """The change is made when the next owner has planned a batch: it must not become a part of it unseen."""
    for at in range(1, await steps_of_a_run(drivers) + 1):
        bucket, query, first = await filled(drivers), Query(), Gate(at, "late")
        with contextlib.suppress(Cut):
            await drivers(bucket, first).all(query)
        driver = drivers(bucket)
        await driver.own()
        planned = await driver.plan(query)
        for change in first.late:
            with contextlib.suppress(Fenced):
                await change()
        if planned:
            await driver.run(query)
        await driver.all(query)
        await judge(driver, rows(query))


@pytest.mark.timeout(120)
async def test_an_owner_that_sleeps_at_any_step_and_goes_on(drivers):
    """Until another has made a batch: from there on every change of its is refused."""
    for at in range(1, await steps_of_a_run(drivers) + 1):
        bucket, query, gate = await filled(drivers), Query(), Gate(at)
        first, driver = drivers(bucket, gate), drivers(bucket)
        with contextlib.suppress(Cut):
            await first.all(query)
        await driver.own()
        planned = await driver.plan(query)
        gate.at = 0
        other = Query()
        other.planned, other.done = query.planned, query.done
        if hasattr(first, "owner") and planned:
            with pytest.raises(Fenced):
                await first.run(other)
            with pytest.raises(Fenced):
                await first.batches.claim_batch(first.owner, after=query.done, limit=LIMIT)
            with pytest.raises(Fenced):
                await first.batches.settle_batch(first.owner, query.planned)
        if planned:
            await driver.run(query)
        await driver.all(query)
        await judge(driver, rows(query))


async def test_a_claim_that_was_cut_ends_its_owner(drivers):
    """What it asked a shard for may arrive after the batch was counted."""
    bucket, query = await filled(drivers), Query()
    driver = drivers(bucket)
    await driver.own()
    driver.gate.at = driver.gate.steps + 3
    with pytest.raises(Cut):
        await driver.plan(query)
    driver.gate.at = 0
    with pytest.raises(Fenced, match="cut off"):
        await driver.plan(query)
    await driver.all(query)
    await judge(driver, rows(query))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_release_that_is_cut_anywhere_gives_back_what_is_open_and_nothing_else(drivers, how):
    """The batch before was settled in the first head only; the last was never finished."""
    for at in range(1, 50):
        bucket, query = await filled(drivers), Query()
        driver = drivers(bucket)
        await driver.own()
        assert await driver.plan(query)
        await driver.run(query)
        driver.gate.at = driver.gate.steps + 4  # settled in the first head, claimed in some
        with pytest.raises(Cut):
            await driver.plan(query)
        gate = Gate(at, how)
        with contextlib.suppress(Cut):
            await drivers(bucket, gate).batches.release(QUEUE, CONSUMER, force=True)
        again = drivers(bucket)
        await again.batches.release(QUEUE, CONSUMER, force=True)
        driver.gate.at = 0
        with pytest.raises(Fenced):
            await driver.batches.settle_batch(driver.owner, 1)
        fresh = Query()
        await again.own()
        fresh.planned = fresh.done = again.owner.done
        while await again.plan(fresh):
            await again.run(fresh)
        await judge(again, rows(query) + rows(fresh))
        if gate.steps < at:
            assert at >= 7
            return
    pytest.fail("a release has no end")


@pytest.mark.timeout(120)
async def test_a_forced_release_is_done_whoever_wants_the_consumer_meanwhile(drivers):
    """Refused, it would have changed something all the same: the owner before it is not heard any more."""
    for at in range(1, 50):
        bucket, query = await filled(drivers), Query()
        driver = drivers(bucket)
        await driver.own()
        assert await driver.plan(query)
        other = drivers(bucket)
        gate = Meanwhile(at, lambda: other.batches.own(QUEUE, CONSUMER, holder="other", lease=60.0))  # noqa: B023  called at once
        await drivers(bucket, gate).batches.release(QUEUE, CONSUMER, force=True)
        stats = await driver.store.stats(QUEUE)
        assert (stats.pending, stats.processing) == (COUNT, 0)
        if gate.steps < at:
            assert at >= 7
            return
    pytest.fail("a release has no end")


async def test_upkeep_gives_back_what_an_owner_left_for_too_long(drivers):
    bucket, query = await filled(drivers), Query()
    driver = drivers(bucket)
    await driver.own(lease=0.01, release_after=0.01)
    driver.gate.at = driver.gate.steps + 4  # it never became a batch
    with pytest.raises(Cut):
        await driver.plan(query)
    other = drivers(bucket)
    until = time.monotonic() + 20
    while not (released := (await other.store.maintain(QUEUE))["released"]):
        assert time.monotonic() < until
    assert released
    stats = await other.store.stats(QUEUE)
    assert (stats.pending, stats.processing) == (COUNT, 0)


async def test_upkeep_ends_a_release_that_was_cut(drivers):
    bucket, query = await filled(drivers), Query()
    driver = drivers(bucket)
    await driver.own()
    assert await driver.plan(query)
    other = drivers(bucket, Gate(SHARDS + 2, "after"))
    with pytest.raises(Cut):
        await other.batches.release(QUEUE, CONSUMER, force=True)
    assert (await other.store.stats(QUEUE)).processing
    assert await drivers(bucket).store.batches.give_back(QUEUE)
    stats = await other.store.stats(QUEUE)
    assert (stats.pending, stats.processing) == (COUNT, 0)


async def test_messages_of_all_shards_end_one_by_one(drivers):
    driver, query = drivers(await filled(drivers)), Query()
    await driver.own()
    await driver.plan(query)
    _, slices = await driver.batches.manifest(driver.owner, 0, 1)
    found = [part for each in slices async for part in driver.store.batches.read_slice(each)]
    held = [row for part in found for row in part.to_pylist()]
    ends = [Settlement(row["id"], row["token"], "dead", error="bad") for row in held]
    assert await driver.store.settle(QUEUE, ends) == ["ok"] * LIMIT
    assert await driver.batches.settle_batch(driver.owner, 1) == 0
    stats = await driver.store.stats(QUEUE)
    assert (stats.dead, stats.pending, stats.processing) == (LIMIT, COUNT - LIMIT, 0)
