"""Everything that a filter finds: previewed, started, followed, stopped, by those who may."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from urllib.parse import urlencode

import holdfast
from tests.server.fixtures import Answer, Http
from tests.servers.serving import ServerThread

FORM = {"Content_Type": "application/x-www-form-urlencoded"}
TOKENS = (
    "ops:operate:operate-token-0123456789",
    "some:operate:mail-*:some-token-0123456789",
    "eye:read:read-token-0123456789",
)


async def fill(url: str) -> None:
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue_many([{"n": number} for number in range(30)], headers={"kind": "a"})
        await queue.enqueue_many([{"n": number} for number in range(12)], headers={"kind": "b"})


def page(http: Http, path: str) -> str:
    answer = http.get(path)
    assert answer.status == 200, path
    return bytes(answer.body).decode()


def begin(http: Http, **fields: str) -> Answer:
    return http.ask("POST", "/queues/jobs/bulk", raw=urlencode(fields).encode(), **FORM)


def test_a_filter_is_previewed_and_done(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    asyncio.run(fill(url))
    with ServerThread(url, tokens=TOKENS) as server:
        http = Http(server.address, Authorization="Bearer operate-token-0123456789")
        listed = page(http, "/queues/jobs/messages?header=kind%3Db")
        assert "12 messages fit of 42 that were looked at" in listed
        asked = page(http, "/queues/jobs/bulk?verb=cancel&state=ready&header=kind%3Db")
        assert "Cancel 12 messages?" in asked
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', asked))
        assert asyncio.run(_pending(url)) == 42
        for bad in ({**fields, "verb": "replay"}, {**fields, "seen": ""}, {**fields, "state": "odd"}):
            assert begin(http, **bad).status == 422
        for token in ("some", "read"):
            other = Http(server.address, Authorization=f"Bearer {token}-token-0123456789")
            assert begin(other, **fields).status == 403
            assert other.get("/queues/jobs/bulk?verb=cancel&state=ready").status == 403
        assert begin(http, **fields).status == 200
        deadline = time.monotonic() + 20
        while "1 bulk job" not in (jobs := page(http, "/jobs")) or "running" in jobs:
            assert time.monotonic() < deadline
        id = re.findall(r'href="/jobs/(\w+)"', jobs)[0]
        assert "Cancel: 12 messages" in page(http, f"/jobs/{id}")
        assert asyncio.run(_pending(url)) == 30
        assert http.post(f"/jobs/{id}/stop").status == 200  # it has ended: harmless
        some = Http(server.address, Authorization="Bearer some-token-0123456789")
        assert some.get(f"/jobs/{id}").status == 403
        assert some.post(f"/jobs/{id}/stop").status == 403
        assert http.get("/jobs/nothing").status == 404
        assert "of jobs: done" in page(http, "/audit")


async def _pending(url: str) -> int:
    async with holdfast.connect(url) as broker:
        return (await (await broker.queue("jobs")).stats()).pending
