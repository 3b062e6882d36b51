"""One server per test process, one template with the schema, a fresh database per test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import psycopg
import pytest
from psycopg import sql

from holdfast.stores.postgres import statements
from holdfast.stores.postgres.statements import Statements
from tests.servers.postgres import Server

TEMPLATE = "holdfast_template"
_numbers = count(1)


class Database:
    """One test's database."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.url = server.url(name)

    def connect(self, **options: object) -> psycopg.Connection:
        return psycopg.connect(self.url, autocommit=True, **options)

    def rows(self, query: str, *args: object) -> list[tuple]:
        with self.connect() as connection:
            cursor = connection.execute(query, args)
            return cursor.fetchall() if cursor.description else []

    def value(self, query: str, *args: object) -> object:
        return self.rows(query, *args)[0][0]


def install(url: str, schema: str = "holdfast", *, migrations: Sequence[str] | None = None) -> None:
    """What `holdfast install` does, without Holdfast; or what an older one did."""
    names = statements.migrations() if migrations is None else migrations
    made = Statements(schema)
    with psycopg.connect(url) as connection:
        for name in ("migrations_begin", *(f"migrations/{name}" for name in names)):
            connection.execute(made.whole(name).encode())
        for name in names:
            connection.execute("INSERT INTO holdfast.migrations (name) VALUES (%s)", [name])


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    with Server(settings={"fsync": "off"}) as server:
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
        install(server.url(TEMPLATE))
        yield server


@pytest.fixture
def postgres(postgres_server: Server) -> Iterator[Database]:
    name = f"t{next(_numbers)}"
    with psycopg.connect(postgres_server.url(), autocommit=True) as admin:
        wanted = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        admin.execute(wanted.format(sql.Identifier(name), sql.Identifier(TEMPLATE)))
        yield Database(postgres_server, name)
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
