"""The suite on postgresql://, in real time: async, and through the blocking face."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast.broker import Broker
from holdfast.testing import contract
from tests.stores.postgres.fixtures import Database


class OnPostgres(contract.StoreContract):
    """A fresh database per test."""

    @pytest.fixture
    def place(self, postgres: Database) -> None:
        self.shared_url = postgres.url
        self.unreachable_url = "postgresql://postgres@127.0.0.1:1/nobody"
        self.wrong_credentials_url = postgres.server.url(postgres.name, user="secret")

    async def open_broker(self) -> Broker:
        assert self.shared_url is not None
        return await holdfast.connect(self.shared_url)


class TestPostgres(OnPostgres, contract.All, contract.Network):
    """Through the async core."""


class TestPostgresSync(
    contract.SyncFace,
    OnPostgres,
    contract.Basics,
    contract.Leases,
    contract.Concurrency,
    contract.Retries,
    contract.DeadLetters,
    contract.Archive,
    contract.DelayAndDedup,
    contract.Batches,
    contract.Workers,
    contract.Events,
    contract.Whole,
    contract.BadInput,
    contract.Network,
    contract.Options,
    contract.Reopening,
):
    """Through `holdfast.sync`, blocking and thread-safe."""

    def open_blocking(self) -> Any:
        return holdfast.sync.connect(self.shared_url)
