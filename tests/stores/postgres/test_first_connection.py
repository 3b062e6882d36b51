"""Opening says why it cannot be: at once where waiting cannot help, else within `connect_timeout`, with its cause."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import psycopg
import pytest
from psycopg import sql

import holdfast
from holdfast.errors import HoldfastError, StoreError, Unavailable
from tests.servers.postgres import Server

from .fixtures import Database
from .proxy import Proxy

AT_ONCE = 5.0  # seconds, on a busy machine; `connect_timeout` is 30
BRIEF = 1.5  # seconds of `connect_timeout` where something may pass


async def refusal(url: str, **options: object) -> tuple[HoldfastError, float]:
    """The error, and how long it took."""
    started = time.monotonic()
    with pytest.raises(HoldfastError) as caught:
        await holdfast.connect(url, **options)
    return caught.value, time.monotonic() - started


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("127.0.0.1:{port}", "127.0.0.1:{port}: connection refused"),
        ("localhost:{port}", "localhost:{port}: connection refused"),
        ("127.0.0.1:{port},localhost:{port}", "connection refused"),
        ("no-such-host.invalid", "no-such-host.invalid:5432: unknown host"),
        ("?host=/no/such/folder", "/no/such/folder: there is no such socket"),
    ],
)
async def test_nobody_there_is_said_at_once(place: str, sentence: str) -> None:
    port = closed_port()
    place = place.format(port=port)
    url = f"postgresql:///app{place}&user=me" if place.startswith("?") else f"postgresql://me:canary@{place}/app"
    error, took = await refusal(url)
    assert isinstance(error, Unavailable)  # it may come
    assert sentence.format(port=port) in str(error)
    assert "canary" not in str(error)
    assert took < AT_ONCE


@contextmanager
def role(postgres: Database, name: str, options: str = "") -> Iterator[str]:
    """A role of the test's own; its URL."""
    own = f"{name}_{postgres.name}"
    with postgres.connect() as admin:
        admin.execute(sql.SQL(f"CREATE ROLE {{}} LOGIN {options}").format(sql.Identifier(own)))
        try:
            yield postgres.server.url(postgres.name, user=own)
        finally:
            admin.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(own)))


async def test_what_the_server_refuses_is_said_at_once(postgres: Database) -> None:
    server = postgres.server
    with postgres.connect() as admin:
        admin.execute("CREATE ROLE secret LOGIN PASSWORD 'right'")
        try:
            url = f"postgresql://secret:canary@127.0.0.1:{server.port}/{postgres.name}"
            error, took = await refusal(url)
        finally:
            admin.execute("DROP ROLE secret")
    assert "password authentication failed" in str(error)
    assert "canary" not in str(error)
    assert not isinstance(error, Unavailable)
    assert took < AT_ONCE
    error, took = await refusal(server.url("nowhere"))
    assert "create the database first" in str(error)
    assert took < AT_ONCE


async def test_a_role_that_may_not_is_told_of_grants_at_once(postgres: Database) -> None:
    with role(postgres, "stranger") as url:
        error, took = await refusal(url)
        assert "permission denied" in str(error)
        assert "`holdfast grants ROLE`" in str(error)
        assert took < AT_ONCE


async def test_read_only_role_is_refused_at_once(postgres: Database) -> None:
    with role(postgres, "reader") as url:
        with postgres.connect() as admin:
            admin.execute(
                sql.SQL("ALTER ROLE {} SET default_transaction_read_only = on").format(
                    sql.Identifier(f"reader_{postgres.name}")
                )
            )
        error, took = await refusal(url)
        assert "read-only (default_transaction_read_only)" in str(error)
        assert not isinstance(error, Unavailable)
        assert took < AT_ONCE


async def test_old_server_is_refused_at_once(postgres: Database) -> None:
    proxy = Proxy(postgres.server.port)
    proxy.version = b"12.22 (Debian 12.22-1)"
    async with proxy.running():
        error, took = await refusal(proxy.url(postgres.name))
        assert type(error) is StoreError
        assert "is PostgreSQL 12; Holdfast needs 13 or newer" in str(error)
        assert took < AT_ONCE
        proxy.version = b"13.0"
        async with holdfast.connect(proxy.url(postgres.name)) as broker:
            assert await broker.queues() == []


@pytest.mark.timeout(120)
async def test_standby_is_named_and_among_several_hosts_waited_for() -> None:
    with Server(settings={"fsync": "off"}) as primary, Server(follows=primary) as standby:
        error, took = await refusal(standby.url())
        assert isinstance(error, Unavailable)  # it may be promoted
        assert "read-only standby" in str(error)
        assert took < AT_ONCE
        gone = f"postgresql://postgres@127.0.0.1:{closed_port()},127.0.0.1:{standby.port}/postgres"
        error, took = await refusal(gone, connect_timeout=BRIEF)
        assert isinstance(error, Unavailable)
        assert f"did not open within {BRIEF:g} s: none of its hosts takes writes" in str(error)
        assert BRIEF * 0.9 < took < BRIEF + 2
        opening = asyncio.create_task(_opened(gone))
        await asyncio.to_thread(standby.promote)
        await asyncio.wait_for(opening, 30)


async def _opened(url: str) -> None:
    async with holdfast.connect(url) as broker:
        await broker.queues()


@pytest.mark.timeout(120)
async def test_too_many_connections_is_waited_for_and_named() -> None:
    with Server(settings={"max_connections": "6", "reserved_connections": "0", "fsync": "off"}) as server:
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute("CREATE ROLE app LOGIN")
        with ExitStack() as taken:
            with suppress(psycopg.OperationalError):
                while True:
                    taken.enter_context(psycopg.connect(server.url(user="app")))
            error, took = await refusal(server.url(user="app"), connect_timeout=BRIEF)
            assert isinstance(error, Unavailable)
            assert f"did not open within {BRIEF:g} s: " in str(error)
            assert "too many connections" in str(error)
            assert BRIEF * 0.9 < took < BRIEF + 2
            opening = asyncio.create_task(_opened(server.url(user="app")))
        await asyncio.wait_for(opening, 30)


async def test_silent_server_is_an_error_within_the_time_to_open() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        error, took = await refusal(f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/app", connect_timeout=BRIEF)
        assert isinstance(error, Unavailable)
        assert str(error).endswith(f"did not open within {BRIEF:g} s: no answer")
        assert took < BRIEF + 2


@pytest.mark.timeout(120)
async def test_calls_to_a_server_that_went_away_say_the_last_cause() -> None:
    with Server(settings={"fsync": "off"}) as server:
        async with holdfast.connect(server.url(), operation_timeout=3.0, notify=False) as broker:
            queue = await broker.queue("jobs")
            server.stop(immediate=True)
            with pytest.raises(Unavailable, match=r"did not answer within 3 s: connection refused"):
                await queue.stats()
