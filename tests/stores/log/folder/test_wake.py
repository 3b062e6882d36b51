from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from holdfast.stores.log.folder import FolderSpace, wake
from tests.stores.log.space_suite import in_another_loop


@pytest.fixture
async def pair(tmp_path: Path):
    """Two spaces on one folder: to each other they are as other processes."""
    spaces = [await FolderSpace.open(tmp_path) for _ in range(2)]
    yield spaces
    for space in spaces:
        await space.close()


def signal(*topics: str):
    def step(tx):
        for topic in topics:
            tx.signal(topic)

    return step


async def signalled(space: FolderSpace, topic: str) -> None:
    """Signal, and wait until it is told: callers have their answer before others hear, but before the next group."""
    await space.transact(signal(topic))
    await space.transact(lambda tx: None)


async def test_a_foreign_signal_between_ticket_and_watch(pair):
    ours, theirs = pair
    ticket = ours.ticket("q/work")
    await theirs.transact(signal("q/work"))
    assert await ours.watch("q/work", 10, since=ticket)


async def test_an_old_foreign_signal_is_not_news(pair):
    ours, theirs = pair
    ours.ticket("a")
    await signalled(theirs, "a")
    ticket = ours.ticket("a")
    assert not await ours.watch("a", 0.05, since=ticket)


async def test_our_own_signal_counts_once(pair):
    ours, _ = pair
    before = ours.ticket("a")
    for _ in range(5):
        await signalled(ours, "a")
    assert ours.ticket("a") == before + 5


async def test_topics_do_not_wake_each_other(pair):
    ours, theirs = pair
    watching = {topic: asyncio.create_task(ours.watch(topic, 0.3)) for topic in ("a/b", "a", "a%2Fb", "x" * 300)}
    await asyncio.sleep(0)
    await theirs.transact(signal("a/b", "x" * 300))
    assert {topic: await task for topic, task in watching.items()} == {
        "a/b": True,
        "a": False,
        "a%2Fb": False,
        "x" * 300: True,
    }


async def test_every_loop_is_woken(pair):
    ours, theirs = pair
    ready = []

    async def watch():
        ticket = ours.ticket("a")
        ready.append(1)
        return await ours.watch("a", 20, since=ticket)

    threads = [in_another_loop(watch) for _ in range(3)]
    here = asyncio.create_task(watch())
    while len(ready) < 4:
        await asyncio.sleep(0)
    await theirs.transact(signal("a"))
    assert await here
    for thread, results in threads:
        await asyncio.to_thread(thread.join, 10)
        assert results == [True]


async def test_more_topics_than_open_files(pair):
    ours, theirs = pair
    topics = [f"topic/{number}" for number in range(wake._OPEN_FILES + 20)]
    tickets = {topic: ours.ticket(topic) for topic in topics}
    await theirs.transact(signal(*topics))
    await theirs.transact(signal(*topics))
    assert all([await ours.watch(topic, 10, since=tickets[topic]) for topic in topics])


async def test_a_removed_wake_file_is_made_again(pair, tmp_path: Path):
    ours, theirs = pair
    ours.ticket("a")
    (tmp_path / "wake" / "a.wake").unlink()
    ours.ticket("a")  # finds it gone
    ticket = ours.ticket("a")
    assert (tmp_path / "wake" / "a.wake").exists()
    await theirs.transact(signal("a"))
    assert await ours.watch("a", 10, since=ticket)


async def test_a_closed_loop_among_the_waiters_is_harmless(pair):
    ours, theirs = pair

    def abandoned():
        loop = asyncio.new_event_loop()
        watching = loop.create_task(ours.watch("a", 30))
        loop.run_until_complete(asyncio.sleep(0.01))
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(watching)

        async def commit() -> None:
            await ours.transact(lambda tx: time.sleep(0.05))

        pending = loop.create_task(commit())
        loop.run_until_complete(asyncio.sleep(0))
        pending.cancel()
        loop.close()

    await asyncio.to_thread(abandoned)
    ticket = ours.ticket("a")
    await theirs.transact(signal("a"))
    assert await ours.watch("a", 10, since=ticket)


async def test_polling_returns_early_and_says_look_again(tmp_path: Path):
    space = await FolderSpace.open(tmp_path, wake=False, poll_interval=0.05)
    assert {line.name: line.state for line in await space.check()}["wake-up"] == "warn"
    start = time.monotonic()
    assert await space.watch("a", 30)
    assert 0.04 <= time.monotonic() - start < 5
    assert not await space.watch("a", 0.01)
    watching = asyncio.create_task(space.watch("a", 30))
    await asyncio.sleep(0)
    await space.transact(signal("a"))
    assert await watching
    await space.close()


async def test_no_observer_left_for_this_user(tmp_path: Path, monkeypatch):
    def refused():
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(wake.observer.__module__ + ".sys.platform", "linux")
    monkeypatch.setattr("holdfast.stores.log.folder.inotify.Inotify", refused)
    space = await FolderSpace.open(tmp_path, poll_interval=0.01)
    assert await space.watch("a", 30)
    await space.close()


async def test_only_who_waits_takes_an_observer_and_who_got_none_tries_again(tmp_path: Path, monkeypatch):
    """A user has 128 of inotify's by default: processes that only send must leave them to those that wait."""
    asked, left = [], [False]
    observer = wake.observer

    def counted():
        asked.append(1)
        return observer() if left[0] else None

    monkeypatch.setattr(wake, "observer", counted)
    ours, theirs = [await FolderSpace.open(tmp_path, poll_interval=0.01) for _ in range(2)]
    await theirs.transact(signal("a"))
    assert asked == []
    assert await ours.watch("a", 30)  # polls
    left[0] = True
    ticket = ours.ticket("a")
    assert not await ours.watch("a", 0.05, since=ticket)  # does not
    await theirs.transact(signal("a"))
    assert await ours.watch("a", 20, since=ticket)
    await ours.close()
    asked.clear()
    await theirs.close()
    assert asked == []
