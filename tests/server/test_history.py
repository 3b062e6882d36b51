"""The history of the page: fine for an hour, coarse for a month, the same after a restart."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

import holdfast
from holdfast.config import QueueOptions
from holdfast.queue_reports import QueueReport
from holdfast.server.history import ALL, History, Sample, rates
from holdfast.server.watch import Watch
from holdfast.stores.records import Stats
from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

NOW = 1_790_000_400  # a full ten minutes


def report(name: str, **counts: int) -> QueueReport:
    return QueueReport(name, False, datetime.now(UTC), QueueOptions(), Stats(**counts))


def filled(history: History, *, until: int = NOW, seconds: int = 3600, every: int = 10) -> None:
    """One message more a second comes, and half of them are completed."""
    for at in range(until - seconds, until + 1, every):
        count = at - (until - seconds)
        history.add([report("jobs", pending=count - count // 2, completed=count // 2), report("idle", dead=3)], at)


def test_an_hour_is_fine_and_a_day_is_coarse(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    filled(history)
    hour, day, week = (history.span("jobs", seconds, NOW) for seconds in (3600, 86400, 7 * 86400))
    assert (len(hour), len(day), len(week)) == (360, 1440, 1008)
    assert None not in hour
    assert hour[-1] == Sample(NOW, 1800, 0, 0, 0, 0, 1800, 0)
    assert day[0] is None  # nobody looked then
    assert day[-1] == hour[-1] == week[-1]


def test_a_queue_that_does_not_change_is_still_seen(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    filled(history)
    idle = history.span("idle", 3600, NOW)
    assert {each.dead for each in idle if each is not None} == {3}
    assert None not in idle
    every = history.span(ALL, 3600, NOW)
    assert every[-1] is not None
    assert every[-1].known == 3603
    assert history.span("nobody", 3600, NOW) == [None] * 360


def test_rates_come_from_counts(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    filled(history)
    found = rates(history.span("jobs", 3600, NOW))
    assert found[0] is None
    assert found[1:] == [(1.0, 0.5)] * 359
    before, after = Sample(0, 100, 0, 0, 0, 0, 0, 0), Sample(10, 0, 0, 0, 0, 0, 20, 0)
    assert rates([before, after, None, before]) == [None, (0.0, 2.0), None, None]  # a purge is not below nothing


def test_it_survives_a_restart_and_forgets_in_time(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    first = History(path)
    filled(first)
    seen = first.span("jobs", 3600, NOW)
    first.close()
    second = History(path)
    assert second.is_kept
    assert second.span("jobs", 3600, NOW) == seen
    second.add([report("jobs", pending=1)], NOW + 2 * 86400)
    count = second._db.execute("select count(*) from samples where step = 10").fetchone()[0]
    assert count <= 6  # of three rows the newest, and the last one of before
    assert any(second.span("jobs", 7 * 86400, NOW + 2 * 86400))


def test_a_file_that_cannot_be_written_is_no_reason_to_stop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "bad").write_bytes(b"this is no database" * 100)
    for path in (tmp_path / "bad", tmp_path / "no folder" / "x"):
        history = History(path)
        assert not history.is_kept
        filled(history, seconds=60)
    assert "charts begin again with every start" in caplog.text
    assert (tmp_path / "bad").read_bytes().startswith(b"this is no")


async def test_a_store_that_is_away_leaves_a_gap() -> None:
    looks = 0

    async def look() -> list[QueueReport]:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise holdfast.Unavailable("away")
        return [report("jobs", pending=looks)]

    watch, history = Watch(look), History(None)
    keeping = asyncio.ensure_future(watch.keep(history, 0.01))
    async with asyncio.timeout(20):
        while watch.away_since is None:
            await asyncio.sleep(0.01)
        while not any(history.span("jobs", 3600)):
            await asyncio.sleep(0.01)
    keeping.cancel()
    await asyncio.wait([keeping])
    assert watch.away_since is None


def test_a_queue_shows_the_charts_of_before(tmp_path: Path) -> None:
    import time

    beside = History(tmp_path / "store.history.sqlite")
    filled(beside, until=int(time.time()), seconds=600)
    beside.close()
    with ServerThread(f"file://{tmp_path}/store") as server:
        http = Http(server.address)
        http.queue("jobs")
        page = bytes(http.get("/queues/jobs").body).decode()
        assert "Messages by state: 0 running, 300 ready" in page
        assert "Messages a second: now 1.0 in, 0.5 out" in page
        assert " style=" not in page
        assert "an hour ago" in page
        assert "a week ago" in bytes(http.get("/queues/jobs?span=week").body).decode()
        assert http.get("/queues/jobs?span=year").status == 422
