"""One look for all pages: new enough, never in the way of a page, and a new one after a change."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast.queue_reports import QueueReport
from holdfast.server import watch as module
from holdfast.server.watch import Watch
from tests.server.test_history import report


class Store:
    """Looks end when they are told to; the count in a report says which look it is."""

    def __init__(self) -> None:
        self.looks = 0
        self.may_end = asyncio.Event()
        self.error: Exception | None = None

    async def look(self) -> list[QueueReport]:
        self.looks += 1
        mine = self.looks
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return [report("jobs", pending=mine)]


def counts(reports: list[QueueReport]) -> list[int]:
    return [each.stats.pending for each in reports]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(module, "LOOKS_S", 0.0)
    monkeypatch.setattr(module, "_REST_FACTOR", 0)
    return Store()


async def test_a_page_does_not_wait_for_a_long_look(store: Store) -> None:
    watch = Watch(store.look)
    store.may_end.set()
    assert counts(await watch.recent()) == [1]  # nothing to show before the first
    store.may_end.clear()
    async with asyncio.timeout(5):
        assert counts(await watch.recent()) == [1]
        assert counts(await watch.recent()) == [1]
    assert store.looks == 2  # of both
    store.may_end.set()
    assert counts(await watch.reports()) == [2]


async def test_after_a_change_a_page_waits_and_an_older_look_is_not_believed(store: Store) -> None:
    watch = Watch(store.look)
    store.may_end.set()
    await watch.recent()
    store.may_end.clear()
    await watch.recent()  # a look is under way
    watch.forget()
    waiting = asyncio.ensure_future(watch.recent())
    await asyncio.wait([waiting], timeout=0.2)
    assert not waiting.done()
    store.may_end.set()
    assert counts(await waiting) == [3]


async def test_numbers_that_are_old_are_not_shown_and_a_store_that_is_away_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(store.look)
    store.may_end.set()
    await watch.recent()
    store.error = holdfast.Unavailable("away")
    with pytest.raises(holdfast.Unavailable):
        await watch.recent()
    assert watch.away_since is not None
    store.error = None
    assert counts(await watch.recent()) == [3]
    store.may_end.clear()
    monkeypatch.setattr(module, "_LOOK_OLD_S", 0.0)
    monkeypatch.setattr(Watch.reports, "__kwdefaults__", {"patience": 0.05})
    with pytest.raises(TimeoutError):
        await watch.recent()


async def test_long_looks_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKS_S", 0.0)
    monkeypatch.setattr(module, "_REST_FACTOR", 1e9)  # whatever a look takes, it holds for the longest time
    store = Store()
    store.may_end.set()
    watch = Watch(store.look)
    assert counts(await watch.reports()) == [1]
    assert counts(await watch.reports()) == [1]
