"""The suite on http://: on a served folder in full; on served SlateDB and PostgreSQL when all of it is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.broker import Broker
from holdfast.testing import contract
from tests.servers.serving import ServerThread
from tests.stores.postgres.fixtures import Database

TOKEN = "admin:admin:a-token-for-tests"


# All of them but backups: a store is backed up where it is, not through its server.
Topics = type("Topics", tuple(topic for topic in contract.ALL if topic is not contract.Backups), {})


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread(tokens=(TOKEN,)) as server:
        yield server


class Served(contract.StoreContract):
    """A store of each test behind one server, below a name; whoever asks has a token."""

    def served(self, server: ServerThread, url: str) -> Iterator[None]:
        host = server.address.removeprefix("http://")
        with server.store(url) as name:
            self.shared_url = f"http://a-token-for-tests@{host}/{name}"
            self.wrong_credentials_url = f"http://another-token@{host}/{name}"
            self.unreachable_url = "http://127.0.0.1:1"
            yield

    async def open_broker(self) -> Broker:
        assert self.shared_url is not None
        return await holdfast.connect(self.shared_url)


class TestServedFile(Served, Topics, contract.Network):
    """`holdfast serve --url file://…`."""

    @pytest.fixture
    def place(self, server: ServerThread, tmp_path: Path) -> Iterator[None]:
        yield from self.served(server, f"file://{tmp_path}/store")


if os.environ.get("HOLDFAST_FULL"):

    class TestServedSlate(Served, Topics, contract.Network):
        """A database that one process owns, for many."""

        @pytest.fixture
        def place(self, server: ServerThread, tmp_path: Path) -> Iterator[None]:
            yield from self.served(server, f"slatedb+file://{tmp_path}/store")

    class TestServedPostgres(Served, Topics, contract.Network):
        @pytest.fixture
        def place(self, server: ServerThread, postgres: Database) -> Iterator[None]:
            yield from self.served(server, postgres.url)
