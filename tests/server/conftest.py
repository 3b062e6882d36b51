"""One server for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.fixtures import Http
from tests.servers.serving import ServerThread


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    with ServerThread(f"file://{tmp_path_factory.mktemp('served')}/store", redact=("secret",)) as server:
        yield server


@pytest.fixture
def http(server: ServerThread) -> Http:
    return Http(server.address)
