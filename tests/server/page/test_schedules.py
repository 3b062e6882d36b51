"""A schedule on the page: past slots are shown before they are enqueued, and it is deleted after a question."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest

from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

FORM = {"Content_Type": "application/x-www-form-urlencoded"}


def posted(http: Http, path: str, **fields: str) -> tuple[int, str]:
    body = "&".join(f"{name}={quote(value)}" for name, value in fields.items()).encode()
    answer = http.ask("POST", path, raw=body, **FORM)
    return answer.status, bytes(answer.body).decode() if isinstance(answer.body, bytes) else ""


def shown(http: Http, path: str, status: int = 200) -> str:
    answer = http.get(path)
    assert answer.status == status
    return bytes(answer.body).decode()


@pytest.fixture(scope="module")
def http(server: ServerThread) -> Http:
    made = Http(server.address)
    made.queue("reports")
    for name in ("hourly", "gone"):
        said = {"queue": "reports", "value": 1, "cron": "0 * * * *"}
        assert made.ask("PUT", f"/api/v1/schedules/{name}", said).status == 200
    return made


def test_past_slots_are_shown_and_then_enqueued_once(http: Http) -> None:
    assert "nothing has happened yet" in shown(http, "/schedules/hourly?ask=backfill")
    end = datetime.now(UTC).replace(minute=30, second=0, microsecond=0) - timedelta(hours=2)
    span = {"since": (end - timedelta(hours=7)).isoformat(), "until": end.isoformat()}
    query = "&".join(f"{name}={quote(value)}" for name, value in span.items())
    asked = shown(http, f"/schedules/hourly?ask=backfill&{query}")
    assert "Enqueue 7 past slots?" in asked
    assert "and 2 more" in asked
    before = http.get("/api/v1/queues/reports").body["stats"]["pending"]
    for _ in range(2):  # a repeat adds nothing
        status, page = posted(http, "/schedules/hourly/backfill", **span)
        assert status == 200
        assert "7 slots have their messages now." in page
        assert http.get("/api/v1/queues/reports").body["stats"]["pending"] == before + 7
    assert "POST /schedules/hourly/backfill" in shown(http, "/audit")


@pytest.mark.parametrize(
    "query",
    [
        "since=2026-01-02T00:00&until=2026-01-01T00:00",
        "since=2026-01-01T00:00&until=2999-01-01T00:00",
        "since=2026-01-01T00:00",
        "since=odd&until=2026-01-01T00:00",
        "since=1990-01-01T00:00&until=2026-01-01T00:00",
    ],
)
def test_what_is_no_span_is_said(http: Http, query: str) -> None:
    shown(http, f"/schedules/hourly?ask=backfill&{query}", status=422)


def test_it_is_deleted_after_a_question(http: Http) -> None:
    assert "Delete gone?" in shown(http, "/schedules/gone?ask=delete")
    assert http.get("/api/v1/schedules/gone").status == 200
    status, page = posted(http, "/schedules/gone/delete")
    assert status == 200
    assert "The schedule is deleted" in page
    assert http.get("/api/v1/schedules/gone").status == 404
    assert shown(http, "/schedules/gone", status=404)
