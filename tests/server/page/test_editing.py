"""Another value for a message: one that waits keeps its id, one that has ended goes in again, once."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

import holdfast
from holdfast.errors import ConfigError
from holdfast.server.bodies import unmasked
from tests.server.fixtures import Answer, Http
from tests.servers.serving import ServerThread

FORM = {"Content_Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def place(tmp_path: Any) -> Iterator[tuple[str, Http]]:
    url = f"file://{tmp_path}/store"
    with ServerThread(url, redact=("secret",)) as server:
        yield url, Http(server.address)


async def make(url: str, state: str) -> str:
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs", max_attempts=1)
        id = await queue.enqueue({"n": 1, "secret": "hush"}, headers={"tenant": "42"}, priority=7)
        if state != "pending":
            delivery = await queue.dequeue()
            assert delivery is not None
            if state == "dead":
                await delivery.fail("no")
            elif state == "completed":
                await delivery.complete()
        return id


def test_the_timeline_has_every_attempt(place: tuple[str, Http]) -> None:
    url, http = place

    async def fail() -> str:
        async with holdfast.connect(url) as broker:
            queue = await broker.queue("jobs", max_attempts=3, retry=holdfast.Fixed(0))
            id = await queue.enqueue(1)
            for text in ("first", "second", "third"):
                delivery = await queue.dequeue(wait=5)
                assert delivery is not None
                await delivery.fail(f"{text}\nline")
            return id

    id = asyncio.run(fail())
    page = html.unescape(bytes(http.get(f"/queues/jobs/messages/{id}").body).decode())
    timeline = page.split('<ol class="timeline">')[1].split("</ol>")[0]
    steps = re.findall(r"<b>(.*?)</b></p>(?:<p class=\"small soft\">(.*?)</p>)?", timeline)
    assert [(what.split(" on ")[0], more) for what, more in steps][1:] == [
        ("Attempt 1", "first"),
        ("Attempt 2", "second"),
        ("Attempt 3", steps[3][1]),
        ("Dead", "third"),
    ]
    assert steps[3][1].endswith("after the attempt before")
    assert timeline.count("ran ") == 3
    shown = http.get(f"/api/v1/queues/jobs/messages/{id}").body
    assert [each["error"].split()[0] for each in shown["history"]] == ["first", "second", "third"]


async def records(url: str) -> dict[str, list[Any]]:
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs")
        found = {"ready": await queue.list("ready"), "dead": await queue.dead.list()}
        return {
            name: [(each.id, each.value, each.priority, each.headers) for each in part] for name, part in found.items()
        }


def send(http: Http, id: str, value: Any, **fields: str) -> Answer:
    asked = bytes(http.get(f"/queues/jobs/messages/{id}/edit").body).decode()
    nonce = fields.pop("nonce", None) or re.findall(r'name="nonce" value="([^"]+)"', asked)[0]
    text = value if isinstance(value, str) else json.dumps(value)
    form = urlencode({"value": text, "priority": "9", "nonce": nonce, **fields}).encode()
    return http.ask("POST", f"/queues/jobs/messages/{id}/edit", raw=form, **FORM)


def test_a_waiting_message_is_changed_under_its_id(place: tuple[str, Http]) -> None:
    url, http = place
    id = asyncio.run(make(url, "pending"))
    page = html.unescape(bytes(http.get(f"/queues/jobs/messages/{id}/edit").body).decode())
    assert '"secret": "***"' in page
    assert "hush" not in page
    assert b"It is changed" in send(http, id, {"n": 2, "secret": "***"}).body
    [(found, value, priority, headers)] = asyncio.run(records(url))["ready"]
    assert (found, value, priority, headers) == (id, {"n": 2, "secret": "hush"}, 9, {"tenant": "42"})


@pytest.mark.parametrize("state", ["dead", "completed"])
def test_an_ended_message_goes_in_again_once(place: tuple[str, Http], state: str) -> None:
    url, http = place
    id = asyncio.run(make(url, state))
    nonce = "0123456789abcdef" * 2
    assert b"enqueued as you wrote it" in send(http, id, {"n": 3}, nonce=nonce).body
    again = send(http, id, {"n": 3}, nonce=nonce)
    assert again.status == (404 if state == "dead" else 200)
    found = asyncio.run(records(url))
    [(new, value, priority, headers)] = found["ready"]
    assert new != id
    assert (value, priority, headers) == ({"n": 3}, 9, {"tenant": "42", "replayed_from": id})
    assert found["dead"] == []


def test_what_cannot_be_read_comes_back_and_changes_nothing(place: tuple[str, Http]) -> None:
    url, http = place
    id = asyncio.run(make(url, "dead"))
    for value, fields in (("{broken <b>", {}), ({"n": 1}, {"priority": "999"}), ({"n": 1}, {"nonce": "x"})):
        answer = send(http, id, value, **fields)
        assert answer.status == 422
        assert b"<b>" not in answer.body.replace(b"<b>re", b"")
    assert b"{broken &lt;b&gt;" in send(http, id, "{broken <b>").body
    found = asyncio.run(records(url))
    assert (len(found["dead"]), found["ready"]) == (1, [])


def test_what_a_worker_holds_is_not_edited(place: tuple[str, Http]) -> None:
    url, http = place
    id = asyncio.run(make(url, "processing"))
    assert http.get(f"/queues/jobs/messages/{id}/edit").status == 409
    assert http.get("/queues/jobs/messages/nothing/edit").status == 404


def test_masks_become_what_they_stand_for() -> None:
    before = {"a": [{"secret": 1}], "secret": {"deep": 2}}
    after = {"a": [{"secret": "***", "n": 5}], "secret": "***"}
    assert unmasked(after, before, ("secret",)) == {"a": [{"secret": 1, "n": 5}], "secret": {"deep": 2}}
    assert unmasked({"secret": "new"}, before, ("secret",)) == {"secret": "new"}
    with pytest.raises(ConfigError, match="was not there"):
        unmasked({"b": {"secret": "***"}}, before, ("secret",))
