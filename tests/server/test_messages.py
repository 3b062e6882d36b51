"""Messages over HTTP: in, out, settled, looked up; the same queue from Python."""

from __future__ import annotations

import base64
import threading
import time

import msgspec
import pytest

import holdfast
from tests.server.fixtures import Http, packed
from tests.servers.serving import ServerThread


def test_a_message_goes_in_and_comes_out(http: Http) -> None:
    queue = http.queue("whole")
    [id] = http.post(f"{queue}/messages", {"value": {"to": "a"}, "priority": 5, "headers": {"k": "v"}}).body["ids"]
    [held] = http.post(f"{queue}/claims", {"limit": 10, "lease": 60, "wait": 1}).body["deliveries"]
    assert (held["id"], held["value"], held["priority"], held["attempt"]) == (id, {"to": "a"}, 5, 1)
    assert held["headers"] == {"k": "v"}
    done = {"receipt": held["receipt"], "outcome": "complete", "result": {"sent": True}}
    assert http.post(f"{queue}/settlements", {"settlements": [done]}).body == {"results": [{"ok": True}]}
    record = http.get(f"{queue}/messages/{id}").body
    assert (record["status"], record["result"], record["attempts"]) == ("completed", {"sent": True}, 1)


def test_a_key_that_holds_until_the_message_ends(http: Http) -> None:
    queue = http.queue("unique")
    sent = {"value": 1, "dedup_key": "k", "dedup": "alive"}
    answer = http.post(f"{queue}/messages", {**sent, "report": True}).body
    [id] = answer["ids"]
    assert answer["enqueued"] == [{"id": id, "new": True, "replaced": False}]
    assert http.post(f"{queue}/messages", sent).body == {"ids": [id]}
    again = http.post(f"{queue}/messages", {**sent, "value": 2, "replace": True, "priority": 3, "report": True}).body
    assert again["enqueued"] == [{"id": id, "new": False, "replaced": True}]
    [held] = http.post(f"{queue}/claims", {"wait": 5}).body["deliveries"]
    assert (held["id"], held["value"], held["priority"]) == (id, 2, 3)
    many = {"messages": [{"value": 1, "dedup_key": "w"}, {"value": 2, "dedup_key": "w"}], "report": True}
    assert [each["new"] for each in http.post(f"{queue}/messages", many).body["enqueued"]] == [True, False]


def test_bad_ways_to_hold_a_key_are_refused(http: Http) -> None:
    queue = http.queue("refused")
    for bad in (
        {"value": 1, "dedup": "alive"},
        {"value": 1, "dedup": "for ever", "dedup_key": "k"},
        {"value": 1, "dedup_key": "k", "replace": True},
        {"messages": [{"value": 1, "dedup_key": "a"}, {"value": 1, "dedup_key": "b"}], "dedup": "alive"},
    ):
        assert http.post(f"{queue}/messages", bad).status in (400, 422), bad
    assert http.get(queue).body["stats"]["total"] == 0


def test_curl_and_python_share_a_queue(http: Http, server: ServerThread) -> None:
    queue = http.queue("shared")
    http.post(f"{queue}/messages", {"value": [1, 2]})
    with holdfast.sync.connect(server.address) as broker:
        shared = broker.queue("shared")
        delivery = shared.dequeue(wait=5)
        assert delivery is not None
        assert delivery.value == [1, 2]
        shared.enqueue({"from": "python"})
        receipt = delivery.receipt
    [held] = http.post(f"{queue}/claims", {"wait": 5}).body["deliveries"]
    assert held["value"] == {"from": "python"}
    settled = http.post(f"{queue}/settlements", {"settlements": [{"receipt": receipt}]}).body
    assert settled == {"results": [{"ok": True}]}


def test_bytes_are_base64_in_json_and_bytes_in_msgpack(http: Http) -> None:
    queue = http.queue("bytes")
    encoded = base64.b64encode(b"\x00\xff").decode()
    assert http.post(f"{queue}/messages", {"payload": encoded, "content_type": "image/png"}).status == 201
    body = msgspec.msgpack.encode({"messages": [{"payload": b"\x01\xfe"}]})
    answer = http.ask(
        "POST", f"{queue}/messages", raw=body, content_type="application/msgpack", accept="application/msgpack"
    )
    assert len(msgspec.msgpack.decode(answer.body)["ids"]) == 1
    [one, two] = http.post(f"{queue}/claims", {"limit": 2}).body["deliveries"]
    assert (one["payload"], one["content_type"]) == (encoded, "image/png")
    assert base64.b64decode(two["payload"]) == b"\x01\xfe"
    record = http.get(f"{queue}/messages/{two['id']}", accept="application/msgpack")
    assert msgspec.msgpack.decode(record.body)["payload"] == b"\x01\xfe"


