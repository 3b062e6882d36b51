"""Days of the archive, counts that are folded, what is forgotten; and what doctor sees."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import holdfast
from holdfast.stores.records import Settlement

from .fixtures import Database

_PARTITIONS = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'holdfast.a_jobs'::regclass ORDER BY 1
"""


def day(offset: int) -> str:
    return (datetime.now(UTC) + timedelta(days=offset)).strftime("p_jobs_%Y%m%d")


async def finish(queue: holdfast.Queue, count: int) -> None:
    await queue.enqueue_many(range(count))
    assert all(await queue.complete_many(await queue.dequeue_many(count)))


async def test_days_are_made_ahead_and_old_ones_dropped_whole(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        assert [row[0] for row in postgres.rows(_PARTITIONS)] == [day(0), day(1), day(2), "p_jobs_default"]
        await finish(queue, 5)
        # Ten days go by, for the archive: the rows of today's partition become those of an old day.
        old = datetime.now(UTC).date() - timedelta(days=10)
        postgres.rows(
            f"CREATE TABLE holdfast.p_jobs_{old:%Y%m%d} PARTITION OF holdfast.a_jobs"
            f" FOR VALUES FROM ('{old} 00:00+00') TO ('{old + timedelta(days=1)} 00:00+00')"
        )
        postgres.rows("UPDATE holdfast.a_jobs SET finished_at = finished_at - interval '10 days'")
        postgres.rows("UPDATE holdfast.deltas SET day = day - 10 WHERE day IS NOT NULL")
        await finish(queue, 3)
        assert (await queue.stats()).archived == 8
        done = (await broker.maintain())["jobs"]
        assert done["days dropped"] == 1
        assert [row[0] for row in postgres.rows(_PARTITIONS)] == [day(0), day(1), day(2), "p_jobs_default"]
        stats = await queue.stats()
        assert (stats.archived, stats.completed, len(await queue.archive.list())) == (3, 8, 3)


async def test_default_partition_catches_a_missed_day(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        postgres.rows(f"DROP TABLE holdfast.{day(0)}")
        await finish(queue, 4)
        assert postgres.value("SELECT count(*) FROM holdfast.p_jobs_default") == 4
        await broker.maintain()  # the day cannot be made now: its rows lie in the default
        await finish(queue, 2)
        stats = await queue.stats()
        assert (stats.archived, len(await queue.archive.list())) == (6, 6)
        await broker.configure_queue("jobs", archive_days=1e-9)
        await broker.maintain()
        assert (await queue.stats()).archived == 0


async def test_counts_are_folded_and_stay_the_same(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        for n in range(20):
            await queue.enqueue(n, delay=60 if n % 4 == 0 else 0)
        for delivery in await queue.dequeue_many(8):
            await delivery.complete()
        before = await queue.stats()
        rows = postgres.value("SELECT count(*) FROM holdfast.deltas")
        await broker.maintain()
        assert postgres.value("SELECT count(*) FROM holdfast.deltas") <= 2 < rows
        after = await queue.stats()
        assert (after.pending, after.delayed, after.completed, after.total) == (7, 5, 8, 20)
        assert (before.pending, before.total) == (after.pending, after.total)


async def test_memory_of_calls_keys_and_settlements_is_bounded(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs", archive=False, dedup_window=0.01)
        await queue.enqueue(1, dedup_key="k")
        await queue.enqueue_many(range(3))
        store = broker.store
        messages = (await store.claim("jobs", 10, 60)).messages
        await store.settle("jobs", [Settlement(m.id, m.token, "complete") for m in messages])
        postgres.rows("UPDATE holdfast.settled SET at = at - interval '2 hours'")
        postgres.rows("INSERT INTO holdfast.calls VALUES ('01890a5d-ac96-7000-8000-000000000000')")
        await broker.maintain()
        counts = "SELECT (SELECT count(*) FROM holdfast.{0}) FROM (SELECT 1) one"
        assert [postgres.value(counts.format(name)) for name in ("keys", "settled", "calls")] == [0, 0, 2]


async def test_one_process_at_a_time(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        await broker.queue("jobs")
        with postgres.connect() as other, other.transaction():
            other.execute("SELECT pg_advisory_xact_lock(hashtextextended('holdfast.maintain.holdfast.jobs', 0))")
            assert await broker.maintain() == {"jobs": {}}
        assert (await broker.maintain())["jobs"] != {}


async def test_doctor_tells_of_the_server(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        checks = {check.name: check for check in await broker.check()}
        assert set(checks) == {
            *(
                "version",
                "durability",
                "checksums",
                "encoding",
                "schema",
                "notify",
                "autovacuum",
                "oldest xmin",
                "bloat",
                "connections",
            )
        }
        assert checks["version"].detail.startswith("PostgreSQL 18")
        assert checks["durability"].state == "fail"  # the server of the tests runs without fsync
        assert checks["notify"].state == "ok"
        assert checks["bloat"].state == "ok"


async def test_doctor_while_a_queue_is_deleted(postgres: Database) -> None:
    """Its tables are listed and are gone when their size is asked for."""
    async with holdfast.connect(postgres.url) as broker:
        await broker.queue("jobs")
        with postgres.connect() as other:
            with other.transaction():
                other.execute("DROP TABLE holdfast.a_jobs")
                checking = asyncio.create_task(broker.check())
                async with asyncio.timeout(10):
                    while not postgres.value("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                        await asyncio.sleep(0.02)
            checks = {check.name: check for check in await checking}
        assert checks["bloat"].state == "ok"
