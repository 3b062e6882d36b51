"""Waiting for the end of a message: told by this process, told by others, and found by looking."""

from __future__ import annotations

import asyncio
import time

import pytest

import holdfast
from holdfast.stores.postgres import notify
from holdfast.testing.contract.base import eventually

from .fixtures import Database


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks by itself: who returns early was told."""
    monkeypatch.setattr(notify, "_FIRST_LOOK_S", 30.0)


async def listening(broker: holdfast.Broker) -> None:
    broker.store._listener.start()
    await eventually(lambda: broker.store._listener.works, "notifications")


@pytest.mark.usefixtures("no_looks")
async def test_another_process_hears_of_the_end_it_waits_for(postgres: Database) -> None:
    async with (
        holdfast.connect(postgres.url, poll_interval=30) as here,
        holdfast.connect(postgres.url, poll_interval=30) as there,
    ):
        working, asking = await here.queue("jobs"), await there.queue("jobs")
        await listening(here)
        await listening(there)
        for end in ("complete", "cancel"):
            id = await asking.enqueue(1)
            waiting = asyncio.create_task(asking.wait(id, timeout=25))
            await eventually(lambda: there.store._bell.waiting("jobs/done"), "somebody who waits")
            await eventually(lambda: here.store._bell.rang("jobs/wish") > 0, "the wish")
            started = time.monotonic()
            if end == "complete":
                delivery = await working.dequeue()
                assert delivery is not None
                await delivery.complete("done")
            else:
                await working.cancel(id)
            record = await waiting
            assert time.monotonic() - started < 5
            assert record.status == ("completed" if end == "complete" else "failed")


async def test_nobody_is_told_who_did_not_ask(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue_many(range(400))
        sent = broker.store._notifier.sent
        for delivery in await queue.dequeue_many(400):
            await delivery.complete()
        assert broker.store._notifier.sent == sent


@pytest.mark.usefixtures("no_looks")
async def test_an_end_between_look_and_watch_is_not_missed(postgres: Database) -> None:
    async with holdfast.connect(postgres.url, poll_interval=30) as broker:
        queue = await broker.queue("jobs")
        id = await queue.enqueue(1)
        delivery = await queue.dequeue()
        assert delivery is not None
        assert await queue.status(id) == "processing"
        await asyncio.create_task(delivery.complete())
        started = time.monotonic()
        await broker.store.watch("jobs", 20)
        assert time.monotonic() - started < 5


async def test_many_who_wait_all_hear_it(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as here, holdfast.connect(postgres.url) as there:
        working, asking = await here.queue("jobs"), await there.queue("jobs")
        ids = await asking.enqueue_many(range(40))
        waiting = [asyncio.create_task(asking.wait(id, timeout=20)) for id in ids]
        worker = working.worker(lambda value: value * 2, concurrency=4)
        await worker.start()
        records = await asyncio.gather(*waiting)
        await worker.stop()
        assert [record.result for record in records] == [n * 2 for n in range(40)]
