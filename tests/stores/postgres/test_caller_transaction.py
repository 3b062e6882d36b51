"""Messages in the caller's own transaction: there if and only if it commits."""

from __future__ import annotations

import asyncio

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import holdfast
from holdfast import ConfigError
from holdfast.stores.records import Envelope
from holdfast.testing.contract.base import eventually

from .fixtures import Database

STYLES = ["psycopg", "psycopg async", "asyncpg", "sqlalchemy", "sqlalchemy async", "session", "async session"]


class Caller:
    """A user's own transaction, in each way one can be held."""

    def __init__(self, style: str, url: str) -> None:
        self.style = style
        self.url = url
        self.alchemy = url.replace("postgresql://", "postgresql+psycopg://")

    async def run(self, work, *, commit: bool) -> None:
        await getattr(self, self.style.replace(" ", "_"))(work, commit)

    async def psycopg(self, work, commit: bool) -> None:
        connection = psycopg.connect(self.url)
        connection.execute("INSERT INTO orders VALUES (1)")
        await work(connection)
        connection.commit() if commit else connection.rollback()
        connection.close()

    async def psycopg_async(self, work, commit: bool) -> None:
        connection = await psycopg.AsyncConnection.connect(self.url)
        await connection.execute("INSERT INTO orders VALUES (1)")
        await work(connection)
        await (connection.commit() if commit else connection.rollback())
        await connection.close()

    async def asyncpg(self, work, commit: bool) -> None:
        connection = await asyncpg.connect(self.url)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("INSERT INTO orders VALUES (1)")
        await work(connection)
        await (transaction.commit() if commit else transaction.rollback())
        await connection.close()

    async def sqlalchemy(self, work, commit: bool) -> None:
        engine = create_engine(self.alchemy)
        with engine.connect() as connection:
            await work(connection)  # before any statement of the caller's: the transaction begins here
            connection.execute(text("INSERT INTO orders VALUES (1)"))
            connection.commit() if commit else connection.rollback()
        engine.dispose()

    async def sqlalchemy_async(self, work, commit: bool) -> None:
        engine = create_async_engine(self.alchemy)
        async with engine.connect() as connection:
            await connection.execute(text("INSERT INTO orders VALUES (1)"))
            await work(connection)
            await (connection.commit() if commit else connection.rollback())
        await engine.dispose()

    async def session(self, work, commit: bool) -> None:
        engine = create_engine(self.alchemy)
        with Session(engine) as session:
            session.execute(text("INSERT INTO orders VALUES (1)"))
            await work(session)
            session.commit() if commit else session.rollback()
        engine.dispose()

    async def async_session(self, work, commit: bool) -> None:
        engine = create_async_engine(self.alchemy)
        async with AsyncSession(engine) as session:
            await session.execute(text("INSERT INTO orders VALUES (1)"))
            await work(session)
            await (session.commit() if commit else session.rollback())
        await engine.dispose()


@pytest.fixture
async def queue(postgres: Database):
    postgres.rows("CREATE TABLE orders (n int)")
    async with holdfast.connect(postgres.url) as broker:
        yield await broker.queue("jobs")


@pytest.mark.parametrize("style", STYLES)
async def test_committed_once_rolled_back_never(postgres: Database, queue: holdfast.Queue, style: str) -> None:
    async def work(connection) -> None:
        await queue.enqueue("one", connection=connection, priority=3, headers={"k": "v"})
        assert (await queue.stats()).total == 0  # nobody sees it before the commit

    caller = Caller(style, postgres.url)
    await caller.run(work, commit=False)
    assert (await queue.stats()).total == 0
    assert postgres.value("SELECT count(*) FROM orders") == 0
    await caller.run(work, commit=True)
    assert postgres.value("SELECT count(*) FROM orders") == 1
    [delivery] = await queue.dequeue_many(5)
    assert (delivery.value, delivery.priority, delivery.headers) == ("one", 3, {"k": "v"})
    assert (await queue.stats()).total == 1


