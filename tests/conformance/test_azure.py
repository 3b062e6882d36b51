"""The suite on az://, on Azurite, in real time."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.broker import Broker
from holdfast.testing import contract
from tests.servers import azure
from tests.servers.shared import shared


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[azure.Server]:
    with shared(tmp_path_factory, "azure", lambda: azure.Server().__enter__()) as server:
        yield server


class TestAzure(contract.AllButCalls, contract.Network):
    """A fresh prefix of one container per test."""

    @pytest.fixture
    def place(self, server: azure.Server) -> None:
        self.shared_url = server.url(f"t{os.urandom(6).hex()}")
        self.unreachable_url = server.url(endpoint="http://127.0.0.1:1")
        self.wrong_credentials_url = server.url(key="d3Jvbmcgc2VjcmV0")

    async def open_broker(self) -> Broker:
        assert self.shared_url is not None
        return await holdfast.connect(self.shared_url)


async def test_a_missing_container_says_how_to_make_one(server: azure.Server) -> None:
    with pytest.raises(holdfast.StoreError, match="az storage container create") as caught:
        async with holdfast.connect(server.url(container="absent")) as broker:
            await broker.queue("emails")
    assert azure.KEY not in str(caught.value)


def test_a_page_begins_after_the_last_key(server: azure.Server) -> None:
    """Also where the server knows nothing of the offset, and in lists of several pages."""
    from holdfast.stores.log.bucket.requests import PAGE, Wire
    from holdfast.stores.log.bucket.usage import Tally

    store = server.driver(f"t{os.urandom(6).hex()}")
    names = [f"many/{number:04}" for number in range(PAGE + 20)]
    for name in names:
        store.put(name, b"x")
    wire = Wire(store, "az://holdfast", Tally(), timeout=30.0)
    first = [each.key for each in wire.page("many", "", wire.until())]
    second = [each.key for each in wire.page("many", first[-1], wire.until())]
    assert first + second == names
    assert wire.page("many", names[-1], wire.until()) == []
