"""Migrations, roles and names: what is made in the database, by whom, and under which names."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

import holdfast
from holdfast import admin
from holdfast.config import QueueOptions
from holdfast.errors import StoreError
from holdfast.retry import Fixed
from holdfast.stores.postgres import names, schema, statements
from holdfast.stores.postgres.schema import grants
from holdfast.stores.postgres.statements import Statements
from holdfast.stores.records import Envelope, Settlement
from holdfast.testing.contract.base import LONG_S

from .fixtures import Database, install

_COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
    pg_get_expr(d.adbin, d.adrelid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE n.nspname = 'holdfast' AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY c.relname, a.attnum
"""
_FUNCTIONS = """
SELECT p.proname, pg_get_function_identity_arguments(p.oid), p.prosecdef
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'holdfast' ORDER BY p.proname
"""
TABLES = {*schema.TABLES, schema.MARK}
FUNCTIONS = {
    ("checked_slug", False),
    ("create_queue", True),
    ("drop_days", True),
    ("drop_queue", True),
    ("make_day", True),
    ("make_tables", True),
    ("new_id", False),
    ("now", False),
    ("remembered", False),
    ("send", True),
    ("with_attempt", False),
}
EVIL = ["Robert.DROP-TABLE", "select", "x" * 128, "a..b", "A.b-c_9", "0", "pg_catalog", "jobs_default", "jobs_20261115"]

WORSE = ['"; DROP SCHEMA holdfast CASCADE; --', "'; SELECT 1; --", "{q}", "%s%I%1$s", "ü\u2028🙂", "a" * 500]


def picture(database: Database) -> tuple[list, list]:
    return database.rows(_COLUMNS), database.rows(_FUNCTIONS)


async def test_migrations_give_exactly_the_schema(postgres: Database, postgres_server) -> None:
    """By `install` from nothing, and one by one by hand: the same tables, columns and functions, and no others."""
    by_hand = picture(postgres)
    assert {row[0] for row in by_hand[0]} == TABLES
    assert {(row[0], row[2]) for row in by_hand[1]} == FUNCTIONS
    postgres.rows("DROP SCHEMA holdfast CASCADE")
    async with holdfast.connect(postgres.url) as broker:
        steps = await broker.install()
        assert steps == ["create schema holdfast", *(f"apply migration {name}" for name in statements.migrations())]
        assert picture(postgres) == by_hand
        assert await broker.install() == []
    assert [row[0] for row in postgres.rows("SELECT name FROM holdfast.migrations ORDER BY name")] == (
        statements.migrations()
    )


async def test_many_at_once_create_a_queue_and_one_has_made_it(postgres: Database) -> None:
    """They meet at either of two unique keys, the name or the name of the tables."""
    call = "SELECT holdfast.create_queue(%s, %s, '{}', 3, false, true, NULL)"
    connections = [await psycopg.AsyncConnection.connect(postgres.url, autocommit=True) for _ in range(8)]
    try:
        for number in range(20):
            name = f"jobs{number}"
            cursors = await asyncio.gather(*(each.execute(call, (name, name)) for each in connections))
            made = [(await cursor.fetchone())[0] for cursor in cursors]
            assert len([id for id in made if id is not None]) == 1
        with pytest.raises(psycopg.errors.UniqueViolation, match="has the tables of other"):
            await connections[0].execute(call, ("other", "jobs0"))
    finally:
        for each in connections:
            await each.close()


async def test_queues_of_an_older_schema_get_what_new_ones_have(postgres: Database) -> None:
    postgres.rows("DROP SCHEMA holdfast CASCADE")
    older = [name for name in statements.migrations() if name < "004"]
    install(postgres.url, migrations=older)
    postgres.rows("SELECT holdfast.create_queue('old', 'old', '{}', 3, false, true, NULL)")
    async with holdfast.connect(postgres.url) as broker:
        between = [name for name in statements.migrations() if name >= "004"][:-1]
        with pytest.raises(StoreError, match="holdfast install"):
            await broker.queue("old")
        assert await broker.install() == [f"apply migration {name}" for name in between]
        newest = len(statements.migrations())
        assert await broker.install(raise_format=True) == [f"raise the format from {newest - 1} to {newest}"]
        queue = await broker.queue("old")
        kept, died = await queue.enqueue_many([1, 2])
        await (await queue.dequeue()).complete()
        await (await queue.dequeue()).kill("enough")
        assert None not in [(await queue.get(id)).claimed_at for id in (kept, died)]
        await broker.queue("new")
    made: dict[str, dict[str, set]] = {"old": {}, "new": {}}
    for table, *column in postgres.rows(_COLUMNS):
        kind, _, name = table.partition("_")
        if name in made:
            made[name].setdefault(kind, set()).add(tuple(column))
    assert made["old"] == made["new"]