def test_a_batch_is_all_or_nothing_and_names_the_bad_one(http: Http) -> None:
    queue = http.queue("batch", max_message_size=100)
    bad = http.post(f"{queue}/messages", {"messages": [{"value": 1}, {"value": "x" * 200}]})
    assert (bad.status, bad.body["type"], bad.body["index"]) == (413, "MessageTooLarge", 1)
    assert bad.headers["content-type"] == "application/problem+json"
    assert http.get(queue).body["stats"]["total"] == 0
    assert len(http.post(f"{queue}/messages", {"messages": [{"value": n} for n in range(50)]}).body["ids"]) == 50


def test_the_same_idempotency_key_adds_once(http: Http) -> None:
    queue = http.queue("once")
    body = {"messages": [{"value": 1}, {"value": 2, "priority": 3}]}
    first = http.post(f"{queue}/messages", body, Idempotency_Key="k-1")
    assert http.post(f"{queue}/messages", body, Idempotency_Key="k-1").body == first.body
    other = http.post(f"{queue}/messages", {"value": 1}, Idempotency_Key="k-1")
    assert (other.status, other.body["type"]) == (422, "ConfigError")
    assert http.get(queue).body["stats"]["total"] == 2
    assert http.post(f"{queue}/messages", body, Idempotency_Key="x" * 300).status == 422


def test_gzip_bodies_are_read(http: Http) -> None:
    queue = http.queue("packed")
    answer = http.ask("POST", f"{queue}/messages", raw=packed({"value": "z"}), content_encoding="gzip")
    assert answer.status == 201
    assert http.ask("POST", f"{queue}/messages", raw=b"no gzip", content_encoding="gzip").status == 400
    assert http.ask("POST", f"{queue}/messages", raw=b"", content_encoding="br").status == 415


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ({"outcome": "fail", "error": "no", "retry_in": 60}, "retry"),
        ({"outcome": "kill", "reason": "never"}, "dead"),
        ({"outcome": "release", "delay": 0}, "pending"),
        ({"outcome": "extend", "seconds": 120}, "processing"),
        ({"outcome": "complete", "keep": False}, None),
    ],
)
def test_every_outcome(http: Http, outcome: dict[str, object], status: str | None) -> None:
    queue = http.queue(f"outcome-{outcome['outcome']}")
    [id] = http.post(f"{queue}/messages", {"value": 1}).body["ids"]
    [held] = http.post(f"{queue}/claims").body["deliveries"]
    answer = http.post(f"{queue}/settlements", {"settlements": [{"receipt": held["receipt"], **outcome}]}).body
    assert answer["results"][0]["ok"] is True
    found = http.get(f"{queue}/messages/{id}")
    assert found.body.get("status") == (status or 404)


def test_settlements_have_an_answer_each(http: Http) -> None:
    queue = http.queue("each")
    http.post(f"{queue}/messages", {"messages": [{"value": 1}, {"value": 2}]})
    one, two = http.post(f"{queue}/claims", {"limit": 2}).body["deliveries"]
    given = [
        {"receipt": one["receipt"]},
        {"receipt": "no receipt"},
        {"receipt": two["receipt"], "outcome": "kill", "reason": "bad"},
        {"receipt": two["receipt"], "outcome": "extend", "seconds": 5},
    ]
    results = http.post(f"{queue}/settlements", {"settlements": given}).body["results"]
    assert [each["ok"] for each in results] == [True, False, True, False]
    assert [each.get("error") for each in results] == [None, "LeaseLost", None, "LeaseLost"]
    bad = http.post(f"{queue}/settlements", {"settlements": [{"receipt": "x", "outcome": "extend"}]})
    assert (bad.status, bad.body["index"]) == (422, 0)


def test_a_waiting_claim_hears_of_a_message(http: Http) -> None:
    queue = http.queue("poll")
    sender = threading.Timer(0.3, lambda: http.post(f"{queue}/messages", {"value": "late"}))
    sender.start()
    began = time.monotonic()
    [held] = http.post(f"{queue}/claims", {"wait": 20}).body["deliveries"]
    assert held["value"] == "late"
    assert time.monotonic() - began < 15
    sender.join()
    assert http.post(f"{queue}/claims", {"wait": 0.05}).body == {"deliveries": []}


def test_waiting_for_the_end_of_a_message(http: Http) -> None:
    queue = http.queue("ends")
    [id] = http.post(f"{queue}/messages", {"value": 1}).body["ids"]
    assert http.get(f"{queue}/messages/{id}?wait=0.05").body["status"] == "pending"
    assert http.post(f"{queue}/messages/{id}/cancel").body == {"count": 1}
    record = http.get(f"{queue}/messages/{id}?wait=20").body
    assert (record["status"], record["error"]) == ("failed", "cancelled")
    assert http.post(f"{queue}/messages/{id}/replay").body == {"count": 1}
    assert http.post(f"{queue}/messages/{id}/replay").body == {"count": 0}