@pytest.mark.parametrize("style", STYLES)
async def test_batches_with_every_kind_of_message_join_too(postgres: Database, queue, style: str) -> None:
    batch = [
        *(holdfast.Message(n) for n in range(1200)),
        holdfast.Message("later", delay=60),
        holdfast.Message("twin", dedup_key="d"),
        holdfast.Message("twin again", dedup_key="d"),
    ]

    async def work(connection) -> None:
        ids = await queue.enqueue_many(batch, connection=connection)
        assert len(ids) == 1203
        assert ids[-1] == ids[-2]

    caller = Caller(style, postgres.url)
    await caller.run(work, commit=False)
    assert (await queue.stats()).total == 0
    await caller.run(work, commit=True)
    stats = await queue.stats()
    assert (stats.pending, stats.delayed) == (1201, 1)
    taken = await queue.dequeue_many(2000)
    assert [delivery.value for delivery in taken] == [*range(1200), "twin"]


async def test_worker_finds_what_a_transaction_left(postgres: Database, queue: holdfast.Queue) -> None:
    """No notification is sent in the caller's transaction; the poll finds it."""
    seen: list[str] = []
    worker = queue.worker(seen.append)
    await worker.start()
    async with await psycopg.AsyncConnection.connect(postgres.url) as connection:
        await queue.enqueue("from a transaction", connection=connection)
    await eventually(lambda: seen == ["from a transaction"], "the message")
    await worker.stop()


def test_blocking_face_joins_a_blocking_connection(postgres: Database) -> None:
    with holdfast.sync.connect(postgres.url) as broker:
        queue = broker.queue("jobs")
        with psycopg.connect(postgres.url) as connection:
            queue.enqueue("one", connection=connection)
            connection.rollback()
            queue.enqueue("two", connection=connection)
        assert [delivery.value for delivery in queue.dequeue_many(5)] == ["two"]


async def test_queue_with_a_limit_counts_what_joins(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("small", max_messages=1)
        async with await psycopg.AsyncConnection.connect(postgres.url) as connection:
            await queue.enqueue(1, connection=connection)
            with pytest.raises(holdfast.QueueFull):
                await queue.enqueue_many([2, 3], connection=connection)


async def test_error_in_the_callers_transaction_is_ours(postgres: Database, queue: holdfast.Queue) -> None:
    for connect in (psycopg.AsyncConnection.connect, asyncpg.connect):
        connection = await connect(postgres.url)
        with pytest.raises(holdfast.QueueNotFound):
            await queue.store.append("absent", [Envelope(b"1")], connection=connection)
        await connection.close()


async def test_something_else_is_refused(queue: holdfast.Queue) -> None:
    with pytest.raises(ConfigError, match="psycopg"):
        await queue.enqueue(1, connection=object())


async def test_stores_without_transactions_say_so() -> None:
    async with holdfast.connect("memory://") as broker:
        queue = await broker.queue("jobs")
        with pytest.raises(ConfigError, match="PostgreSQL"):
            await queue.enqueue(1, connection=object())


@pytest.mark.parametrize("style", STYLES)
async def test_notify_wakes_at_the_commit(postgres: Database, queue: holdfast.Queue, style: str) -> None:
    async def work(connection) -> None:
        await queue.enqueue("told", connection=connection, notify=True)

    async with holdfast.connect(postgres.url, poll_interval=60) as other:  # it would not look by itself
        waiting = asyncio.ensure_future((await other.queue("jobs")).dequeue(wait=30))
        assert await other.store._listener.tried()
        await Caller(style, postgres.url).run(work, commit=False)
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await Caller(style, postgres.url).run(work, commit=True)
        delivery = await asyncio.wait_for(waiting, 10)
        assert delivery is not None
        assert delivery.value == "told"


async def test_notify_needs_a_connection(queue: holdfast.Queue) -> None:
    with pytest.raises(ConfigError, match="connection="):
        await queue.enqueue(1, notify=True)
    assert (await queue.stats()).total == 0