async def test_dry_run_changes_nothing(postgres: Database) -> None:
    async with holdfast.connect(postgres.url, schema="elsewhere") as broker:
        steps = await broker.install(dry_run=True)
        assert steps[0] == "create schema elsewhere"
        assert len(steps) == 1 + len(statements.migrations())
        assert postgres.value("SELECT count(*) FROM pg_namespace WHERE nspname = 'elsewhere'") == 0
        await broker.install()
        assert await broker.install(dry_run=True) == []


async def test_many_install_at_once(postgres: Database) -> None:
    brokers = [await holdfast.connect(postgres.url, schema="shared") for _ in range(5)]
    steps = await asyncio.gather(*[broker.install() for broker in brokers])
    assert sorted(map(len, steps)) == [0, 0, 0, 0, 1 + len(statements.migrations())]
    for broker in brokers:
        await broker.close()


async def test_schemas_stand_beside_each_other_and_uninstall_removes_one(postgres: Database) -> None:
    postgres.rows("CREATE TABLE public.mine (n int)")
    async with holdfast.connect(postgres.url) as one, holdfast.connect(f"{postgres.url}?schema=other") as two:
        await (await one.queue("jobs")).enqueue(1)
        await (await two.queue("jobs")).enqueue_many([2, 3])
        assert (await (await one.queue("jobs")).stats()).total == 1
        await two.uninstall()
        assert await two.queues() == []
        assert (await (await one.queue("jobs")).stats()).total == 1
    assert postgres.value("SELECT count(*) FROM public.mine") == 0


async def test_schema_of_somebody_else_is_left_alone(postgres: Database) -> None:
    postgres.rows("CREATE SCHEMA theirs CREATE TABLE theirs.things (n int)")
    async with holdfast.connect(postgres.url, schema="theirs") as broker:
        await broker.uninstall()
    assert postgres.value("SELECT count(*) FROM theirs.things") == 0


async def test_newer_and_older_schemas_are_refused_with_a_sentence(postgres: Database) -> None:
    postgres.rows("INSERT INTO holdfast.migrations (name) VALUES ('999_future')")
    with pytest.raises(StoreError, match="newer version of Holdfast"):
        await holdfast.connect(postgres.url)
    postgres.rows("DELETE FROM holdfast.migrations WHERE name IN ('999_future', '004_claimed_at')")
    async with holdfast.connect(postgres.url) as broker:
        assert await broker.install(dry_run=True) == ["apply migration 004_claimed_at"]
        for _ in range(2):
            with pytest.raises(StoreError, match="holdfast install"):
                await broker.queue("jobs")
    assert [(check.name, check.state) for check in await admin.doctor(postgres.url)][-1] == ("store", "fail")


# ------------------------------------------------------------------ names


@pytest.mark.parametrize("name", EVIL)
async def test_names_that_look_like_sql_change_nothing(postgres: Database, name: str) -> None:
    async with holdfast.connect(postgres.url) as broker:
        await broker.queue("jobs")
        queue = await broker.queue(name)
        await queue.enqueue("x", headers={"'; DROP SCHEMA holdfast CASCADE; --": "$1"}, dedup_key="'; SELECT 1; --")
        delivery = await queue.dequeue()
        assert delivery is not None
        await delivery.fail("'; DROP TABLE holdfast.queues; --")
        assert (await queue.stats()).total == 1
        assert (await (await broker.queue("jobs")).stats()).total == 0
        await broker.delete_queue(name, force=True)
        assert [info.name for info in await broker.queues()] == ["jobs"]


async def test_names_past_the_first_gate_change_nothing(postgres: Database) -> None:
    """The broker refuses these; the store must not need it to."""
    async with holdfast.connect(postgres.url) as broker:
        store = broker.store
        for name in [
            '"; DROP SCHEMA holdfast CASCADE; --',
            "'; SELECT 1; --",
            "{q}",
            "%s%I%1$s",
            "ü\u2028🙂",
            "a" * 500,
        ]:
            await store.create_queue(name, QueueOptions())
            [id] = await store.append(name, [Envelope(b"1")])
            [message] = (await store.claim(name, 5, 30)).messages
            assert message.id == id
            assert await store.settle(name, [Settlement(id, message.token, "complete")]) == ["ok"]
            assert (await store.stats(name)).completed == 1
        assert len(await store.queues()) == 6
    assert {row[0] for row in postgres.rows("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_'")} == {
        *("holdfast", "public", "information_schema")
    }


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_names_never_share_tables(one: str, two: str) -> None:
    for name in (one, two):
        assert names.slug(name).replace("_", "a").isalnum()
        assert names.slug(name).isascii()
        assert len(names.slug(name)) <= 41
    assert (names.slug(one) == names.slug(two)) == (one.removesuffix("/dead") == two.removesuffix("/dead"))


@given(st.text())
def test_identifiers_are_quoted_or_refused(name: str) -> None:
    try:
        quoted = names.quoted(name)
    except ValueError:
        assert not name or "\0" in name or len(name.encode(errors="surrogatepass")) > 63
    else:
        assert quoted[1:-1].replace('""', "") == name.replace('"', "")
        assert quoted[0] == quoted[-1] == '"'