def test_fields_are_masked_wherever_they_lie(http: Http) -> None:
    queue = http.queue("masked")
    value = {"a": [{"secret": 1, "open": 2}]}
    [id] = http.post(f"{queue}/messages", {"value": value, "headers": {"secret": "s", "b": "c"}}).body["ids"]
    record = http.get(f"{queue}/messages/{id}").body
    assert record["value"] == {"a": [{"secret": "***", "open": 2}]}
    assert record["headers"] == {"secret": "***", "b": "c"}
    [held] = http.post(f"{queue}/claims").body["deliveries"]
    assert held["value"] == value, "whoever works on it needs it"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"value": 1, "payload": "aGk="},
        {"value": 1, "content_type": "a/b"},
        {"value": 1, "priority": 256},
        {"value": 1, "delay": -1},
        {"value": 1, "expires": 0},
        {"value": 1, "expires": "2030-01-01T00:00:00"},
        {"value": 1, "expires": "soon"},
        {"value": 1, "unknown": 1},
        {"value": 1, "messages": []},
        {"value": 1, "at": "2030-01-01T00:00:00"},
        {"payload": "no base64!"},
        [1],
        "text",
    ],
)
def test_bad_messages_are_refused(http: Http, body: object) -> None:
    queue = http.queue("bad")
    answer = http.ask("POST", f"{queue}/messages", body)
    assert answer.status == 422, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    assert http.get(queue).body["stats"]["total"] == 0


def test_messages_expire(http: Http) -> None:
    queue = http.queue("expiring")
    terms: list[dict[str, object]] = [
        {"expires": 60},
        {"expires": "2100-01-31T12:00:00Z"},
        {"expires": "2001-01-31T12:00:00Z"},
    ]
    ids = http.post(f"{queue}/messages", {"messages": [{"value": 1, **each} for each in terms]}).body["ids"]
    held = http.post(f"{queue}/claims", {"limit": 3}).body["deliveries"]
    assert [one["id"] for one in held] == ids[:2]
    assert [one["expires"] is None for one in held] == [False, False]
    assert held[1]["expires"] == "2100-01-31T12:00:00Z"
    assert http.get(f"{queue}/messages/{ids[1]}").body["expires"] == "2100-01-31T12:00:00Z"
    gone = http.get(f"{queue}/messages/{ids[2]}").body
    assert (gone["status"], gone["error"]) == ("failed", "expired")


def test_what_waits_is_listed_page_by_page(http: Http) -> None:
    queue = http.queue("listed")
    ids = http.post(f"{queue}/messages", {"messages": [{"value": n} for n in range(3)]}).body["ids"]
    [later] = http.post(f"{queue}/messages", {"value": "later", "delay": 60}).body["ids"]
    first = http.get(f"{queue}/messages?limit=2").body
    assert ([one["id"] for one in first["messages"]], first["next"]) == (ids[:2], ids[1])
    rest = http.get(f"{queue}/messages?state=ready&limit=2&after={first['next']}").body
    assert ([one["value"] for one in rest["messages"]], rest["next"]) == ([2], None)
    [delayed] = http.get(f"{queue}/messages?state=delayed").body["messages"]
    assert (delayed["id"], delayed["status"]) == (later, "delayed")
    assert http.get(f"{queue}/messages?state=nothing").status in (400, 422)
    assert http.get(f"{queue}/messages?after=x").status == 422


def test_messages_are_changed_and_taken_back(http: Http) -> None:
    queue = http.queue("operated")
    [id] = http.post(f"{queue}/messages", {"value": 1, "delay": 60}).body["ids"]
    said = {"value": {"n": 2}, "priority": 9, "delay": 0}
    assert http.post(f"{queue}/messages/{id}/change", said).body == {"count": 1}
    [held] = http.post(f"{queue}/claims", {"lease": 60, "wait": 5}).body["deliveries"]
    assert (held["id"], held["value"], held["priority"]) == (id, {"n": 2}, 9)
    assert http.post(f"{queue}/messages/{id}/change", {"priority": 1}).body == {"count": 0}
    assert http.post(f"{queue}/messages/{id}/change", {}).status == 422
    assert http.post(f"{queue}/messages/{id}/change", {"prioriti": 1}).status in (400, 422)
    assert http.post(f"{queue}/messages/{id}/take-back", {}).body == {"count": 1}
    late = {"settlements": [{"receipt": held["receipt"], "outcome": "complete"}]}
    assert http.post(f"{queue}/settlements", late).body == {"results": [{"ok": False, "error": "LeaseLost"}]}
    assert http.post(f"{queue}/claims", {"lease": 60, "wait": 5}).body["deliveries"][0]["attempt"] == 2
    assert http.post(f"{queue}/messages/{id}/cancel?running=true", {}).body == {"count": 1}
    assert http.get(f"{queue}/messages/{id}").body["status"] == "failed"
