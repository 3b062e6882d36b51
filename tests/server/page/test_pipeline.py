"""Spark streams on the page: what they hold, and how that is given back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import holdfast
from holdfast.stores.log.store import LogStore
from tests.server.fixtures import Http
from tests.server.page.story import SCRIPT
from tests.servers.serving import ServerThread


async def read_some(url: str) -> None:
    """One stream runs and holds 3 messages, one holds 5 and has no owner, one has read everything."""
    async with holdfast.connect(url) as broker:
        batches = broker.store.batches
        assert batches is not None
        for queue in ("orders", "clicks"):
            await (await broker.queue(queue)).enqueue_many(range(20))
        running = await batches.own("orders", "lake", holder="driver-1", lease=600)
        await batches.claim_batch(running, after=0, limit=3)
        lost = await batches.own("clicks", f"fraud {SCRIPT}", holder="driver-2", lease=600)
        await batches.claim_batch(lost, after=0, limit=5)
        await batches.beat(lost, 0.0)
        ended = await batches.own("clicks", "backfill", holder="driver-3", lease=600)
        await batches.beat(ended, 0.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = f"file://{tmp_path}/store"
    asyncio.run(read_some(made))
    return made


def page(http: Http, path: str = "/pipeline", status: int = 200) -> str:
    answer = http.get(path)
    assert answer.status == status
    return bytes(answer.body).decode()


def test_streams_are_shown_with_what_they_hold(url: str) -> None:
    with ServerThread(url) as server:
        shown = page(Http(server.address))
    assert "3 Spark streams: 1 without an owner holds messages" in shown
    assert shown.index("lake") < shown.index("backfill")  # by lag
    assert "driver-1" in shown
    assert "Give back 5…" in shown
    assert "Give back 3…" not in shown  # somebody reads them
    assert SCRIPT not in shown
    assert 'data-key="p"' in shown


def test_what_a_stream_without_an_owner_holds_is_given_back(url: str) -> None:
    with ServerThread(url) as server:
        http = Http(server.address)
        link = page(http).split('href="/pipeline?')[1].split("#")[0].replace("&amp;", "&")
        asked = page(http, f"/pipeline?{link}")
        assert "nothing has happened yet" in asked
        action = asked.split('action="/pipeline/')[1].split('"')[0].replace("&amp;", "&")
        done = http.ask("POST", f"/pipeline/{action}")
        assert done.status == 200, done.body  # after the redirect
        assert "5 messages went back into their queue" in bytes(done.body).decode()
        assert http.get("/api/v1/queues/clicks").body["stats"]["pending"] == 20
        assert "POST /pipeline/clicks/release" in page(http, "/audit")
        taken = http.ask("POST", "/pipeline/orders/release?consumer=lake")
        assert taken.status == 409
        assert b"in use" in taken.body


def test_roles_queues_and_stores_without_streams(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = ("r:read:orders:" + "r" * 20, "o:operate:orders:" + "o" * 20)
    with ServerThread(url, tokens=tokens) as server:
        reader, other = (Http(server.address, authorization=f"Bearer {each * 20}") for each in "ro")
        shown = page(reader)
        assert "1 Spark stream" in shown
        assert "clicks" not in shown
        assert reader.ask("POST", "/pipeline/orders/release?consumer=lake").status == 403
        assert other.ask("POST", "/pipeline/clicks/release?consumer=backfill").status == 403
    monkeypatch.setattr(LogStore, "batches", None)  # as on NATS
    with ServerThread("memory://") as server:
        http = Http(server.address)
        assert 'data-key="p"' not in page(http, "/")
        page(http, "/pipeline", status=422)