def test_functions_refuse_tables_that_are_not_ours(postgres: Database) -> None:
    for call in ("make_day(%s, '2030-01-01')", "drop_days(%s, now())", "make_tables(%s)"):
        with pytest.raises(psycopg.errors.InvalidName):
            postgres.rows(f"SELECT holdfast.{call}", "x'; DROP TABLE holdfast.queues; --")


def test_every_place_of_every_statement_is_filled() -> None:
    made = Statements("holdfast", "jobs")
    folder = statements.files(statements.__package__) / "sql"
    found = [file.name.removesuffix(".sql") for file in folder.iterdir() if file.name.endswith(".sql")]
    assert len(found) > 40
    for name in found:
        assert "{schema}" not in made.whole(name, role='"r"', role_text="'r'")


# ------------------------------------------------------------------ roles


@pytest.fixture
def worker_url(postgres: Database):
    """A role with the shipped grants and nothing else."""
    role = f"worker_{postgres.name}"
    with postgres.connect() as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        owner.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        owner.execute(grants(role).encode())
    yield postgres.server.url(postgres.name, user=role)
    with postgres.connect() as owner:
        owner.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(role)))


async def test_role_with_only_the_shipped_grants_does_all_the_work(postgres: Database, worker_url: str) -> None:
    async with holdfast.connect(worker_url) as broker:
        queue = await broker.queue("jobs", retry=holdfast.Fixed(0), max_attempts=2)

        def handle(n: int) -> int:
            if n % 5 == 0:
                raise ValueError(n)
            return n

        ids = await queue.enqueue_many(range(400))
        ids.append(await queue.enqueue(1, delay=0.05, dedup_key="k"))
        worker = queue.worker(handle, concurrency=5)
        await worker.start()
        for id in ids:
            await queue.wait(id, 20)
        await worker.stop()
        stats = await queue.stats()
        assert (stats.completed, stats.dead) == (321, 80)
        assert await queue.dead.replay() == 80
        await queue.purge()
        await broker.maintain()
        assert await queue.cleanup() == 321
        await broker.configure_queue("jobs", lease=5)
        assert [check for check in await broker.check() if check.state == "fail" and check.name != "durability"] == []
        await broker.delete_queue("jobs", force=True)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE holdfast.mine (n int)",
        "DROP TABLE holdfast.queues",
        "DELETE FROM holdfast.queues",
        "INSERT INTO holdfast.migrations (name) VALUES ('x')",
        "CREATE TABLE public.mine (n int)",
        "CREATE SCHEMA mine",
    ],
)
async def test_role_may_do_no_more(worker_url: str, statement: str) -> None:
    with psycopg.connect(worker_url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement)


async def test_role_without_grants_is_told_what_it_lacks(postgres: Database, worker_url: str) -> None:
    with postgres.connect() as owner:
        owner.execute("REVOKE ALL ON ALL TABLES IN SCHEMA holdfast FROM PUBLIC")
        owner.execute(sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA holdfast FROM {}").format(
            sql.Identifier(f"worker_{postgres.name}")))  # fmt: skip
    with pytest.raises(StoreError, match="holdfast grants ROLE"):
        async with holdfast.connect(worker_url) as broker:
            await broker.queues()


def test_installing_by_hand_is_the_same_as_install(postgres: Database) -> None:
    """The fixture's template is made without Holdfast."""
    assert postgres.value("SELECT count(*) FROM holdfast.migrations") == len(statements.migrations())
    assert callable(install)


async def test_schema_of_the_version_before_works_without_history(postgres: Database) -> None:
    """Every statement runs without the column of the last migration."""
    postgres.rows("DROP SCHEMA holdfast CASCADE")
    install(postgres.url, migrations=[name for name in statements.migrations() if name < "010"])
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs", retry=Fixed(LONG_S))
        await queue.enqueue_many(range(500))
        later = await queue.enqueue("later", delay=LONG_S)
        done, died, again, back = await queue.dequeue_many(4)
        await done.complete("result")
        await died.kill("enough")
        await again.fail("no")
        await back.release()
        assert await queue.change(back.id, priority=3)
        assert await queue.cancel(later)
        assert [each.id for each in await queue.peek(1)] == [back.id]
        assert [each.id for each in await queue.list("retry")] == [again.id]
        history = {each.id: len((await queue.get(each.id)).history) for each in (done, died, again, back)}
        assert history == {done.id: 1, died.id: 1, again.id: 0, back.id: 0}
        assert len(await queue.archive.list()) == 2
        assert await queue.dead.replay() == 1
        await broker.maintain()
        await broker.install(raise_format=True)
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        id = await queue.enqueue(1, priority=9)
        await (await queue.dequeue()).fail("no")
        assert [each.error for each in (await queue.get(id)).history] == ["no"]
