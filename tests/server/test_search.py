"""Messages by text, header and time: what fits, what is hidden, and how far a look comes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

import holdfast
from holdfast.errors import ConfigError
from holdfast.server import search
from holdfast.server.search import Wanted, instant, is_wanted
from holdfast.stores.records import Stored
from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

READ = ("reader:read:read-token-0123456789", "admin:admin:admin-token-0123456789")


def stored(payload: bytes, **more: Any) -> Stored:
    terms = {"headers": {"tenant": "42"}, "enqueued_at": 1000.0, **more}
    return Stored(id="x", status="pending", payload=payload, content_type="application/json", priority=0, attempts=0,
                  max_attempts=3, **terms)  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (Wanted(), True),
        (Wanted("müller"), True),
        (Wanted("Escaped Ü"), True),
        (Wanted("declined"), True),
        (Wanted("nobody"), False),
        (Wanted("hush"), False),  # hidden
        (Wanted(headers=(("tenant", "42"),)), True),
        (Wanted(headers=(("tenant", "4"),)), False),
        (Wanted(headers=(("tenant", "42"), ("other", "1"))), False),
        (Wanted(since=datetime.fromtimestamp(1000, UTC), until=datetime.fromtimestamp(1000, UTC)), True),
        (Wanted(since=datetime.fromtimestamp(1001, UTC)), False),
        (Wanted(until=datetime.fromtimestamp(999, UTC)), False),
        (Wanted("müller", (("tenant", "43"),)), False),
    ],
)
def test_what_fits(wanted: Wanted, fits: bool) -> None:
    one = stored('{"to": "Müller", "more": "escaped \\u00dc", "secret": "hush"}'.encode(), error="CardError: Declined")
    assert is_wanted(one, wanted, ("secret",)) is fits


def test_a_hidden_header_is_not_found() -> None:
    assert not is_wanted(stored(b"1"), Wanted(headers=(("tenant", "42"),)), ("tenant",))


def test_what_has_ended_is_found_by_its_end() -> None:
    assert is_wanted(stored(b"1", finished_at=2000.0), Wanted(since=datetime.fromtimestamp(1500, UTC)))


def test_instants() -> None:
    assert instant("since", "") is None
    assert instant("since", "2026-11-18T09:30") == datetime(2026, 11, 18, 9, 30, tzinfo=UTC)
    assert instant("since", "2026-11-18T09:30:00+02:00") == datetime(2026, 11, 18, 7, 30, tzinfo=UTC)
    with pytest.raises(ConfigError, match="since: an instant"):
        instant("since", "soon")


async def test_a_look_ends_and_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "LOOKED_AT", 2000)
    async with holdfast.connect("memory://") as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue_many([{"n": number} for number in range(3500)])
        first = await search.look(broker.store, "jobs", "ready", Wanted('"n":3'))
        assert (first.scanned, len(first.messages)) == (2000, 111)  # 3, 30 to 39, 300 to 399
        assert first.next is not None
        rest = await search.look(broker.store, "jobs", "ready", Wanted('"n":3'), after=first.next)
        assert (rest.scanned, len(rest.messages), rest.next) == (1500, 500, None)
        some = await search.look(broker.store, "jobs", "ready", Wanted('"n":3'), limit=5)
        assert (len(some.messages), some.scanned) == (5, 34)
        assert some.next == some.messages[-1].id
        plain = await search.look(broker.store, "jobs", "ready", Wanted(), limit=50)
        assert (len(plain.messages), plain.scanned) == (50, 50)


async def test_a_look_gives_up_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "LOOKING_S", -1.0)
    async with holdfast.connect("memory://") as broker:
        queue = await broker.queue("jobs")
        ids = await queue.enqueue_many([1, 2, 3])
        looked = await search.look(broker.store, "jobs", "ready", Wanted("nothing"))
        assert (looked.messages, looked.scanned, looked.next) == ([], 1, ids[0])


def test_the_api_searches(http: Http) -> None:
    path = http.queue("searched", max_attempts=1)
    for number in range(4):
        http.post(
            f"{path}/messages", {"value": {"n": number, "secret": "hush"}, "headers": {"tenant": str(number % 2)}}
        )
    found = http.get(f"{path}/messages?header.tenant=1&limit=1").body
    assert [each["value"]["n"] for each in found["messages"]] == [1]
    assert found["scanned"] == 2
    rest = http.get(f"{path}/messages?header.tenant=1&after={found['next']}").body
    assert ([each["value"]["n"] for each in rest["messages"]], rest["next"], rest["scanned"]) == ([3], None, 2)
    assert http.get(f"{path}/messages?text=hush").body["messages"] == []
    [held] = http.post(f"{path}/claims", {}).body["deliveries"]
    http.post(
        f"{path}/settlements", {"settlements": [{"receipt": held["receipt"], "outcome": "kill", "reason": "Odd"}]}
    )
    assert len(http.get(f"{path}/dead?text=odd").body["messages"]) == 1
    soon = quote(datetime.now(UTC).isoformat())
    assert http.get(f"{path}/messages?since={soon}").body["messages"] == []
    assert len(http.get(f"{path}/messages?until={soon}").body["messages"]) == 3
    assert "scanned" not in http.get(f"{path}/messages").body
    for bad in ("since=soon", "text=x&after=nothing"):
        assert http.get(f"{path}/messages?{bad}").status == 422


def test_contents_are_not_searched_for_those_who_may_not_see_them(tmp_path: Any) -> None:
    url = f"file://{tmp_path}/store"

    async def fill() -> None:
        async with holdfast.connect(url) as broker:
            await (await broker.queue("jobs")).enqueue({"to": "somebody"}, headers={"tenant": "42"})

    asyncio.run(fill())
    with ServerThread(url, tokens=READ) as server:
        reader = Http(server.address, Authorization="Bearer read-token-0123456789")
        for path in ("/api/v1/queues/jobs/messages", "/queues/jobs/messages"):
            assert reader.get(f"{path}?text=somebody").status == 403
            assert reader.get(f"{path}?until=2999-01-01").status == 200
        assert reader.get("/api/v1/queues/jobs/messages?header.tenant=42").status == 403
        assert reader.get("/queues/jobs/messages?header=tenant%3D42").status == 403
