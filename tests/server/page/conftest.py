"""A served store with something of everything."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.server.fixtures import Http
from tests.server.page.story import fill
from tests.servers.serving import ServerThread


class Told(NamedTuple):
    server: ServerThread
    url: str
    ids: dict[str, str]

    @property
    def address(self) -> str:
        return self.server.address

    @property
    def http(self) -> Http:
        return Http(self.address)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    url = f"file://{tmp_path_factory.mktemp('told')}/store"
    ids = asyncio.run(fill(url))
    with ServerThread(url, redact=("secret",)) as server:
        yield Told(server, url, ids)
