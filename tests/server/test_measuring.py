"""How long messages wait and run: from the archive, whoever did the work; means of minutes for longer spans."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import holdfast
from holdfast import admin
from holdfast.server import measuring as module
from holdfast.server.history import History, Sample, Timing
from holdfast.server.measuring import Measuring, next_back, timing_of
from holdfast.server.page import charts, words
from holdfast.server.watch import Watch
from holdfast.stores.records import Stored
from tests.server.fixtures import Http
from tests.server.test_history import NOW, report
from tests.servers.serving import ServerThread


def ended(wait: float, run: float, *, attempts: int = 1) -> Stored:
    return Stored(
        "id", "completed", b"1", "application/json", None, 0, attempts, 8, 1000.0,
        claimed_at=1000.0 + wait, finished_at=1000.0 + wait + run,
    )  # fmt: skip


def test_percentiles_of_waits_and_runs() -> None:
    found = timing_of([ended(float(number), 2.0 * number) for number in range(100)])
    assert found == Timing(100, 50.0, 95.0, 99.0, 100.0, 190.0, 198.0)
    retried = timing_of([ended(500.0, 1.0, attempts=2), ended(3.0, 1.0)])
    assert (retried.count, retried.wait_p99, retried.run_p50) == (2, 3.0, 1.0)
    assert timing_of([]) == Timing()
    assert timing_of([ended(-0.5, 1.0)]).wait_p50 == 0.0  # clocks differ


def test_how_far_back_is_learned() -> None:
    assert next_back(120, [ended(1, 1)], is_full=False) == 120
    assert next_back(120, [ended(600, 300)], is_full=False) == 60 + 2 * 900
    assert next_back(120, [], is_full=False) == 480
    assert next_back(1e6, [], is_full=False) == 86400
    assert next_back(120, [ended(1, 1)], is_full=True) == 60
    assert next_back(1, [], is_full=True) == 5
    assert next_back(120, [ended(1, 1)] * 80, is_full=True) == 120


async def test_work_of_anybody_is_measured_once() -> None:
    async with holdfast.connect("memory://") as broker:
        queue, off = await broker.queue("jobs"), await broker.queue("off", archive=False)
        watch, history = Watch(lambda: admin.overview(broker)), History(None)
        measuring = Measuring(lambda: broker, watch, history)
        began = await broker.store.clock()
        await measuring.measure(began)  # what has ended before is not looked at
        for each in (queue, off):
            await each.enqueue_many(range(20))
            await each.complete_many(await each.dequeue_many(15))
        watch.forget()
        now = await broker.store.clock()
        await measuring.measure(now + 1)
        [measured] = [each for each in history.timings("jobs", 3600, now + 1) if each is not None]
        assert measured.count == 15
        assert measured.wait_p99 is not None
        assert 0 <= measured.wait_p99 < 60
        assert measured.oldest is not None
        [other] = [each for each in history.timings("off", 3600, now + 1) if each is not None]
        assert (other.count, other.wait_p50) == (0, None)
        watch.forget()
        await measuring.measure(now + 2)
        [again] = [each for each in history.timings("jobs", 3600, now + 2) if each is not None]
        assert again.count == 15


async def test_many_queues_take_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TURN_QUEUES", 2)
    async with holdfast.connect("memory://") as broker:
        queues = [await broker.queue(f"q{number}") for number in range(3)]
        watch, history = Watch(lambda: admin.overview(broker)), History(None)
        measuring = Measuring(lambda: broker, watch, history)
        began = await broker.store.clock()
        await measuring.measure(began)
        for queue in queues:
            await queue.enqueue(1)
            await queue.complete_many(await queue.dequeue_many(1))
        seen: list[list[bool]] = []
        for number in (1, 2):
            watch.forget()
            await measuring.measure(began + number)
            seen.append([any(history.timings(queue.name, 3600, began + number)) for queue in queues])
        assert [sum(each) for each in seen] == [2, 3]


def test_ten_minutes_are_the_mean_of_theirs_and_survive(tmp_path: Path) -> None:
    history = History(tmp_path / "state")
    history.measured({"jobs": Timing(1, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 10.0)}, NOW)
    history.measured({"jobs": Timing(3, 5.0, 5.0, 5.0, 2.0, 2.0, 2.0, 30.0)}, NOW + 60)
    history.measured({"jobs": Timing(oldest=70.0)}, NOW + 120)
    history.close()
    history = History(tmp_path / "state")
    day, week = history.timings("jobs", 86400, NOW + 120), history.timings("jobs", 7 * 86400, NOW + 120)
    assert (len(day), len(week)) == (1440, 1008)
    assert [each.count for each in day[-3:] if each is not None] == [1, 3, 0]
    assert week[-1] is not None
    assert (week[-1].count, week[-1].wait_p50, week[-1].run_p99) == (4, 4.0, 2.0)
    assert history.usual_oldest("jobs", NOW + 120) == 30.0
    assert history.usual_oldest("nobody", NOW + 120) is None
    history.measured({}, NOW + 31 * 86400)
    assert history._db.execute("select count(*) from measured").fetchone() == (0,)


def test_since_when_nobody_works_on_a_queue() -> None:
    history = History(None)
    for at, busy, done in ((0, 0, 5), (60, 2, 5), (120, 0, 7), (180, 0, 7), (240, 0, 7)):
        history.add([report("jobs", pending=9, processing=busy, completed=done)], NOW + at)
    assert history.quiet_since("jobs", NOW + 300) == NOW + 120
    assert history.quiet_since("nobody", NOW + 300) is None


def test_charts_have_seconds_and_a_lone_minute_is_seen() -> None:
    drawn = charts.times([None, Timing(1, 0.004, 0.2, 0.25), None], "wait", "Waited", "an hour ago")
    assert "Waited: p50 4 ms, p95 200 ms, p99 250 ms" in drawn
    assert drawn.count('h2"/>') == 3
    assert "500 ms" in drawn


def test_numbers_are_the_last_known_of_each_stretch() -> None:
    assert charts.few([None, 1, 2, None]) == [1, 2]
    assert charts.few([None if at % 7 else at for at in range(3600)]) == [
        at for at in range(3600) if at % 7 == 0 and at % 300 > 292
    ]
    now = datetime.fromtimestamp(NOW, UTC)
    samples = [Sample(NOW - 10 * back, back, 0, 0, 0, 0, 2 * (359 - back), 0) for back in range(359, -1, -1)]
    states, through = charts.numbers_of_states(samples, now), charts.numbers_of_throughput(samples, now)
    assert (len(states.rows), len(through.rows)) == (12, 11)
    assert states.rows[-1] == (words.when(now, now), ["0", "0", "0", "0", "0"])
    assert states.rows[0][1] == ["0", "330", "0", "0", "0"]
    assert {tuple(values) for _, values in through.rows} == {("0.1", "0.2")}
    timings = [Timing(1, 0.5, 1.0, 2.0) if at == 30 else None for at in range(60)]
    [(at, values)] = charts.numbers_of_times(timings, "wait", 3600, now).rows
    assert (at, values) == (words.when(words.moment(NOW // 60 * 60 - 29 * 60), now), ["500 ms", "1 s", "2 s"])


def test_the_queue_page_has_percentiles_or_says_why_not(tmp_path: Path) -> None:
    beside = History(tmp_path / "store.history.sqlite")
    now = int(time.time())
    for at in range(now - 600, now, 10):
        beside.add([report("jobs", pending=1), report("off", pending=1), report("new", pending=1)], at)
    for at in range(now - 600, now, 60):
        beside.measured({"jobs": Timing(5, 0.5, 2.0, 3.0, 0.1, 0.2, 0.3)}, at)
    beside.close()
    with ServerThread(f"file://{tmp_path}/store") as server:
        http = Http(server.address)
        http.queue("jobs")
        http.queue("off", archive=False)
        http.queue("new")
        for span in ("hour", "day", "week"):
            page = bytes(http.get(f"/queues/jobs?span={span}").body).decode()
            assert "Seconds until the first attempt: p50 500 ms, p95 2 s, p99 3 s" in page
            assert "Seconds from claim to outcome: p50 100 ms, p95 200 ms, p99 300 ms" in page
            assert page.count("<summary>Numbers</summary>") == 4
            waits = page.split('aria-label="Waited: numbers"')[1].split("</table>")[0]
            assert '<td class="n">500 ms</td><td class="n">2 s</td><td class="n">3 s</td>' in waits
        assert "this queue keeps no archive" in bytes(http.get("/queues/off").body).decode()
        assert "Not known yet" in bytes(http.get("/queues/new").body).decode()


@pytest.mark.timeout(60)
async def test_a_store_that_is_away_leaves_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    async with holdfast.connect("memory://") as broker:
        looks = 0

        async def look() -> list[admin.QueueReport]:
            nonlocal looks
            looks += 1
            raise holdfast.Unavailable("away")

        watch = Watch(look)
        keeping = asyncio.ensure_future(Measuring(lambda: broker, watch, History(None)).keep(0.01))
        async with asyncio.timeout(20):
            while looks < 2:
                await asyncio.sleep(0.01)
        assert not keeping.done()
        assert watch.away_since is not None
        keeping.cancel()
        await asyncio.wait([keeping])


def test_a_coarse_span_has_fewer_points() -> None:
    history = History(None)
    history.add([report("jobs", pending=1)], NOW)
    fine, coarse = history.span("jobs", 3600, NOW), history.span("jobs", 3600, NOW, coarse=60)
    assert (len(fine), len(coarse)) == (360, 60)
    assert coarse[-1] == Sample(NOW, 1, 0, 0, 0, 0, 0, 0)
