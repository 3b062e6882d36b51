"""A disk that becomes slow holds up those who wait for it, and no other task of the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.stores.log.folder import database, files, wal

SLOW_SYNC_S = 0.3
TICK_S = 0.01
LATE_S = 0.03
LARGE = b"x" * 300_000  # a file of its own
TURNS = 3


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Once it is set, every sync takes 300 ms: our own and SQLite's, whose commits wait for one."""
    slow = threading.Event()
    for where in (wal, files):
        honest = where.sync
        monkeypatch.setattr(where, "sync", lambda fd, honest=honest: (_wait(slow), honest(fd))[1])
    commit = database.Writing.commit

    def slowly(self: database.Writing) -> bool:
        if self._lasting and self.wrote:
            _wait(slow)
        return commit(self)

    monkeypatch.setattr(database.Writing, "commit", slowly)
    return slow


def _wait(slow: threading.Event) -> None:
    if slow.is_set():
        time.sleep(SLOW_SYNC_S)


class Timer:
    """Ticks every 10 ms, and notes how late each tick is."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self.is_over = False

    async def tick(self) -> None:
        while not self.is_over:
            due = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            self.late.append(time.perf_counter() - due)

    @property
    def p99(self) -> float:
        return sorted(self.late)[int(len(self.late) * 0.99)]


async def p99_beside_calls(queue: holdfast.Queue[bytes]) -> tuple[float, float]:
    """Of a timer beside calls, and of one in an event loop that does nothing: what the machine does to both."""
    timer, idle = Timer(), Timer()
    thread = threading.Thread(target=lambda: asyncio.run(idle.tick()))
    thread.start()
    ticking = asyncio.create_task(timer.tick())

    async def call() -> None:
        for _ in range(4):
            await queue.enqueue(b"x")
            delivery = await queue.dequeue()
            if delivery is not None:
                await delivery.complete()

    await call()  # alone, then together
    await asyncio.gather(*(call() for _ in range(5)))
    await queue.enqueue_many([LARGE] * 2)
    timer.is_over = idle.is_over = True
    await ticking
    thread.join()
    assert len(timer.late) > 100
    return timer.p99, idle.p99


@pytest.mark.timeout(240)
@pytest.mark.parametrize("was_quick", [True, False], ids=["once-quick", "slow-from-the-start"])
async def test_a_slow_disk_leaves_other_tasks_on_time(tmp_path: Path, slow: threading.Event, was_quick: bool):
    """A loop that waited for each of the syncs would be late each time; a busy machine is so now and then."""
    found: list[tuple[float, float]] = []
    async with holdfast.connect(f"file://{tmp_path / 'store'}") as broker:
        queue = await broker.queue("q", bytes)
        for _ in range(200 if was_quick else 1):
            await queue.enqueue(b"warm")
        slow.set()
        for _ in range(TURNS):
            ours, idle = await p99_beside_calls(queue)
            if ours < LATE_S - TICK_S + idle:
                return
            found.append((ours, idle))
    raise AssertionError(f"late by so many seconds, and an idle loop by so many: {found}")
