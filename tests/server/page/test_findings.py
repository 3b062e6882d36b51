"""Problems first: what, since when, what is usual, and what to press."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import holdfast
from holdfast.causes import cause
from holdfast.config import QueueOptions
from holdfast.queue_reports import QueueReport
from holdfast.server.deaths import Deaths, DeathWatch, deaths_of
from holdfast.server.history import History, Timing
from holdfast.server.page import findings
from holdfast.server.page.findings import Known
from holdfast.stores.records import Stats, Stored
from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

NOW = datetime(2026, 11, 18, 13, 16, tzinfo=UTC)


def report(**counts: Any) -> QueueReport:
    return QueueReport("emails", False, NOW, QueueOptions(), Stats(**counts))


def dead(minutes: float, error: str) -> Stored:
    at = NOW.timestamp() - 60 * minutes
    return Stored("id", "dead", b"1", "application/json", None, 0, 1, 1, at - 1, finished_at=at, error=error)


def test_who_waits_is_told_with_what_is_usual_and_since_when_nobody_works() -> None:
    one = report(pending=1204, oldest_age=840.0)
    [plain] = findings.of([one])
    assert (plain.tone, plain.what) == ("bad", "oldest waiting 14 min")
    assert plain.more == "1,204 ready, nobody holds one."
    known = Known(usual_oldest=2.0, quiet_since=NOW - timedelta(minutes=14), has_worker=False)
    [full] = findings.of([one], {"emails": known}, NOW)
    assert full.what == "oldest waiting 14 min (usual 2 s)"
    assert full.more == "1,204 ready, no worker since 13:02."
    assert [(each.word, each.path) for each in full.buttons] == [("Look", "/queues/emails"), ("Workers", "/workers")]
    [alive] = findings.of([one], {"emails": Known(has_worker=True, quiet_since=NOW - timedelta(days=1))}, NOW)
    assert alive.more == "1,204 ready, nobody holds one since 2026-11-17 13:16."


def test_deaths_have_their_reason_and_a_button_that_says_how_many() -> None:
    letters = [dead(35 - minute, f"CardError: declined {minute}") for minute in range(34)]
    letters += [dead(300, "CardError: declined 7"), dead(20, "ValueError: other")]
    found = deaths_of(letters, NOW.timestamp())
    assert found is not None
    assert (found.lately, found.cause.kind, found.letters) == (35, "CardError", 35)
    [told] = findings.of([report(dead=45)], {"emails": Known(deaths=found)}, NOW)
    assert told.what == "35 dead letters in the last hour: CardError"
    assert told.more == "First 08:16, still coming. 45 dead in all."
    assert told.buttons[1].word == "Replay 35…"
    assert told.buttons[1].path == f"/dead/emails/{found.cause.fingerprint}?ask=replay"
    over = Deaths(2, cause("CardError: x"), 2, NOW - timedelta(minutes=50), NOW - timedelta(minutes=40))
    [ended] = findings.of([report(dead=2)], {"emails": Known(deaths=over)}, NOW)
    assert ended.more == "First 12:26, last 12:36."
    assert deaths_of([dead(61, "old")], NOW.timestamp()) is None


async def test_letters_are_read_again_only_when_there_are_others() -> None:
    async with holdfast.connect("memory://") as broker:
        queue: holdfast.Queue[Any] = await broker.queue("emails", max_attempts=1)
        await queue.enqueue_many(range(3))
        for each in await queue.dequeue_many(2):
            await each.fail("CardError: declined")
        watch = DeathWatch()
        known = await watch.look(broker.store, [report(dead=2)])
        assert known["emails"].lately == 2
        for each in await queue.dequeue_many(1):
            await each.fail("CardError: declined")
        assert (await watch.look(broker.store, [report(dead=3)]))["emails"].lately == 2  # not again so soon
        watch._known["emails"] = (2, -1e9, known["emails"])
        assert (await watch.look(broker.store, [report(dead=3)]))["emails"].lately == 3
        assert await watch.look(broker.store, [report(pending=3)]) == {}


def test_the_overview_draws_what_the_history_knows(tmp_path: Path) -> None:
    beside, now = History(tmp_path / "store.history.sqlite"), int(time.time())
    for at in range(now - 900, now + 1, 10):
        done = 2 * (at - now + 900)
        stats = Stats(pending=7, completed=done, dead=2)
        beside.add([QueueReport("emails", False, NOW, QueueOptions(), stats)], at)
    beside.measured({"emails": Timing(1, 1, 1, 1, 1, 1, 1, 1)}, now)
    beside.close()
    with ServerThread(f"file://{tmp_path}/store") as server:
        http = Http(server.address)
        path = http.queue("emails", max_attempts=1)
        http.post(f"{path}/messages", {"messages": [{"value": each} for each in range(2)]})
        held = http.post(f"{path}/claims", {"limit": 2, "lease": 30}).body["deliveries"]
        ends = [{"receipt": each["receipt"], "outcome": "kill", "reason": "CardError: no"} for each in held]
        assert http.post(f"{path}/settlements", {"settlements": ends}).status == 200
        for page in ("/", "/queues"):
            shown = bytes(http.get(page).body).decode()
            assert "emails: 7 ready, 7 at most in the last hour" in shown
            assert '<td class="n mid">2.0</td>' in shown
        shown = bytes(http.get("/").body).decode()
        assert "2 dead letters in the last hour: CardError" in shown
        assert "still coming" in shown
        assert "Replay 2…" in shown
        assert "emails: 2 dead, 2 at most in the last hour" in shown
        link = shown.split('href="/dead/emails/')[1].split('"')[0]
        assert b"Replay 2 messages?" in http.get(f"/dead/emails/{link}").body
