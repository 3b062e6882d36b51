"""Thousands of queues on one folder: what is done for all of them is done once, and idle ones cost next to nothing."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path
from typing import cast

import pytest

import holdfast
from holdfast.broker import Broker
from holdfast.config import QueueOptions, StoreOptions
from holdfast.stores.log import open_folder
from holdfast.stores.log.folder import FolderSpace
from holdfast.stores.log.store import LogStore
from holdfast.stores.records import Envelope, Settlement

QUEUES = 20
PATIENCE = 10.0
_events: Counter[str] = Counter()
sys.addaudithook(lambda event, _: _events.update((event,)) if event == "os.fwalk" else None)


def message(number: int = 0) -> Envelope:
    return Envelope(b"%d" % number)


class Steps:
    """Counts what a store asks of its space."""

    def __init__(self, store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: Counter[str] = Counter()
        space = cast(FolderSpace, store.space)
        monkeypatch.setattr(space, "read", self._counting("read", space.read))
        monkeypatch.setattr(space.commits, "put", self._counting("put", space.commits.put))

    def _counting(self, name, call):
        def counted(*args, **options):
            self.taken[name] += 1
            return call(*args, **options)

        return counted


@pytest.fixture
async def broker(tmp_path: Path):
    async with holdfast.connect(tmp_path.as_uri(), poll_interval=0.1) as broker:
        yield broker


async def drained(broker: Broker, count: int = QUEUES) -> None:
    """Queues with a file of their own each: one message archived, one waiting."""
    for number in range(count):
        queue = await broker.queue(f"q{number}")
        await queue.enqueue_many([1, 2])
        delivery = await queue.dequeue()
        assert delivery is not None
        await delivery.complete()
    await broker.maintain()


async def test_maintenance_of_all_queues_walks_the_folder_once(tmp_path: Path):
    async with holdfast.connect(tmp_path.as_uri()) as broker:
        await drained(broker)
    _events.clear()
    async with holdfast.connect(tmp_path.as_uri()) as broker:
        await broker.store.space.transact(lambda tx: tx.delete("swept"))
        done = await broker.maintain()
    assert len(done) == QUEUES
    assert 0 < _events["os.fwalk"] <= 3 * QUEUES, "for each queue once to find old files, and once to remove folders"


async def test_one_process_sweeps_and_the_others_leave_it(tmp_path: Path):
    async with holdfast.connect(tmp_path.as_uri()) as broker, holdfast.connect(tmp_path.as_uri()) as other:
        await drained(broker, 3)
        _events.clear()
        await other.maintain()
        assert not _events["os.fwalk"]


async def test_maintenance_of_idle_queues_writes_nothing(broker: Broker, monkeypatch: pytest.MonkeyPatch):
    await drained(broker)
    steps = Steps(broker.store, monkeypatch)
    assert set(map(sum, (each.values() for each in (await broker.maintain()).values()))) == {0}
    assert not steps.taken["put"]


async def test_counts_of_all_queues_are_read_together(broker: Broker, monkeypatch: pytest.MonkeyPatch):
    await drained(broker)
    await (await broker.queue("empty")).pause()
    await (await broker.queue("later")).enqueue(1, delay=60)
    failing = await broker.queue("dead", max_attempts=1)
    await failing.enqueue_many([1, 2])
    held = await failing.dequeue_many(2)
    await held[0].fail(ValueError("no"))
    one_by_one = {info.name: await broker.store.stats(info.name) for info in await broker.queues()}
    steps = Steps(broker.store, monkeypatch)
    together = await broker.stats()
    assert steps.taken["read"] <= 3
    assert list(together) == sorted(one_by_one)

    def without_age(counts):
        return {name: (each.oldest_age is None, holdfast.Stats(*counted(each))) for name, each in counts.items()}

    def counted(each):
        return (each.total, each.pending, each.delayed, each.processing, each.retry, each.dead, each.archived)

    assert without_age(together) == without_age(one_by_one)
    assert (together["dead"].dead, together["dead"].processing, together["later"].delayed) == (1, 1, 1)


async def test_counts_tell_of_messages_that_have_no_attempt_left(broker: Broker):
    queue = await broker.queue("q", max_attempts=1, lease=0.05)
    await queue.enqueue(1)
    assert await queue.dequeue() is not None
    await asyncio.sleep(0.06)  # the lease ends
    assert (await broker.stats())["q"].dead == 1


async def test_who_waits_on_many_idle_queues_does_not_look_at_each(broker: Broker, monkeypatch: pytest.MonkeyPatch):
    for number in range(QUEUES):
        await broker.store.create_queue(f"q{number}", QueueOptions())
    waiting = [asyncio.create_task(broker.store.claim(f"q{number}", 1, 30.0, wait=2.0)) for number in range(QUEUES)]
    await asyncio.sleep(0.5)  # each has looked, and the first beat has woken each once
    steps = Steps(broker.store, monkeypatch)
    await asyncio.gather(*waiting)
    assert steps.taken["put"] < QUEUES


async def test_a_message_that_nobody_was_told_of_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with (
        holdfast.connect(tmp_path.as_uri(), poll_interval=0.1) as broker,
        holdfast.connect(tmp_path.as_uri()) as other,
    ):
        for name in ("q", "r"):
            await broker.queue(name)
        # as if killed after its commit
        monkeypatch.setattr(other.store.space._committer, "_announce", lambda topics: None)
        for name in ("q", "r", "q"):
            waiting = asyncio.create_task(broker.store.claim(name, 1, 30.0, wait=PATIENCE))
            await asyncio.sleep(0.3)
            begun = time.monotonic()
            await other.store.append(name, [message()])
            claims = await waiting
            assert len(claims.messages) == 1
            assert time.monotonic() - begun < PATIENCE / 2
            one = claims.messages[0]
            await broker.store.settle(name, [Settlement(one.id, one.token, "complete")])


async def test_a_lease_that_another_process_leaves_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with (
        holdfast.connect(tmp_path.as_uri(), poll_interval=0.1) as broker,
        holdfast.connect(tmp_path.as_uri()) as other,
    ):
        queue = await broker.queue("q")
        monkeypatch.setattr(other.store.space._committer, "_announce", lambda topics: None)
        await queue.pause()
        waiting = asyncio.create_task(broker.store.claim("q", 1, 30.0, wait=PATIENCE))
        await asyncio.sleep(0.3)
        begun = time.monotonic()
        await other.store.append("q", [message()])
        await other.store.pause("q", False)
        assert len((await waiting).messages) == 1
        assert time.monotonic() - begun < PATIENCE / 2


async def test_idle_workers_rest(tmp_path: Path):
    """A worker's upkeep of a queue in which nothing happens."""
    store = await open_folder(tmp_path, StoreOptions(poll_interval=0.05))
    try:
        await store.create_queue("q", QueueOptions())
        waiting = asyncio.create_task(store.claim("q", 1, 30.0, wait=PATIENCE))
        await asyncio.sleep(0.3)
        assert not store.is_resting("q"), "nobody has looked yet"
        await store.maintain("q")
        assert store.is_resting("q")
        other = await open_folder(tmp_path, StoreOptions())
        await other.append("q", [message()])
        await other.close()
        assert len((await waiting).messages) == 1
        assert not store.is_resting("q"), "nobody watches it now"
    finally:
        await store.close()
