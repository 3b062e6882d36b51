"""`holdfast grants`: what a worker's role needs, printed or applied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg import sql

import holdfast
from holdfast.errors import StoreError
from tests.cli_runner import Cli

from .fixtures import Database


@pytest.fixture
def cli(postgres: Database, tmp_path: Path) -> Cli:
    made = Cli(tmp_path)
    made.url = postgres.url
    return made


@pytest.fixture
def plain_role(postgres: Database) -> Iterator[str]:
    """A role that may connect and no more."""
    role = f"plain {postgres.name}"
    with postgres.connect() as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        try:
            yield role
        finally:
            owner.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(role)))


def test_grants_are_applied_and_enough_for_a_worker(postgres: Database, cli: Cli, plain_role: str) -> None:
    url = postgres.server.url(postgres.name, user=quote(plain_role))
    with pytest.raises(StoreError, match="holdfast grants ROLE"):
        holdfast.sync.connect(url)
    assert "may produce and work" in cli.out("grants", plain_role, "--apply")
    with holdfast.sync.connect(url) as broker:
        queue = broker.queue("jobs")
        queue.enqueue(1)
        delivery = queue.dequeue()
        assert delivery is not None
        delivery.complete()


def test_grants_are_printed_also_for_a_role_that_may_not_connect(postgres: Database, cli: Cli, plain_role: str) -> None:
    url = postgres.server.url(postgres.name, user=quote(plain_role))
    shown = cli.out("grants", plain_role, "--url", f"{url}?schema=holdfast")
    assert f'GRANT USAGE ON SCHEMA "holdfast" TO "{plain_role}"' in shown
    with postgres.connect() as owner:
        owner.execute(shown.encode())
    with holdfast.sync.connect(url) as broker:
        assert broker.queues() == []


def test_grants_that_cannot_be_are_one_line(cli: Cli, tmp_path: Path, postgres: Database) -> None:
    assert "does not exist" in cli.error("grants", "nobody_of_this_name", "--apply")
    assert "cannot be a role" in cli.error("grants", "x" * 64)
    assert "PostgreSQL" in cli.error("grants", "app", "--url", (tmp_path / "data").as_uri())
    assert not (tmp_path / "data").exists()
    assert "holdfast install" in cli.error("grants", "postgres", "--apply", "--url", f"{postgres.url}?schema=other")
