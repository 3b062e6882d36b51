"""What is not ours in a schema: never dropped, never mistaken for ours, and company only when somebody says so."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg import sql
from typer.testing import CliRunner

import holdfast
from holdfast.cli.root import app
from holdfast.errors import ConfigError, StoreError
from holdfast.stores.postgres import statements
from holdfast.stores.postgres.schema import grants

from .fixtures import Database, install

FRAMEWORK = "CREATE TABLE app.migrations (id serial PRIMARY KEY, migration text NOT NULL, batch integer NOT NULL)"


@pytest.fixture
def app_url(postgres: Database) -> str:
    """A schema of somebody's application."""
    postgres.rows("CREATE SCHEMA app")
    return f"{postgres.url}?schema=app"


def orders(database: Database) -> None:
    database.rows("CREATE TABLE app.orders (n int)")
    database.rows("INSERT INTO app.orders VALUES (1), (2)")
    database.rows("CREATE FUNCTION app.total() RETURNS bigint LANGUAGE sql AS 'SELECT sum(n) FROM app.orders'")


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result.output


async def ran(*arguments: str, code: int = 0) -> str:
    """The same from a test that has an event loop already."""
    return await asyncio.to_thread(run, *arguments, code=code)


def contents(database: Database, schema: str) -> set[str]:
    tables = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'p', 'v')"
    functions = "SELECT proname FROM pg_proc WHERE pronamespace = to_regnamespace(%s)"
    return {row[0] for query in (tables, functions) for row in database.rows(query, schema)}


def test_uninstall_drops_only_what_is_ours_and_says_what_it_left(postgres: Database, app_url: str) -> None:
    run("install", "--url", app_url)
    run("message", "send", "jobs", "1", "--url", app_url)
    run("message", "send", "Other.Jobs", "1", "--url", app_url)
    orders(postgres)
    told = run("uninstall", "--yes", "--url", app_url)
    assert postgres.value("SELECT app.total()") == 3
    assert contents(postgres, "app") == {"orders", "total"}
    assert "table app.orders" in told
    assert "function app.total" in told
    assert "left" not in run("uninstall", "--yes", "--url", postgres.url)


async def test_schema_goes_when_nothing_is_left_in_it(postgres: Database) -> None:
    for name in ("mine", "public"):
        async with holdfast.connect(postgres.url, schema=name) as broker:
            queue = await broker.queue("jobs")
            await queue.enqueue_many([1, 2])
            await (await queue.dequeue()).complete()
            assert await broker.uninstall() == []
            assert await broker.uninstall() == []
            assert await broker.queues() == []
    assert postgres.value("SELECT to_regnamespace('mine')") is None
    assert postgres.value("SELECT to_regnamespace('public')") is not None
    assert contents(postgres, "public") == set()


async def test_company_is_refused_until_somebody_says_so(postgres: Database, app_url: str) -> None:
    orders(postgres)
    async with holdfast.connect(app_url) as broker:
        for call in (broker.install(), broker.install(dry_run=True), broker.queue("jobs")):
            with pytest.raises(ConfigError, match=r"table orders, function total.*--shared-schema"):
                await call
        assert contents(postgres, "app") == {"orders", "total"}
    assert "--shared-schema" in await ran("install", "--url", app_url, code=1)
    assert "apply migration 001_tables" in await ran("install", "--dry-run", "--shared-schema", "--url", app_url)
    assert "apply migration 001_tables" in await ran("install", "--shared-schema", "--url", app_url)
    async with holdfast.connect(app_url) as broker:
        assert await broker.install() == []  # once it is there nobody needs to say it again
        queue = await broker.queue("jobs")
        id = await queue.enqueue(1)
        await (await queue.dequeue()).complete()
        assert await queue.status(id) == "completed"
        assert await broker.uninstall() == ["table app.orders", "function app.total"]
    assert postgres.value("SELECT app.total()") == 3


