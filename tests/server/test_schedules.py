"""Schedules over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

ALL = "/api/v1/schedules"


def instant(hours: float) -> str:
    return (datetime.now(UTC) + timedelta(hours=hours)).isoformat()


def test_a_schedule_is_made_changed_listed_and_deleted(http: Http) -> None:
    http.queue("reports")
    said = {"queue": "reports", "value": {"secret": 1, "kind": "daily"}, "cron": "0 7 * * *", "tz": "Europe/Berlin"}
    made = http.ask("PUT", f"{ALL}/daily", said)
    assert made.status == 200, made.body
    assert (made.body["name"], made.body["cron"], made.body["tz"]) == ("daily", "0 7 * * *", "Europe/Berlin")
    assert made.body["value"] == {"secret": "***", "kind": "daily"}
    assert datetime.fromisoformat(made.body["next_slot"]) > datetime.now(UTC)
    changed = http.ask("PUT", f"{ALL}/daily", {**said, "cron": None, "tz": "UTC", "every": 60, "missed": "all"})
    assert changed.status == 200, changed.body
    assert (changed.body["every"], changed.body["cron"], changed.body["missed"]) == (60, None, "all")
    assert changed.body["created_at"] == made.body["created_at"]
    assert [each["name"] for each in http.get(ALL).body] == ["daily"]
    assert http.get(f"{ALL}/daily").body == changed.body
    assert http.ask("DELETE", f"{ALL}/daily").body == {"count": 1}
    assert http.get(ALL).body == []
    for answer in (http.get(f"{ALL}/daily"), http.ask("DELETE", f"{ALL}/daily"), http.post(f"{ALL}/daily/trigger")):
        assert (answer.status, answer.body["type"]) == (404, "ScheduleNotFound")


def test_a_schedule_is_paused_resumed_triggered_and_backfilled(http: Http) -> None:
    queue = http.queue("beats")
    http.ask("PUT", f"{ALL}/beat", {"queue": "beats", "value": 1, "every": 3600, "headers": {"a": "b"}})
    paused = http.post(f"{ALL}/beat/pause", {"until": instant(1)}).body
    assert (paused["paused"], paused["paused_until"] is not None) == (True, True)
    assert http.post(f"{ALL}/beat/pause").body["paused_until"] is None
    assert http.post(f"{ALL}/beat/resume").body["paused"] is False
    triggered = http.post(f"{ALL}/beat/trigger")
    assert triggered.status == 201
    [id] = triggered.body["ids"]
    assert http.get(f"{queue}/messages/{id}").body["headers"]["a"] == "b"
    span = {"since": instant(-3.5), "until": instant(-0.5)}
    filled = http.post(f"{ALL}/beat/backfill", span)
    assert (filled.status, len(filled.body["ids"])) == (201, 3)
    assert http.post(f"{ALL}/beat/backfill", span).body == filled.body
    assert http.get(queue).body["stats"]["pending"] == 4


def test_what_cannot_be_a_schedule_is_refused_and_nothing_is_changed(http: Http) -> None:
    http.queue("checked")
    for said in (
        {},
        {"queue": "checked"},
        {"queue": "checked", "cron": "61 * * * *"},
        {"queue": "checked", "cron": "* * * * *", "every": 5},
        {"queue": "checked", "every": 0},
        {"queue": "checked", "every": 60, "tz": "Moon/Sea"},
        {"queue": "checked", "every": 60, "start": "2026-01-01T00:00:00"},
        {"queue": "checked", "every": 60, "name": "other"},
        {"queue": "checked", "every": 60, "priority": 256},
    ):
        answer = http.ask("PUT", f"{ALL}/bad", said)
        assert answer.status == 422, (said, answer.body)
    answer = http.ask("PUT", f"{ALL}/bad", {"queue": "nowhere", "every": 60})
    assert (answer.status, answer.body["type"]) == (404, "QueueNotFound")
    assert http.get(f"{ALL}/bad").status == 404
    http.ask("PUT", f"{ALL}/good", {"queue": "checked", "every": 60})
    for span in ({}, {"since": instant(-1)}, {"since": instant(1), "until": instant(2)}, {"since": "x", "until": "y"}):
        assert http.post(f"{ALL}/good/backfill", span).status == 422, span
    http.queue("others")
    taken = http.ask("PUT", f"{ALL}/good", {"queue": "others", "every": 60})
    assert 400 <= taken.status < 500
    assert http.get(f"{ALL}/good").body["queue"] == "checked"


def test_roles_and_queues_of_a_token_count() -> None:
    tokens = ("a:admin:" + "a" * 20, "m:admin:mine*:" + "m" * 20, "r:read:" + "r" * 20)
    with ServerThread("memory://", tokens=tokens) as server:
        admin, mine, reader = (Http(server.address, authorization=f"Bearer {each * 20}") for each in "amr")
        for queue in ("mine", "theirs"):
            admin.queue(queue)
            assert admin.ask("PUT", f"{ALL}/of-{queue}", {"queue": queue, "every": 60, "value": 5}).status == 200
        assert [each["name"] for each in mine.get(ALL).body] == ["of-mine"]
        for answer in (
            mine.get(f"{ALL}/of-theirs"),
            mine.ask("PUT", f"{ALL}/new", {"queue": "theirs", "every": 60}),
            mine.ask("DELETE", f"{ALL}/of-theirs"),
            mine.post(f"{ALL}/of-theirs/trigger"),
            reader.post(f"{ALL}/of-mine/pause"),
            reader.ask("PUT", f"{ALL}/of-mine", {"queue": "mine", "every": 60}),
        ):
            assert answer.status == 403, answer.body
        assert mine.post(f"{ALL}/of-mine/trigger").status == 201
        seen = reader.get(f"{ALL}/of-mine").body
        assert "value" not in seen
        assert "headers" not in seen
        assert Http(server.address).get(ALL).status == 401
