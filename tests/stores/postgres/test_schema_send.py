"""holdfast.send: messages from SQL."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

import holdfast
from holdfast import Enqueued

from .fixtures import Database


async def test_a_message_from_sql_is_like_any_other(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        first = str(postgres.value("""SELECT holdfast.send('jobs', '{"n": [1, null, "ä"]}')"""))
        urgent = str(
            postgres.value(
                """SELECT holdfast.send('jobs', '"now"', priority => 255, headers => '{"k": "v"}', max_attempts => 7)"""
            )
        )
        assert (await queue.stats()).pending == 2
        held = await queue.dequeue_many(2)
        assert [(each.id, each.value, each.priority) for each in held] == [
            (urgent, "now", 255), (first, {"n": [1, None, "ä"]}, 0)
        ]  # fmt: skip
        assert (held[0].headers, held[0].max_attempts, held[1].headers, held[1].max_attempts) == ({"k": "v"}, 7, {}, 3)
        assert abs((held[0].enqueued_at - datetime.now(UTC)).total_seconds()) < 60
        await held[1].fail("again", retry_in=0)
        again = await queue.dequeue(wait=5)
        assert again is not None
        assert (again.id, again.attempt) == (first, 2)
        assert await queue.complete_many([again, held[0]], ["x", "y"]) == [True, True]
        assert [(each.id, each.result) for each in await queue.archive.list()] == [(first, "x"), (urgent, "y")]


async def test_ids_go_up_and_order_is_kept(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        with postgres.connect() as connection:
            ids = [
                str(connection.execute("SELECT holdfast.send('jobs', to_jsonb(%s::int))", (n,)).fetchone()[0])
                for n in range(100)
            ]
        assert all(holdfast.ids.is_id(id) for id in ids)
        assert ids == sorted(set(ids))
        assert [each.value for each in await queue.dequeue_many(100)] == list(range(100))


async def test_delay_and_instant(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        later = str(postgres.value("SELECT holdfast.send('jobs', '1', delay => 3600)"))
        then = datetime.now(UTC) + timedelta(hours=2)
        at = str(postgres.value("SELECT holdfast.send('jobs', '2', at => %s)", then))
        past = str(postgres.value("SELECT holdfast.send('jobs', '3', at => now() - interval '1 day')"))
        assert [await queue.status(id) for id in (later, at, past)] == ["delayed", "delayed", "pending"]
        record = await queue.get(at)
        assert record is not None
        assert record.visible_at is not None
        assert abs((record.visible_at - then).total_seconds()) < 0.01
        stats = await queue.stats()
        assert (stats.delayed, stats.pending) == (2, 1)
        assert await queue.change(later, delay=0)
        assert {each.id for each in await queue.dequeue_many(5)} == {later, past}


async def test_dedup_keys_are_those_of_other_producers(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs", dedup_window=0.5)
        first = str(postgres.value("SELECT holdfast.send('jobs', '1', dedup_key => 'k')"))
        assert str(postgres.value("SELECT holdfast.send('jobs', '2', dedup_key => 'k')")) == first
        assert await queue.enqueue(3, dedup_key="k", report=True) == Enqueued(first, False)
        assert (await queue.stats()).total == 1
        await asyncio.sleep(0.6)
        again = str(postgres.value("SELECT holdfast.send('jobs', '4', dedup_key => 'k')"))
        assert again != first
        assert await queue.enqueue(5, dedup_key="k") == again


async def test_the_commit_wakes_who_waits_and_a_rollback_leaves_nothing(postgres: Database) -> None:
    async with holdfast.connect(postgres.url, poll_interval=60) as broker:
        queue = await broker.queue("jobs")
        waiting = asyncio.create_task(queue.dequeue(wait=30))
        await asyncio.sleep(0.5)  # it listens; nothing else can tell it in time
        connection = await psycopg.AsyncConnection.connect(postgres.url)
        await connection.execute("SELECT holdfast.send('jobs', '1')")
        await connection.rollback()
        await connection.execute("SELECT holdfast.send('jobs', '2')")
        await connection.commit()
        await connection.close()
        held = await asyncio.wait_for(waiting, 20)
        assert held is not None
        assert held.value == 2
        assert (await queue.stats()).total == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("'nobody', '1'", "there is no queue"),
        ("NULL, '1'", "there is no queue"),
        ("'jobs', NULL", "value"),
        ("'jobs', '1', 256", "0 to 255"),
        ("'jobs', '1', -1", "0 to 255"),
        ("'jobs', '1', delay => -1", "delay"),
        ("'jobs', '1', delay => 'NaN'", "delay"),
        ("'jobs', '1', delay => 5, at => now()", "not both"),
        ("'jobs', '1', headers => '[]'", "headers"),
        ("""'jobs', '1', headers => '{"a": 1}'""", "headers"),
        ("'jobs', '1', headers => jsonb_build_object('a', repeat('x', 70000))", "headers"),
        ("'jobs', '1', dedup_key => ''", "dedup_key"),
        ("'jobs', '1', dedup_key => repeat('x', 1025)", "dedup_key"),
        ("'jobs', '1', max_attempts => 0", "max_attempts"),
        ("'jobs', to_jsonb(repeat('x', 2000))", "limit is 1000"),
    ],
)
async def test_bad_input_is_refused_and_adds_nothing(postgres: Database, arguments: str, words: str) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs", max_message_size=1000)
        with pytest.raises(psycopg.Error, match=words):
            postgres.rows(f"SELECT holdfast.send({arguments})")
        assert (await queue.stats()).total == 0


async def test_a_producer_needs_no_other_right(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        role = f"producer_{postgres.name}"
        with postgres.connect() as connection:
            connection.execute(f"CREATE ROLE {role} LOGIN")
            connection.execute(f"GRANT USAGE ON SCHEMA holdfast TO {role}")
        with psycopg.connect(postgres.server.url(postgres.name, user=role), autocommit=True) as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT holdfast.send('jobs', '1')")
            postgres.rows(f"GRANT EXECUTE ON FUNCTION holdfast.send TO {role}")
            connection.execute("SELECT holdfast.send('jobs', '2')")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT * FROM holdfast.queues")
        held = await queue.dequeue(wait=5)
        assert held is not None
        assert held.value == 2
        postgres.rows(f"DROP OWNED BY {role}")
        postgres.rows(f"DROP ROLE {role}")
