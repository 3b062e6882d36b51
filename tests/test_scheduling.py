"""Schedules in apps, files and the blocking face, and when clocks are set."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

import holdfast
from holdfast import admin
from holdfast.broker import Broker
from holdfast.config import StoreOptions
from holdfast.errors import ConfigError, QueueNotFound
from holdfast.stores.log import open_folder, open_memory
from tests.worker_stores import until


class Report(msgspec.Struct):
    kind: str


@pytest.fixture
def app(tmp_path: Path) -> holdfast.App:
    return holdfast.App(tmp_path / "data")


async def names(app: holdfast.App) -> dict[str, bool]:
    """Of all schedules, and which are orphans."""
    return {each.schedule.name: each.orphaned for each in await (await app.broker()).schedules.list()}


async def test_declared_schedules_are_applied_when_workers_start(app: holdfast.App) -> None:
    seen: list[Any] = []

    @app.schedule("reports", "* * * * * *", tz="Europe/Berlin", value={"kind": "daily"}, name="daily-report")
    @app.handler("reports", Report)
    async def report(value: Report, context: holdfast.Context) -> None:
        seen.append((value, context.headers["schedule"]))

    assert report.queue_name == "reports"  # what is decorated stays what it was
    running = asyncio.create_task(app.run())
    await until(lambda: len(seen) >= 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert seen[0] == (Report("daily"), "daily-report")
    found = (await (await app.broker()).schedules.list())[0]
    assert (found.schedule.tz, found.declared, found.orphaned) == ("Europe/Berlin", True, False)
    await app.close()


async def test_what_is_no_longer_declared_is_an_orphan_and_stays(tmp_path: Path) -> None:
    for declared in (["a", "b"], ["b"], ["a", "b"]):
        app = holdfast.App(tmp_path / "data")
        app.handler("jobs")(lambda value: None)
        for name in declared:
            app.schedule("jobs", every=3600, name=name)
        await app.workers()
        book = (await app.broker()).schedules
        await book.put(holdfast.Schedule(name="by-hand", queue="jobs", every=60))
        assert await names(app) == {"a": "a" not in declared, "b": False, "by-hand": False}
        checks = {check.name: check for check in await admin.doctor(str(tmp_path / "data"))}
        line = checks["schedules"]
        assert (line.state, "no longer declared" in line.detail) == (
            ("warn", True) if len(declared) == 1 else ("ok", False)
        )
        await app.close()


async def test_doctor_warns_of_missed_slots(tmp_path: Path) -> None:
    folder, now = tmp_path / "data", time.time()
    async with Broker(await open_folder(folder, StoreOptions(), clock=lambda: now)) as broker:
        await broker.queue("jobs")
        await broker.schedules.put(holdfast.Schedule(name="a", queue="jobs", every=10, missed="none"))
        now += 300.0
        await broker.schedules.tick()
        missed = (await broker.schedules.get("a")).missed
    line = {check.name: check for check in await admin.doctor(str(folder))}["schedules"]
    assert missed > 20
    assert (line.state, line.detail) == ("warn", f"missed slots: a ({missed})")


async def test_two_schedules_of_one_name_are_refused_where_they_are_declared(app: holdfast.App) -> None:
    app.schedule("jobs", "@daily", name="twice")
    with pytest.raises(ConfigError, match="'twice' already"):
        app.schedule("jobs", "@hourly", name="twice")
    for bad in ({"cron": "x"}, {"cron": "@daily", "tz": "Nowhere"}, {"every": 5, "colour": "red"}):
        with pytest.raises(ConfigError):
            app.schedule("jobs", name="bad", **bad)
    assert list(app.schedules) == ["twice"]


async def test_an_unknown_queue_stops_the_start(app: holdfast.App) -> None:
    app.handler("jobs")(lambda value: None)
    app.schedule("elsewhere", "@daily", name="nobody")
    with pytest.raises(QueueNotFound, match="elsewhere"):
        await app.workers()
    assert await names(app) == {}
    await app.close()


async def test_schedules_of_the_file_are_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holdfast.yaml").write_text(
        "url: ./data\nschedules:\n  nightly: {queue: jobs, cron: '30 2 * * *', tz: Europe/Berlin, value: {kind: sweep},"
        " missed: all, headers: {a: b}, start: 2026-01-01T00:00:00Z}\n"
    )
    app = holdfast.App()
    app.handler("jobs")(lambda value: None)
    await app.workers()
    [found] = await (await app.broker()).schedules.list()
    assert found.declared
    assert (found.schedule.cron, found.schedule.value, found.schedule.missed) == (
        "30 2 * * *",
        {"kind": "sweep"},
        "all",
    )
    assert found.schedule.start == datetime(2026, 1, 1, tzinfo=UTC)
    app.schedule("jobs", "@daily", name="nightly")
    with pytest.raises(ConfigError, match=r"both in holdfast.yaml and in the app"):
        await app.workers()
    await app.close()
    (tmp_path / "holdfast.yaml").write_text("schedules: {nightly: {queue: jobs, corn: '* * * * *'}}\n")
    other = holdfast.App(tmp_path / "data")
    other.handler("jobs")(lambda value: None)
    with pytest.raises(ConfigError, match=r"did you mean 'cron'"):
        await other.workers()
    await other.close()


def test_the_blocking_face_has_the_same_names(tmp_path: Path) -> None:
    with holdfast.sync.connect(tmp_path / "data") as broker:
        queue = broker.queue("jobs")
        book = broker.schedules
        book.put(holdfast.Schedule(name="a", queue="jobs", every=60, value=1))
        assert [each.schedule.name for each in book.list()] == ["a"]
        book.pause("a")
        assert book.get("a").paused
        book.resume("a")
        assert book.tick() in (0, 1)
        id = book.trigger("a")
        assert queue.get(id).value == 1
        since = datetime(2026, 1, 1, tzinfo=UTC)
        assert len(book.backfill("a", since, since.replace(hour=1))) == 61
        book.delete("a")
        assert book.list() == []


async def test_clock_steps_of_an_hour() -> None:
    """Forward: `missed` decides. Back: nothing fires again until the clock has come as far."""
    now = 1_790_000_000.0
    broker = Broker(await open_memory(uuid4().hex, StoreOptions(), clock=lambda: now))
    await broker.queue("jobs")
    await broker.schedules.put(holdfast.Schedule(name="a", queue="jobs", every=10, missed="latest"))
    now += 30.0
    assert await broker.schedules.tick() == 3
    now += 3600.0
    assert await broker.schedules.tick() == 7  # six that are young, and the newest of the missed
    assert (await broker.schedules.get("a")).missed == 360 - 7
    last = (await broker.schedules.get("a")).last_slot
    now -= 3600.0
    for _ in range(3):
        assert await broker.schedules.tick() == 0
        now += 1199.0
    assert (await broker.schedules.get("a")).last_slot == last
    now += 13.0
    assert await broker.schedules.tick() == 1  # the first slot that nobody has seen before
    await broker.close()


async def test_a_tick_of_many_queues_asks_for_the_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    async with holdfast.connect("memory://") as broker:
        for number in range(3):
            await broker.queue(f"q{number}")
            await broker.schedules.put(holdfast.Schedule(name=f"s{number}", queue=f"q{number}", every=3600))
        clock = broker.store.clock

        async def counted() -> float:
            asked.append(await clock())
            return asked[-1]

        monkeypatch.setattr(broker.store, "clock", counted)
        await broker.schedules.tick()
    assert len(asked) == 1


async def test_verbs_of_several_calls_have_the_time_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call is quick enough by itself."""
    async with holdfast.connect("memory://", operation_timeout=0.4) as broker:
        await broker.queue("jobs")
        schedule = holdfast.Schedule(name="daily", queue="jobs", cron="@daily")
        await broker.schedules.put(schedule)
        stored = broker.store.schedules
        assert stored is not None

        def slow(call: Any) -> Any:
            async def later(*args: Any) -> Any:
                await asyncio.sleep(0.9)
                return await call(*args)

            return later

        for name in ("find", "change"):
            monkeypatch.setattr(stored, name, slow(getattr(stored, name)))
        for verb in (broker.schedules.pause, broker.schedules.resume, broker.schedules.delete):
            with pytest.raises(holdfast.Unavailable, match="did not answer within"):
                await verb("daily")
        with pytest.raises(holdfast.ScheduleNotFound):  # what ends in time says what it found
            await broker.schedules.get("weekly")


async def test_a_backfill_in_doubt_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    async with holdfast.connect("memory://") as broker:
        queue = await broker.queue("jobs")
        first, last = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
        await broker.schedules.put(holdfast.Schedule(name="past", queue="jobs", every=60, start=first, end=last))
        stored = broker.store.schedules
        assert stored is not None
        fire = stored.fire

        async def answer_is_lost(*args: Any) -> Any:
            await fire(*args)
            raise holdfast.UnknownOutcome("the bucket did not say whether it was written")

        monkeypatch.setattr(stored, "fire", answer_is_lost)
        with pytest.raises(holdfast.UnknownOutcome) as unknown:
            await broker.schedules.backfill("past", first, last)
        monkeypatch.setattr(stored, "fire", fire)
        ids = await unknown.value.retry()
        assert len(ids) == (await queue.stats()).pending > 3
