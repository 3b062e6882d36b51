"""A served store with something of everything."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import pytest

from tests.server.fixtures import Http
from tests.server.page.story import fill
from tests.servers.serving import ServerThread

T = TypeVar("T")


def apart(work: Coroutine[Any, Any, T]) -> T:
    """In a thread with a loop of its own: Playwright may have one here."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result(30)


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
    ids = apart(fill(url))
    with ServerThread(url, redact=("secret",)) as server:
        yield Told(server, url, ids)
