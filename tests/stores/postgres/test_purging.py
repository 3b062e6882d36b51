"""A purge beside claims: what becomes ready while it is at work goes, too."""

from __future__ import annotations

import asyncio

import asyncpg

import holdfast


async def test_a_message_that_becomes_due_during_a_purge_goes_with_it(postgres) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue("due", delay=0.05)
        await queue.enqueue("waits", delay=60)
        await queue.enqueue("ready")
        await asyncio.sleep(0.2)
        sql = broker.store._topic("jobs").sql
        other = await asyncpg.connect(postgres.url.partition("?")[0])
        try:
            moving = other.transaction()
            await moving.start()
            await other.execute(sql["bring_due"].replace("$1", "'jobs'").replace("$2", "100"))
            purging = asyncio.create_task(queue.purge())
            async with asyncio.timeout(20):
                while not await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                    await asyncio.sleep(0.01)
            await moving.commit()
            assert await purging == 3
        finally:
            await other.close()
        stats = await queue.stats()
        assert (stats.pending, stats.delayed, stats.total) == (0, 0, 0)
        assert await queue.dequeue() is None
