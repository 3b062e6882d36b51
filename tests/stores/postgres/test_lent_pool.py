"""A pool of the caller's own, and the migrations as SQL."""

from __future__ import annotations

import asyncio

import asyncpg
import psycopg
import pytest

import holdfast
from holdfast import ConfigError
from holdfast.stores.postgres.schema import install_sql
from tests.cli_runner import Cli

from .fixtures import Database


async def test_a_pool_of_ones_own_is_used_and_left_as_it_was(postgres: Database) -> None:
    async with asyncpg.create_pool(postgres.url, min_size=1, max_size=2) as pool:
        async with holdfast.connect(postgres.url, pool=pool) as broker:
            queue = await broker.queue("jobs")
            ids = await queue.enqueue_many(range(500))
            assert len(ids) == 500
            taken = await queue.dequeue_many(500)
            assert all(await queue.complete_many(taken))
            assert (await queue.stats()).completed == 500
            assert broker.store._pool.made == 0  # no connection of our own did that
        assert await pool.fetchval("SHOW enable_seqscan") == "on"  # their settings, and their pool is open
        assert pool.get_idle_size() == pool.get_size()


async def test_a_worker_runs_on_it(postgres: Database) -> None:
    pools = asyncpg.create_pool(postgres.url, min_size=1, max_size=2)
    async with pools as pool, holdfast.connect(postgres.url, pool=pool) as broker:
        queue = await broker.queue("jobs")
        ids = await queue.enqueue_many(range(20))
        async with queue.worker(lambda n: n + 1):
            assert [(await queue.wait(id, 20)).result for id in ids] == list(range(1, 21))


async def test_other_pools_and_stores_are_refused(postgres: Database) -> None:
    with pytest.raises(ConfigError, match="asyncpg"):
        await holdfast.connect(postgres.url, pool=object())
    with pytest.raises(ConfigError, match="PostgreSQL"):
        await holdfast.connect("memory://", pool=object())


async def test_a_pool_of_another_event_loop_is_refused(postgres: Database) -> None:
    async with asyncpg.create_pool(postgres.url, min_size=1, max_size=2) as pool:
        with pytest.raises(ConfigError, match="another event loop"):
            await asyncio.to_thread(holdfast.sync.connect, postgres.url, pool=pool)
        assert await pool.fetchval("SELECT 1") == 1


def test_migrations_as_sql_make_the_schema(postgres_server, postgres: Database) -> None:
    shown = Cli.__new__(Cli)
    shown.url = postgres.url
    text = shown("install", "--sql").stdout
    assert text == install_sql()
    with psycopg.connect(postgres.url) as connection:
        connection.execute("DROP SCHEMA holdfast CASCADE")
        connection.execute(text.encode())
    with holdfast.sync.connect(postgres.url) as broker:
        assert broker.install() == []  # nothing is left to do
        broker.queue("jobs").enqueue(1)
        assert broker.queue("jobs").dequeue().value == 1
