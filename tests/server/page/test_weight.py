"""What the page transfers: little, whatever there is to show."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from tests.server.fixtures import Http
from tests.server.page.conftest import Told
from tests.server.page.test_frame import PAGES
from tests.servers.serving import ServerThread

WEIGHT_BYTES = 150_000
FILES = ("style.css", "ui.js", "sprite.svg", "mark.svg")
QUEUES = 1000


def weight(http: Http, path: str) -> int:
    """Of an answer with its headers, as browsers ask for it."""
    answer = http.get(path, Accept_Encoding="gzip", Accept="text/html")
    assert answer.status == 200, path
    return len(answer.body) + sum(len(name) + len(value) + 4 for name, value in answer.headers.items())


def test_all_pages_and_files_together_are_small(told: Told) -> None:
    ids = [f"/queues/payments/messages/{id}" for kind, id in told.ids.items() if kind in ("dead", "done", "held")]
    sizes = {path: weight(told.http, path) for path in (*PAGES, *ids, *(f"/static/{name}" for name in FILES))}
    assert sum(sizes.values()) < WEIGHT_BYTES, sizes


@pytest.mark.timeout(120)
def test_a_thousand_queues_are_no_heavy_page() -> None:
    async def fill(broker: holdfast.Broker) -> None:
        async def one(number: int) -> None:
            queue: holdfast.Queue[int] = await broker.queue(f"tenant-{number:04d}", max_attempts=1)
            await queue.enqueue_many([1, 2])
            for each in await queue.dequeue_many(1):
                await each.fail(f"ValueError: reason {'x' * (number % 50)}")

        await asyncio.gather(*map(one, range(QUEUES)))

    with ServerThread("memory://") as server:
        http, served = Http(server.address), server.serving.application.served[""]
        server.inside(fill(served.broker))
        for _ in range(2):  # two looks are the beginning of a line
            assert served.history is not None
            served.history.add(server.inside(served.watch.reports()))
        files = sum(weight(http, f"/static/{name}") for name in FILES)
        for path in ("/", "/queues", "/queues/tenant-0500", "/messages", "/dead", "/workers", "/doctor"):
            assert files + weight(http, path) < WEIGHT_BYTES, path
