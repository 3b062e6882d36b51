"""Dead letters by reason: counted, shown before anything happens, replayed and deleted as they were counted."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from urllib.parse import urlencode

import pytest

import holdfast
from holdfast.causes import cause
from tests.server.fixtures import Http
from tests.server.page.conftest import Told
from tests.server.page.story import ERROR, TRACE
from tests.servers.serving import ServerThread

FORM = {"Content_Type": "application/x-www-form-urlencoded"}


def test_a_reason_is_counted_previewed_and_replayed(told: Told) -> None:
    page = bytes(told.http.get("/dead").body).decode()
    assert "15 dead letters, 2 reasons" in page
    card, other = cause(ERROR.format(1)).fingerprint, cause(TRACE).fingerprint
    asked = bytes(told.http.get(f"/dead/payments/{card}?ask=replay").body).decode()
    assert "Replay 12 messages?" in asked
    until = re.findall(r'name="until" value="([^"]+)"', asked)[0]
    assert asyncio.run(_dead(told.url)) == 15  # nothing has happened yet
    for bad in ("", "soon", "2026-01-01T00:00:00"):
        answer = told.http.ask("POST", f"/dead/payments/{card}/replay", raw=urlencode({"until": bad}).encode(), **FORM)
        assert answer.status == 422
    early = urlencode({"until": "2020-01-01T00:00:00+00:00"}).encode()
    assert told.http.ask("POST", f"/dead/payments/{card}/delete", raw=early, **FORM).status == 404
    assert asyncio.run(_dead(told.url)) == 15
    done = told.http.ask("POST", f"/dead/payments/{card}/replay", raw=urlencode({"until": until}).encode(), **FORM)
    assert b"12 messages went back" in done.body
    late = urlencode({"until": "2999-01-01T00:00:00+00:00"}).encode()
    done = told.http.ask("POST", f"/dead/payments/{other}/delete", raw=late, **FORM)
    assert b"3 messages deleted" in done.body
    assert asyncio.run(_dead(told.url)) == 0
    assert b"nothing has failed for good" in told.http.get("/dead").body


async def _dead(url: str) -> int:
    async with holdfast.connect(url) as broker:
        return (await (await broker.queue("payments")).stats()).dead


def test_many_queues_and_reasons_are_not_all_on_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.page.letters.LOOKING_S", 60.0)  # a busy machine reads fewer in a second

    async def fill(broker: holdfast.Broker) -> None:
        for number in range(60):
            queue: holdfast.Queue[Any] = await broker.queue(f"tenant-{number:02d}", max_attempts=1)
            await queue.enqueue(number)
            for each in await queue.dequeue_many(1):
                await each.fail("ValueError: nothing")

    with ServerThread("memory://") as server:
        server.inside(fill(server.serving.application.served[""].broker))
        page = bytes(Http(server.address).get("/dead").body).decode()
        assert "60 dead letters, 60 reasons" in page
        assert "the 50 reasons with the most letters, of 60" in page
        assert "40 other queues" in page
        assert page.count("<article") == 50
        chosen = bytes(Http(server.address).get("/dead?queue=tenant-59").body).decode()
        assert "1 dead letter, 1 reason" in chosen
        assert chosen.count("<article") == 1
