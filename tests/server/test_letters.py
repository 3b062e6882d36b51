"""Dead letters and the archive over HTTP."""

from __future__ import annotations

import pytest

from tests.server.fixtures import Http


@pytest.mark.parametrize("view", ["dead", "archive"])
def test_pages_replay_delete_and_purge(http: Http, view: str) -> None:
    queue = http.queue(f"of-{view}")
    ids = http.post(f"{queue}/messages", {"messages": [{"value": n} for n in range(5)]}).body["ids"]
    held = http.post(f"{queue}/claims", {"limit": 10}).body["deliveries"]
    outcome = "kill" if view == "dead" else "complete"
    http.post(f"{queue}/settlements", {"settlements": [{"receipt": d["receipt"], "outcome": outcome} for d in held]})
    first = http.get(f"{queue}/{view}?limit=3").body
    rest = http.get(f"{queue}/{view}?limit=3&after={first['next']}").body
    assert [each["id"] for each in first["messages"] + rest["messages"]] == ids
    assert rest["next"] is None
    assert http.post(f"{queue}/{view}/delete", {"ids": ids[:1]}).body == {"count": 1}
    assert http.post(f"{queue}/{view}/replay", {"ids": ids[1:2]}).body == {"count": 1}
    assert http.post(f"{queue}/{view}/delete", {}).status == 422
    left = len(http.get(f"{queue}/{view}").body["messages"])
    assert http.post(f"{queue}/{view}/purge").body == {"count": left}
    assert http.get(f"{queue}/{view}").body["messages"] == []
    assert http.get(f"{queue}/{view}?limit=1001").status == 422


def test_a_queue_may_be_called_dead(http: Http) -> None:
    queue = http.queue("dead")
    assert http.get(f"{queue}/archive").body == {"messages": [], "next": None}
    assert http.post(f"{queue}/archive/replay", {}).body == {"count": 0}
    assert http.post(f"{queue}/dead/replay", {"since": "2020-01-01T00:00:00Z"}).status == 422


def test_a_page_begins_behind_an_id(http: Http) -> None:
    path = http.queue("pages")
    for view in ("dead", "archive"):
        for after in ("x", "", "%00", "00000000-0000-0000-0000-000000000000"):
            assert http.get(f"{path}/{view}?after={after}").status == 422, (view, after)
