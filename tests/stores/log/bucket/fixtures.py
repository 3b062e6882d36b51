"""One S3 server per test run, a fresh prefix of its bucket per test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.servers.s3 import Server
from tests.servers.shared import shared

if TYPE_CHECKING:
    from obstore.store import S3Store


class Place:
    """One test's part of the bucket."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.prefix = f"t{os.urandom(6).hex()}"
        self.url = server.url(self.prefix)

    def driver(self) -> S3Store:
        return self.server.driver(self.prefix)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with shared(tmp_path_factory, "s3", lambda: Server().__enter__()) as server:
        yield server


@pytest.fixture
def s3(s3_server: Server) -> Place:
    return Place(s3_server)
