"""Queues over HTTP."""

from __future__ import annotations

from tests.server.fixtures import Http


def test_queues_are_made_changed_listed_and_deleted(http: Http) -> None:
    queue = http.queue("emails", lease=60)
    assert http.ask("PUT", queue, {"max_attempts": 7}).body["options"]["lease"] == 60
    report = http.get(queue).body
    assert (report["name"], report["options"]["max_attempts"], report["stats"]["total"]) == ("emails", 7, 0)
    assert "emails" in [each["name"] for each in http.get("/api/v1/queues").body]
    http.post(f"{queue}/messages", {"value": 1})
    assert http.get("/api/v1/stats").body["emails"]["pending"] == 1
    refused = http.ask("DELETE", queue)
    assert (refused.status, refused.body["type"]) == (409, "QueueNotEmpty")
    assert http.ask("DELETE", f"{queue}?force=true").status == 200
    gone = http.get(queue)
    assert (gone.status, gone.body["type"]) == (404, "QueueNotFound")
    assert http.ask("DELETE", queue).status == 404
    assert http.post(f"{queue}/messages", {"value": 1}).status == 404


def test_options_are_checked(http: Http) -> None:
    for options in ({"leese": 1}, {"lease": "x"}, {"create": True}, {"type": "int"}, {"shards": 0}):
        answer = http.ask("PUT", "/api/v1/queues/checked", options)
        assert (answer.status, answer.body["type"]) == (422, "ConfigError"), options
    assert http.ask("PUT", "/api/v1/queues/-bad", {}).status == 422


def test_pause_resume_purge_and_cleanup(http: Http) -> None:
    queue = http.queue("tidy")
    http.post(f"{queue}/messages", {"messages": [{"value": 1}, {"value": 2}]})
    assert http.post(f"{queue}/pause").status == 200
    assert http.get(queue).body["paused"] is True
    assert http.post(f"{queue}/claims").body == {"deliveries": []}
    http.post(f"{queue}/resume")
    [held] = http.post(f"{queue}/claims").body["deliveries"]
    http.post(f"{queue}/settlements", {"settlements": [{"receipt": held["receipt"]}]})
    assert http.post(f"{queue}/purge").body == {"count": 1}
    assert http.post(f"{queue}/cleanup").body == {"count": 1}
    assert http.get(queue).body["stats"]["total"] == 0


def test_a_full_queue_says_when_to_come_again(http: Http) -> None:
    queue = http.queue("full", max_messages=1)
    assert http.post(f"{queue}/messages", {"value": 1}).status == 201
    answer = http.post(f"{queue}/messages", {"value": 2})
    assert (answer.status, answer.body["type"]) == (429, "QueueFull")
    assert int(answer.headers["retry-after"]) > 0


def test_doctor_and_consumers(http: Http) -> None:
    assert {each["state"] for each in http.get("/api/v1/doctor").body} <= {"ok", "warn"}
    assert http.get("/api/v1/consumers").body == []
