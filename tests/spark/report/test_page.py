"""The page in a real Chromium, of a shop with an incident; what it says of now, of before, and of what it lacks."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from pyspark.sql import SparkSession

from holdfast.spark import jobs
from holdfast.spark.report.figures import Figures, backlog
from holdfast.spark.report.page import page
from tests.servers.chromium import browser, serious
from tests.spark.jobs.stories import dead_of, story
from tests.spark.report import shop

SHOTS = os.environ.get("HOLDFAST_TEST_SHOTS")  # a folder for pictures, for those who want to look
WIDTHS = (390, 1024, 1600)


class Told(NamedTuple):
    """A report that was made, and of what."""

    figures: Figures
    page: Path
    folder: Path
    url: str
    start: float


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder, now = tmp_path_factory.mktemp("shop"), float(int(time.time()))
    url, _ = shop.fill(folder, now, scale=0.3)
    start = now - 900 - shop.HOURS * shop.HOUR
    jobs.report(spark, folder / "lake", folder / "out", since=datetime.fromtimestamp(start, UTC), url=url)
    figures = msgspec.json.decode((folder / "out" / "report.json").read_bytes(), type=Figures)
    return Told(figures, folder / "out" / "report.html", folder, url, start)


@pytest.mark.timeout(240)  # Spark makes the report first
def test_it_fits_every_width_and_keeps_text_text(told: Told) -> None:
    with browser() as chromium, chromium.new_context(reduced_motion="reduce") as context:
        opened = context.new_page()
        for width in WIDTHS:
            opened.set_viewport_size({"width": width, "height": 900})
            opened.goto(told.page.as_uri())
            assert opened.evaluate("document.documentElement.scrollWidth") <= width
            for theme in ("light", "dark") if SHOTS else ():
                opened.emulate_media(color_scheme=theme)
                opened.screenshot(path=Path(SHOTS or "") / f"report-{width}-{theme}.png", full_page=True)
        opened.emulate_media(color_scheme="light")
        assert serious(opened) == []
        opened.emulate_media(color_scheme="dark")
        assert serious(opened, "color-contrast") == []
        assert opened.title().endswith("Holdfast report")
        assert opened.locator("script, img").count() == 0
        assert opened.get_by_text("<script>document.title").count() > 0


def test_problems_and_the_present_come_first(told: Told) -> None:
    text = told.page.read_text()
    order = [
        text.index(f">{each}<") for each in ("Needs a look", "Now", "arrived", "Arrivals, backlog, ends", "Queues")
    ]
    assert order == sorted(order)
    now = {one.queue: one for one in told.figures.present.queues}
    assert (now["payments"].ready, now["payments"].retry, now["emails"].running) == (198, 14, 3)
    assert now["thumbnails"].delayed == 6
    assert (now["payments"].dead, now["payments"].unseen, now["emails"].unseen) == (20, 20, 0)
    [retried] = told.figures.present.retrying
    assert (retried.queue, retried.count, retried.reason) == ("payments", 14, "CardError: declined by issuer (code #)")


def test_what_the_lake_lacks_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    """Of what ended after the lake was filled; its arrivals count too, where they are in the period."""
    url = story(tmp_path, "emails", 60)
    jobs.lake(spark, "emails", tmp_path / "lake", url=url)
    story(tmp_path, "emails", 40, first=60)
    jobs.report(spark, tmp_path / "lake", tmp_path / "out", url=url)
    figures = msgspec.json.decode((tmp_path / "out" / "report.json").read_bytes(), type=Figures)
    [now] = figures.present.queues
    assert (figures.ended, now.unseen, now.dead) == (60, 40, dead_of(100))
    assert figures.present.counts_waiting


def test_the_period_before_is_as_long_and_equals_a_report_of_it(spark: SparkSession, told: Told) -> None:
    length = shop.HOURS * shop.HOUR
    since, until = (datetime.fromtimestamp(at, UTC) for at in (told.start - length, told.start))
    jobs.report(spark, told.folder / "lake", told.folder / "earlier", since=since, until=until)
    earlier = msgspec.json.decode((told.folder / "earlier" / "report.json").read_bytes(), type=Figures)
    assert told.figures.before_is_whole
    assert not earlier.before_is_whole
    assert "nothing to compare with" in page(earlier)
    for one in earlier.queues:
        before = told.figures.of_before(one.queue)
        assert before is not None
        # A lake's newest message ends a moment before its mark, so the periods differ by a few messages.
        assert before.ended == pytest.approx(one.ended, abs=3)
        assert before.p95 == pytest.approx(one.p95, rel=0.1)
    assert sum(one.ended for one in told.figures.ended_before) == pytest.approx(earlier.ended, abs=6)


def test_each_reason_has_its_last_message_and_a_command_that_replays_it(
    told: Told,
) -> None:
    text = told.page.read_text()
    payments = [one for one in told.figures.reasons if one.queue == "payments"]
    assert Counter(one.kind for one in payments) == {"CardError": 1, "TimeoutError": 1}
    for one in payments:
        assert (one.before, one.status) == (0, "dead")
        assert '"order":' in (one.value or "")
        assert "gateway.py" in one.error
        assert one.example in text
    shown = re.findall(r'<div class="code command"><code>([^<]+)</code>', text)
    words = [shlex.split(line.replace("&#x27;", "'")) for line in shown]
    assert len(words) == len(told.figures.reasons)
    assert words[0][:5] == ["holdfast", "pipeline", "replay", "--dead", "payments"]
    assert words[0][5:] == ["--reason", payments[0].fingerprint, "--url", told.url]


def test_workers_that_differ_are_named(told: Told) -> None:
    assert sum(one.ended for one in told.figures.workers) == told.figures.ended
    slow = re.findall(r'([\w/-]+)<span class="sub">[^<]*</span> <span class="pill warn">slow', told.page.read_text())
    assert slow == ["thumbnails-2"]


def test_backlog_is_what_came_less_what_ended(told: Told) -> None:
    assert told.figures.period is not None
    for one in told.figures.queues:
        own = [each for each in told.figures.buckets if each.queue == one.queue]
        course = backlog(own, one.backlog_first, told.figures.period)
        assert len(course) == told.figures.period.steps
        assert course[-1] == one.backlog_last == one.backlog_first + one.arrived - one.ended
        assert min(course) >= 0


def test_without_a_store_the_page_says_what_it_does_not_know(
    spark: SparkSession, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    done = jobs.report(spark, told.folder / "lake", told.folder / "alone", queues=["emails"], payloads=False)
    text = Path(done.page).read_text()
    assert "The lake knows what ended, not what waits." in text
    assert "arrivals and backlog are too low" in " ".join(text.split())
    assert "Its payload" not in text


def test_a_store_that_does_not_answer_is_said(spark: SparkSession, told: Told, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no folder")
    done = jobs.report(spark, told.folder / "lake", tmp_path / "out", url=(tmp_path / "store").as_uri())
    assert "The store did not answer" in Path(done.page).read_text()
