"""Dedup keys that hold until their message ends, in the caller's own transaction."""

from __future__ import annotations

import asyncio

import asyncpg

import holdfast
from holdfast import Enqueued

from .fixtures import Database


async def test_who_has_the_key_is_not_claimed_before_the_callers_commit(postgres: Database) -> None:
    """Else a worker could take it, look at what is there, and miss what the transaction is about to show."""
    async with holdfast.connect(postgres.url, poll_interval=0.1) as broker:
        queue = await broker.queue("jobs")
        first = await queue.enqueue("look", dedup_key="k", dedup="waiting")
        connection = await asyncpg.connect(postgres.url)
        transaction = connection.transaction()
        await transaction.start()
        how = {"dedup_key": "k", "dedup": "waiting", "connection": connection, "report": True}
        assert await queue.enqueue("look", **how) == Enqueued(first, False)
        assert await queue.dequeue(wait=0.3) is None
        await transaction.commit()
        held = await queue.dequeue(wait=5)
        assert held is not None
        assert held.id == first
        await connection.close()


async def test_a_rollback_gives_the_key_back(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        connection = await asyncpg.connect(postgres.url)
        transaction = connection.transaction()
        await transaction.start()
        lost = await queue.enqueue(1, dedup_key="k", dedup="alive", connection=connection, report=True)
        assert lost.new
        other = asyncio.create_task(queue.enqueue(2, dedup_key="k", dedup="alive", report=True))
        await asyncio.wait([other], timeout=0.3)
        assert not other.done()
        await transaction.rollback()
        made = await asyncio.wait_for(other, 10)
        assert made.new
        assert made.id != lost.id
        assert (await queue.stats()).total == 1
        await connection.close()


async def test_replacing_and_reports_join_the_transaction(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        first = await queue.enqueue("a", dedup_key="k", dedup="alive")
        connection = await asyncpg.connect(postgres.url)
        async with connection.transaction():
            how = {"connection": connection, "report": True}
            made = await queue.enqueue("b", dedup_key="k", dedup="alive", replace=True, notify=True, **how)
            assert made == Enqueued(first, False, True)
            keyed = [holdfast.Message(1, dedup_key="w"), holdfast.Message(2, dedup_key="w"), 3]
            many = await queue.enqueue_many(keyed, **how)
            assert [each.new for each in many] == [True, False, True]
        assert [each.value for each in await queue.dequeue_many(5)] == ["b", 1, 3]
        await connection.close()
