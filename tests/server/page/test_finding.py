"""A message by its id alone: the likely queues first, and nothing is said of queues that were not asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

import holdfast
from holdfast import ids
from holdfast.config import QueueOptions
from holdfast.queue_reports import QueueReport
from holdfast.server.page.finding import find, likely
from holdfast.stores.base import Store
from holdfast.stores.records import Stats
from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
ID = ids.text(ids.Ids().block(NOW.timestamp()))


def report(name: str, total: int, made: timedelta = timedelta(days=-1)) -> QueueReport:
    return QueueReport(name, False, NOW + made, QueueOptions(), Stats(total=total))


def test_likely_queues_come_first() -> None:
    reports = [
        report("empty", 0),
        report("younger", 900, timedelta(seconds=1)),
        report("quiet", 3),
        report("busy", 900),
        report("then", 1),
        report("then a lot", 1),
    ]
    order = likely(ID, reports, {"then": 2, "then a lot": 40})
    assert order == ["then a lot", "then", "busy", "quiet", "younger", "empty"]
    assert likely("no id", reports[:2], {}) == ["younger", "empty"]


class Slow:
    """A store that answers when it is told to; the last name has the message."""

    def __init__(self, names: Sequence[str], answered: int) -> None:
        self._left = answered
        self._names = names
        self.asked: list[str] = []

    async def find_queue(self, queues: Sequence[str], id: str) -> str | None:
        if self._left < len(queues):
            await asyncio.Event().wait()
        self._left -= len(queues)
        self.asked += queues
        await asyncio.sleep(0)
        return self._names[-1] if self._names[-1] in queues else None


async def test_some_are_asked_at_a_time_until_one_knows_it() -> None:
    names = [f"q{number:04d}" for number in range(2000)]
    store = Slow(names[:500], 2000)
    found = await find(cast(Store, store), ID, names, seconds=10)
    assert (found.queue, found.is_whole) == ("q0499", True)
    assert store.asked == names[: len(store.asked)]
    assert len(store.asked) < 1000


async def test_what_was_not_asked_is_not_told_as_searched() -> None:
    names = [f"q{number:04d}" for number in range(1000)]
    store = Slow(["no queue"], 500)
    found = await find(cast(Store, store), ID, names, seconds=0.05)
    assert (found.queue, found.asked, found.queues, found.is_whole) == (None, len(store.asked), 1000, False)
    assert 0 < found.asked <= 500
    none = await find(cast(Store, Slow(["no queue"], 1000)), ID, names, seconds=10)
    assert (none.queue, none.asked, none.is_whole) == (None, 1000, True)
    assert (await find(cast(Store, Slow(["x"], 1)), ID, [], seconds=1)).is_whole


async def test_an_error_of_the_store_is_told() -> None:
    class Away(Slow):
        async def find_queue(self, queues: Sequence[str], id: str) -> str | None:
            raise holdfast.Unavailable("away")

    with pytest.raises(holdfast.Unavailable):
        await find(cast(Store, Away(["a"], 1)), ID, ["a", "b"], seconds=1)


def test_the_page_says_how_many_were_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.server.page import finding
    from holdfast.stores.log.store import LogStore

    with ServerThread("memory://") as server:
        http = Http(server.address)
        for number in range(60):
            http.queue(f"q{number:02d}")
        body = {"value": 1}
        [id] = http.post("/api/v1/queues/q31/messages", body).body["ids"]
        assert b"Message " in http.get(f"/messages?text={id}").body
        assert f"{id}</code> is in no queue" not in bytes(http.get(f"/messages?text={id}").body).decode()
        absent = bytes(http.get(f"/messages?text={ID}").body).decode()
        assert f"{ID}</code> is in no queue, or ended and was not kept" in absent
        assert "the first 50 of" in absent
        assert "q59" not in absent

        async def slow(self: LogStore, queues: Sequence[str], id: str) -> str | None:
            await asyncio.Event().wait()
            return None

        monkeypatch.setattr(finding, "FINDING_S", 0.05)
        monkeypatch.setattr(LogStore, "find_queue", slow)
        part = bytes(http.get(f"/messages?text={ID}").body).decode()
        assert "is in no queue" not in part
        assert "The other 60 were not asked" in part
        monkeypatch.undo()
        whole = bytes(http.get(f"/messages?text={ID}&long=true").body).decode()
        assert "is in no queue" in whole


def test_queues_come_page_by_page_and_by_a_part_of_their_name() -> None:
    with ServerThread("memory://") as server:
        http = Http(server.address)
        for number in range(130):
            http.queue(f"tenant-{number:03d}")
        first = bytes(http.get("/queues").body).decode()
        assert "130 queues" in first
        assert "1 to 100 of 130" in first
        assert "tenant-099" in first
        assert "tenant-100" not in first
        link = first.split('href="/queues?')[1].split('"')[0].replace("&amp;", "&")
        second = bytes(http.get(f"/queues?{link}").body).decode()
        assert "101 to 130 of 130" in second
        assert "tenant-099" not in second.replace("after=tenant-099", "")
        assert "tenant-129" in second
        some = bytes(http.get("/queues?name=-12").body).decode()
        assert "10 queues" in some
        assert "tenant-129" in some
        assert "tenant-119" not in some
        assert "with this name" in bytes(http.get("/queues?name=%3Cb%3E").body).decode()
        overview = bytes(http.get("/").body).decode()
        assert "the first 50 of 130" in overview


def test_who_asks_for_an_id_is_told_by_the_history(tmp_path: object) -> None:
    from holdfast.server.history import History
    from tests.server.test_history import report as counted

    history, born = History(None), int(time.time()) // 600 * 600 - 1800
    for at, busy in ((born - 10, 5), (born, 5), (born + 10, 9), (born + 20, 9), (born + 30, 50)):
        history.add([counted("busy", pending=busy), counted("idle", dead=3)], at)
    assert history.came(born + 4) == {"busy": 4}
    assert history.came(born - 300) == {"busy": 50, "idle": 3}  # only the ten minutes know of it
    assert history.came(born - 86400) == {}
