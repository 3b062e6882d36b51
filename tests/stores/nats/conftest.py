"""Servers for the tests of NATS."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest

import holdfast
from tests.servers.nats import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def own() -> Iterator[Server]:
    """A server that the test may hurt."""
    with Server() as server:
        yield server


@pytest.fixture
async def broker(server: Server) -> AsyncIterator[holdfast.Broker]:
    async with holdfast.connect(server.url, prefix=f"t{os.urandom(6).hex()}") as broker:
        yield broker
        await broker.uninstall()
