"""Durations are the store's clock's, `at` and what is shown are the calendar's, whatever the wall clock does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.retry import Fixed
from holdfast.stores.log import memory
from holdfast.stores.log.calendar import Calendar, Reckoning
from holdfast.stores.log.folder import clock as folder_clock
from holdfast.stores.log.slatedb import clock as slate_clock

RIGHT = datetime(2026, 11, 17, 12, tzinfo=UTC).timestamp()
YEAR = 365 * 86400.0
HOUR = 3600.0


class Machine:
    """The clocks under a store: one that anybody sets, and one since boot."""

    def __init__(self) -> None:
        self.wall, self.ticks, self.boot = RIGHT, 100.0, 1

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.ticks += seconds

    def reboot(self, *, after: float = 60.0) -> None:
        self.wall += after
        self.ticks, self.boot = 5.0, self.boot + 1


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    for module in (folder_clock, slate_clock):
        monkeypatch.setattr(module, "wall_clock", lambda: machine.wall)
        monkeypatch.setattr(module, "since_boot", lambda: machine.ticks)
    monkeypatch.setattr(folder_clock, "boot_id", lambda: f"boot {machine.boot}")
    return machine


@pytest.fixture(params=["file", "slatedb+file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}://{tmp_path / 'store'}"


@asynccontextmanager
async def opened(url: str, **options: object) -> AsyncIterator[holdfast.Queue[object]]:
    async with holdfast.connect(url) as broker:
        yield await broker.queue("jobs", retry=Fixed(HOUR), **options)


def moment(instant: float) -> datetime:
    return datetime.fromtimestamp(instant, UTC)


def about(seen: datetime | None, instant: float) -> bool:
    return seen is not None and abs(seen - moment(instant)) < timedelta(seconds=2)


@pytest.mark.parametrize("wrong", [YEAR, -YEAR, -RIGHT + 30.0], ids=["a year ahead", "a year behind", "in 1970"])
async def test_at_follows_the_wall_clock_whatever_it_was_at_the_first_opening(machine: Machine, url: str, wrong: float):
    machine.wall += wrong
    async with opened(url) as queue:
        await queue.enqueue("before")
        machine.pass_time(90)
    machine.wall -= wrong  # set right, in the same boot and over two reboots
    for reboots in range(3):
        async with opened(url) as queue:
            await queue.enqueue(reboots, at=moment(machine.wall + HOUR))
            assert [each.value for each in await queue.dequeue_many(5, lease=60)] in ([], ["before"])
            machine.pass_time(HOUR - 1)
            assert [each.value for each in await queue.dequeue_many(5, lease=60)] in ([], ["before"])
            machine.pass_time(2)
            found = await queue.dequeue_many(5, lease=60)
            assert reboots in [each.value for each in found]
            await queue.complete_many(found)
        machine.reboot()


async def test_at_follows_the_wall_clock_while_the_store_is_open(machine: Machine, url: str):
    async with opened(url) as queue:
        ids = await queue.enqueue_many(["a", "b"], at=moment(RIGHT + HOUR))
        machine.wall -= YEAR
        machine.pass_time(2 * HOUR)
        assert await queue.dequeue_many(5) == []
        assert (await queue.stats()).delayed == 2
        assert await queue.cancel(ids[0])  # its block is in the head now, and is not due
        assert await queue.dequeue_many(5) == []
        machine.wall += YEAR
        assert [each.value for each in await queue.dequeue_many(5)] == ["b"]


async def test_at_in_the_past_is_at_once_by_the_wall_clock(machine: Machine, url: str):
    machine.wall -= YEAR
    async with opened(url) as queue:
        await queue.enqueue("a", at=moment(machine.wall + HOUR))
        machine.wall += YEAR
        await queue.enqueue("b", at=moment(machine.wall - HOUR))
        assert [each.value for each in await queue.dequeue_many(5)] == ["a", "b"]


@pytest.mark.parametrize("step", [YEAR, -YEAR], ids=["forward", "back"])
async def test_durations_do_not(machine: Machine, url: str, step: float):
    async with opened(url, dedup_window=HOUR) as queue:
        await queue.enqueue("delayed", delay=HOUR)
        await queue.enqueue("once", dedup_key="k")
        await queue.enqueue("retried", priority=9)
        await (await queue.dequeue()).fail("again")  # in an hour
        held = await queue.dequeue(lease=HOUR)
        machine.wall += step
        machine.pass_time(HOUR - 10)
        assert await queue.dequeue_many(5) == []
        await queue.enqueue("once more", dedup_key="k")
        assert (await queue.stats()).total == 3
        await held.extend(20)
        machine.pass_time(20)
        assert {each.value for each in await queue.dequeue_many(5)} == {"delayed", "retried", "once"}
        await queue.enqueue("once more", dedup_key="k")
        assert (await queue.stats()).total == 4


async def test_the_time_the_machine_is_off_counts(machine: Machine, url: str):
    async with opened(url) as queue:
        await queue.enqueue("a", delay=2 * HOUR)
        machine.wall += YEAR  # the clocks differ from now on
        machine.pass_time(90)
        await queue.enqueue("b", delay=10 * HOUR)
    machine.reboot(after=3 * HOUR)
    async with opened(url) as queue:
        assert [each.value for each in await queue.dequeue_many(5)] == ["a"]


@pytest.mark.parametrize("wrong", [YEAR, -RIGHT + 30.0], ids=["a year ahead", "in 1970"])
async def test_what_is_shown_is_of_the_calendar(machine: Machine, url: str, wrong: float):
    machine.wall += wrong
    async with opened(url) as queue:
        early = await queue.enqueue("early")
        machine.wall -= wrong
        machine.pass_time(HOUR)
        late = await queue.enqueue("late", delay=HOUR)
        dated = await queue.enqueue("dated", at=moment(RIGHT + 4 * HOUR))
        assert late > early
        assert about((await queue.get(early)).enqueued_at, RIGHT)
        assert about((await queue.get(late)).visible_at, RIGHT + 2 * HOUR)
        assert (await queue.get(dated)).visible_at == moment(RIGHT + 4 * HOUR)
        held = await queue.dequeue(lease=120)
        assert about(held.enqueued_at, RIGHT)
        assert about(held.expires_at, RIGHT + HOUR + 120)
        await held.extend(240)
        assert about(held.expires_at, RIGHT + HOUR + 240)
        await held.complete()
        [done] = await queue.archive.list()
        assert about(done.finished_at, RIGHT + HOUR)
        assert about(done.claimed_at, RIGHT + HOUR)
        assert abs(await queue.store.clock() - machine.wall) < 2
    machine.reboot()
    async with opened(url) as queue:
        await queue.store.maintain("jobs")
        [again] = await queue.archive.list()
        assert again.finished_at == done.finished_at
        assert again.enqueued_at == done.enqueued_at
        assert about((await queue.get(late)).enqueued_at, RIGHT + HOUR)


def days(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("jobs@*/archive/*")]


async def test_a_day_of_the_archive_is_one_of_the_calendar(machine: Machine, tmp_path: Path):
    machine.wall += YEAR
    async with opened(f"file://{tmp_path}", archive_days=2) as queue:
        await queue.enqueue("a")
        machine.wall -= YEAR
        await (await queue.dequeue()).complete()
        await queue.store.maintain("jobs")
        assert days(tmp_path) == ["date=2026-11-17"]
    machine.wall += YEAR  # wrong at the first opening of a boot, and set right before anybody cleans up
    machine.reboot()
    async with opened(f"file://{tmp_path}") as queue:
        machine.wall -= YEAR
        await queue.store.maintain("jobs")
        assert (await queue.stats()).archived == 1
        machine.pass_time(2 * 86400)
        await queue.store.maintain("jobs")
        assert (await queue.stats()).archived == 0


async def test_ids_only_go_up(machine: Machine, url: str):
    made: list[str] = []
    for step in (0.0, -YEAR, 2 * YEAR, -3 * YEAR):
        machine.wall += step
        async with opened(url) as queue:
            machine.pass_time(1)
            made += [await queue.enqueue(None) for _ in range(3)]
            machine.pass_time(90)
            made += [await queue.enqueue(None) for _ in range(3)]
        machine.reboot()
    assert made == sorted(made)


async def test_a_store_of_an_earlier_version_goes_on(machine: Machine, tmp_path: Path):
    async with opened(f"file://{tmp_path}") as queue:
        await queue.enqueue("a", delay=HOUR)
    database = apsw.Connection(str(tmp_path / "holdfast.db"))
    for column in ("apart", "begun"):
        database.execute(f"ALTER TABLE clock DROP COLUMN {column}")
    database.close()
    machine.pass_time(HOUR / 2)
    async with opened(f"file://{tmp_path}") as queue:
        assert await queue.dequeue() is None
    machine.reboot(after=HOUR)
    async with opened(f"file://{tmp_path}") as queue:
        assert [each.value for each in await queue.dequeue_many(5)] == ["a"]


async def test_at_in_memory(monkeypatch: pytest.MonkeyPatch):
    wall = RIGHT - YEAR
    monkeypatch.setattr(memory, "wall", lambda: wall)
    async with opened("memory://") as queue:
        await queue.enqueue("a", at=moment(RIGHT))
        assert await queue.dequeue() is None
        wall = RIGHT + 1
        assert (await queue.dequeue()).value == "a"


def test_what_differs_little_is_the_same():
    now, off = 1000.0, 0.09
    reckoning = Reckoning(lambda: now, lambda: now - off)
    assert reckoning() == Calendar()
    off = 5.06
    assert reckoning() == Calendar(5.1)
    off = 5.0
    assert reckoning() == Calendar(5.1)


def test_who_was_stopped_between_two_clocks_does_not_compare_them():
    instants = iter([1000.0, 1060.0, 1060.0, 1060.0])
    reckoning = Reckoning(lambda: next(instants), lambda: 1060.0)
    assert reckoning() == Calendar()
    assert reckoning() == Calendar()


def test_instants_of_earlier_boots_lie_as_they_lay_then():
    calendar = Calendar(5.0, ((100.0, 50.0), (200.0, 0.0)))
    assert [calendar.wall(instant) for instant in (90.0, 100.0, 150.0, 200.0)] == [40.0, 100.0, 150.0, 195.0]
