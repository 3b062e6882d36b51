"""The suite on nats://, against a real server: async, blocking, and with many processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast.broker import Broker
from holdfast.testing import contract
from tests.servers.nats import Server, free_port
from tests.servers.shared import shared

pytest.importorskip("nats", reason="the extra nats is not installed")

LOCKED = 'authorization: {user: "anna", password: "right"}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with shared(tmp_path_factory, "nats", lambda: Server().start()) as server:
        yield server


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with shared(tmp_path_factory, "nats-locked", lambda: Server(LOCKED).start()) as server:
        yield server


class Place:
    """Every test has a prefix of its own on one server."""

    shared_url: str | None
    unreachable_url: str | None
    wrong_credentials_url: str | None

    @pytest.fixture
    def place(self, server: Server, locked: Server) -> Iterator[None]:
        self.shared_url = f"{server.url}?prefix=t{os.urandom(6).hex()}"
        self.unreachable_url = f"nats://127.0.0.1:{free_port()}"
        self.wrong_credentials_url = f"nats://anna:canary@{locked.host}"
        yield
        with holdfast.sync.connect(self.shared_url) as broker:
            broker.uninstall()


class TestNats(Place, contract.Network, contract.AllButCallsAndChanging):
    """One server, one copy."""

    async def open_broker(self) -> Broker:
        assert self.shared_url is not None
        return await holdfast.connect(self.shared_url)


class TestNatsSync(
    Place,
    contract.SyncFace,
    contract.Basics,
    contract.Leases,
    contract.Concurrency,
    contract.Retries,
    contract.DeadLetters,
    contract.Archive,
    contract.DelayAndDedup,
    contract.Batches,
    contract.Listing,
    contract.Operating,
    contract.SeveralQueues,
    contract.Reporting,
    contract.Uniqueness,
    contract.Expiry,
    contract.History,
    contract.Workers,
    contract.Events,
    contract.Whole,
    contract.BadInput,
    contract.Network,
    contract.Options,
    contract.Reopening,
):
    """`holdfast.sync` on the same server."""

    def open_blocking(self) -> Any:
        return holdfast.sync.connect(self.shared_url)
