"""The suite on s3://, on a real server, in real time."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.broker import Broker
from holdfast.testing import contract
from tests.servers import s3 as servers
from tests.stores.log.bucket.fixtures import Place


class OnS3(contract.StoreContract):
    """A fresh prefix of a bucket per test."""

    @pytest.fixture
    def place(self, s3: Place) -> None:
        self.shared_url = s3.url
        self.unreachable_url = servers.url("http://127.0.0.1:1")
        self.wrong_credentials_url = servers.url(s3.server.endpoint, key=("nobody", "wrong-secret"))

    async def open_broker(self) -> Broker:
        assert self.shared_url is not None
        return await holdfast.connect(self.shared_url)


class TestS3(OnS3, contract.AllButCalls, contract.Network):
    """One head."""


class TestS3Shards(
    OnS3,
    contract.Basics,
    contract.Leases,
    contract.Concurrency,
    contract.Processes,
    contract.Retries,
    contract.DeadLetters,
    contract.Archive,
    contract.DelayAndDedup,
    contract.Batches,
    contract.Workers,
    contract.Disturbances,
    contract.Events,
    contract.Whole,
    contract.Receipts,
    contract.Options,
    contract.Reopening,
    contract.Seam,
    contract.Tokens,
    contract.Schedules,
    contract.SeveralQueues,
    contract.Listing,
    contract.Operating,
    contract.Changing,
    contract.Reporting,
    contract.Uniqueness,
    contract.Replacing,
    contract.Expiry,
    contract.History,
):
    """Four heads: what is created without saying so has four shards. Order is strict per shard."""

    @pytest.fixture(autouse=True)
    def shards(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOLDFAST_QUEUE_SHARDS", "4")