async def test_installing_beside_others_takes_nothing_from_them(postgres: Database, app_url: str) -> None:
    """Neither the rights on their functions nor those on their tables change."""
    orders(postgres)
    role = f"guest_{postgres.name}"
    with postgres.connect() as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        owner.execute(sql.SQL("GRANT USAGE ON SCHEMA app TO {}").format(sql.Identifier(role)))
    try:
        async with holdfast.connect(app_url) as broker:
            await broker.install(shared_schema=True)
            await broker.queue("jobs")
        with postgres.connect() as owner:
            owner.execute(grants(role, schema="app").encode())
        theirs = postgres.server.url(postgres.name, user=role)
        async with holdfast.connect(f"{theirs}?schema=app") as broker:
            queue = await broker.queue("jobs")
            await queue.enqueue(1)
            await (await queue.dequeue()).complete()
        with psycopg.connect(theirs, autocommit=True) as guest:
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="orders"):
                guest.execute("SELECT app.total()")  # may be called, as before; the table is not theirs to read
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                guest.execute("DELETE FROM app.orders")
    finally:
        with postgres.connect() as owner:
            owner.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(role)))


async def test_migrations_of_a_framework_are_not_ours(postgres: Database, app_url: str) -> None:
    orders(postgres)
    postgres.rows(FRAMEWORK)
    for open_for in ("uninstall", "install", "doctor"):
        told = await ran(open_for, *(["--yes"] if open_for == "uninstall" else []), "--url", app_url, code=1)
        assert "table migrations" in told
    with pytest.raises(ConfigError, match="names that Holdfast needs"):
        await holdfast.connect(app_url)
    assert contents(postgres, "app") == {"orders", "total", "migrations"}


async def test_installation_without_the_mark_is_known_and_brought_up_to_date(postgres: Database) -> None:
    postgres.rows("DROP SCHEMA holdfast CASCADE")
    older = [name for name in statements.migrations() if name < "006"]
    install(postgres.url, migrations=older)
    postgres.rows("SELECT holdfast.create_queue('old', 'old', '{}', 3, false, true, NULL)")
    postgres.rows("CREATE TABLE holdfast.notes (n int)")  # as it could be made before
    async with holdfast.connect(postgres.url) as broker:
        with pytest.raises(StoreError, match="holdfast install"):
            await broker.queue("old")
        assert await broker.install(dry_run=True) == [
            "apply migration 006_mark",
            "apply migration 007_applied_by",
            "apply migration 008_schedules",
            "apply migration 009_verbs",
        ]
    assert "006_mark" in await ran("install", "--url", postgres.url)
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("old")
        await queue.enqueue(1)
        assert (await queue.stats()).pending == 1
        assert await broker.uninstall() == ["table holdfast.notes"]
    assert contents(postgres, "holdfast") == {"notes"}


async def test_installation_without_the_mark_can_be_removed(postgres: Database) -> None:
    postgres.rows("DROP SCHEMA holdfast CASCADE")
    install(postgres.url, migrations=[name for name in statements.migrations() if name < "003"])
    async with holdfast.connect(postgres.url) as broker:
        assert await broker.uninstall() == []
    assert postgres.value("SELECT to_regnamespace('holdfast')") is None


async def test_view_of_somebody_else_on_our_tables_stops_it_and_nothing_is_gone(postgres: Database) -> None:
    postgres.rows("CREATE VIEW public.backlog AS SELECT name FROM holdfast.queues")
    async with holdfast.connect(postgres.url) as broker:
        await (await broker.queue("jobs")).enqueue(1)
        with pytest.raises(StoreError, match="cannot drop"):
            await broker.uninstall()
    assert postgres.rows("SELECT name FROM public.backlog") == [("jobs",)]
    async with holdfast.connect(postgres.url) as broker:
        assert (await (await broker.queue("jobs")).stats()).pending == 1


async def test_extensions_are_no_company(postgres: Database) -> None:
    if not postgres.rows("SELECT name FROM pg_available_extensions WHERE name = 'vector'"):
        pytest.skip("this server has no extension to try it with")
    postgres.rows("CREATE SCHEMA tools")
    postgres.rows("CREATE EXTENSION vector SCHEMA tools")
    async with holdfast.connect(postgres.url, schema="tools") as broker:
        await broker.queue("jobs")
        assert await broker.uninstall() == ["schema tools"]
    assert postgres.value("SELECT count(*) FROM pg_extension WHERE extname = 'vector'") == 1


async def test_sharing_is_for_postgresql() -> None:
    async with holdfast.connect("memory://") as broker:
        with pytest.raises(ConfigError, match="PostgreSQL"):
            await broker.install(shared_schema=True)
        assert await broker.uninstall() == []
