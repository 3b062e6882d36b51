"""The report: its numbers are those of a recount in plain Python, and the page shows them."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import math
import random
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.causes import cause
from holdfast.spark import jobs
from holdfast.spark.lake import Change, Lake
from holdfast.spark.lake.tables import MESSAGES, PARTITIONS, arrow_schema, as_table
from holdfast.spark.lake.writing import Writer
from holdfast.spark.report.figures import Figures
from holdfast.spark.report.measure import measure
from holdfast.spark.report.page import page
from tests.spark.jobs.stories import story

DAY = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)


def records_of(url: str, queues: list[str]) -> list[tuple[str, holdfast.Record[Any]]]:
    """What the store itself says, message by message."""

    async def read() -> list[tuple[str, holdfast.Record[Any]]]:
        async with holdfast.connect(url) as broker:
            found = []
            for name in queues:
                queue = await broker.queue(name, create=False)
                for letters in (queue.archive, queue.dead):
                    found += [(name, record) for record in await letters.list(limit=10_000)]
            return found

    return asyncio.run(read())


def rank(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def test_numbers_equal_a_recount(spark: SparkSession, tmp_path: Path) -> None:
    url = story(tmp_path, "emails", 300)
    story(tmp_path, "notes", 120)
    jobs.lake(spark, [], tmp_path / "lake", url=url)
    done = jobs.report(spark, tmp_path / "lake", tmp_path / "out")
    figures = msgspec.json.decode((tmp_path / "out" / "report.json").read_bytes(), type=Figures)
    records = records_of(url, ["emails", "notes"])
    assert (done.messages, done.queues) == (len(records), 2)

    assert figures.period is not None
    step = figures.period.step
    ends_at = Counter((name, int(one.finished_at.timestamp()) // step * step, one.status) for name, one in records)
    found = {
        (row.queue, row.at, end): getattr(row, end)
        for row in figures.buckets
        for end in ("completed", "dead", "failed")
    }
    assert {key: count for key, count in found.items() if count} == dict(ends_at)
    came = sum(row.arrived for row in figures.buckets) + sum(one.backlog_first for one in figures.queues)
    assert came == len(records)
    assert all(one.backlog_last == 0 for one in figures.queues)

    by = Counter((one.worker, one.status) for _, one in records)
    held = {(one.worker, end): getattr(one, end) for one in figures.workers for end in ("completed", "dead", "failed")}
    assert {key: count for key, count in held.items() if count} == dict(by)

    tries = Counter((name, one.attempts, one.status) for name, one in records)
    counted = {
        (row.queue, row.attempts, end): getattr(row, end)
        for row in figures.tries
        for end in ("completed", "dead", "failed")
    }
    assert {key: count for key, count in counted.items() if count} == dict(tries)

    reasons = Counter((name, cause(one.error).fingerprint) for name, one in records if one.error)
    assert {(row.queue, row.fingerprint): row.count for row in figures.reasons} == dict(reasons)

    ends = {
        "wait": ("enqueued_at", "claimed_at"),
        "run": ("claimed_at", "finished_at"),
        "total": ("enqueued_at", "finished_at"),
    }
    for queue, metric in itertools.product(("emails", "notes", ""), ends):
        start, end = ends[metric]
        of_queue = [one for name, one in records if queue in (name, "")]
        spans = [(getattr(one, end) - getattr(one, start)).total_seconds() for one in of_queue]
        seen = figures.of(metric, queue)
        assert seen is not None
        assert (seen.count, seen.mean) == (len(spans), pytest.approx(sum(spans) / len(spans), abs=2e-6))
        for share, value in ((0.5, seen.p50), (0.9, seen.p90), (0.95, seen.p95), (0.99, seen.p99), (1.0, seen.most)):
            assert value == pytest.approx(rank(spans, share), abs=2e-6), (queue, metric, share)
    hot = figures.queues[0]
    assert (hot.queue, hot.ended, hot.attempts) == (
        "emails",
        300,
        sum(one.attempts for name, one in records if name == "emails"),
    )


def synthetic(place: Path, count: int) -> tuple[Lake, list[tuple[float, float]]]:
    """A lake of two days, with instants of claims, and the spans of wait and run that are in it."""
    chance, spans, rows = random.Random(5), [], []
    for number in range(count):
        wait, run = chance.expovariate(2.0), chance.lognormvariate(-2, 1)
        born = DAY + datetime.timedelta(seconds=86400 * 2 * number / count * 0.98)
        claimed = born + datetime.timedelta(seconds=wait)
        ended = claimed + datetime.timedelta(seconds=run)
        spans.append(((claimed - born).total_seconds(), (ended - claimed).total_seconds()))
        moments = {"enqueued_at": born, "claimed_at": claimed, "finished_at": ended}
        rows.append({"id": str(number), "queue": "q", "status": "completed", "attempts": 1, **moments})
    schema = pa.schema([field for field in arrow_schema(MESSAGES) if field.name in rows[0]])
    lake = Lake(place)
    writer = Writer(lake.messages.place, PARTITIONS[MESSAGES])
    writer.write(as_table(pa.Table.from_pylist(rows, schema=schema), MESSAGES))
    lake.messages.commit(lake.state(), Change("WRITE", add=tuple(writer.close())))
    return lake, spans


def test_sketches_are_near_the_truth_and_merge(spark: SparkSession, tmp_path: Path) -> None:
    lake, spans = synthetic(tmp_path / "lake", 20_000)
    figures = measure(spark, lake, lake.state().version)
    for place, metric in enumerate(("wait", "run")):
        truth = sorted(pair[place] for pair in spans)
        seen = figures.of(metric, "q")
        assert seen is not None
        for share, value in ((0.5, seen.p50), (0.9, seen.p90), (0.95, seen.p95), (0.99, seen.p99)):
            off = sum(one <= value for one in truth) / len(truth) - share
            assert abs(off) < 0.01, (metric, share, off)
        days = [one for one in figures.latency if (one.metric, one.queue) == (metric, "q") and one.day]
        assert [one.day for one in days] == ["2026-03-01", "2026-03-02"]
        assert sum(one.count for one in days) == seen.count == 20_000
        frame = spark.createDataFrame([(bytearray(one.sketch),) for one in days], "s binary")
        merged = frame.selectExpr("kll_sketch_get_quantile_double(kll_merge_agg_double(s), 0.5d) as p").first()
        assert merged is not None
        assert merged.p == pytest.approx(seen.p50, rel=0.05)
    half = DAY.timestamp() + 86400
    assert measure(spark, lake, lake.state().version, since=half).ended == sum(
        one.ended for one in figures.buckets if one.at >= half
    )
    assert "By day" in page(figures)
    assert "from the last claim to the end" in page(figures)


class Balanced(HTMLParser):
    """Notes what is opened and not closed, and the text of cells."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.heads: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        """Closed as it is opened."""

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.cells.append(data)
        if self.open and self.open[-1] in ("th", "h3"):
            self.heads.append(data)


def test_the_page_stands_alone_and_shows_the_numbers(spark: SparkSession, tmp_path: Path) -> None:
    url = story(tmp_path, "emails", 200)
    jobs.lake(spark, "emails", tmp_path / "lake", url=url)
    jobs.report(spark, tmp_path / "lake", tmp_path / "out", queues=["emails"])
    text = (tmp_path / "out" / "report.html").read_text()
    assert not re.search(r"<script|<link|src=|url\(|https?://", text)
    parser = Balanced()
    parser.feed(text)
    assert (parser.open, parser.wrong) == ([], [])
    assert "200" in parser.cells
    assert {"emails", "ValueError: order # has no street"} <= set(parser.heads)
    names = {path.stem for path in (tmp_path / "out" / "tables").iterdir()}
    assert names == {"queues", "throughput", "latency", "course", "retries", "reasons", "workers", "before"}
    rows = pq.read_table(tmp_path / "out" / "tables" / "throughput.parquet").to_pylist()
    assert sum(row["completed"] + row["dead"] + row["failed"] for row in rows) == 200


def test_an_empty_time_is_a_page_too(spark: SparkSession, tmp_path: Path) -> None:
    url = story(tmp_path, "emails", 5)
    jobs.lake(spark, "emails", tmp_path / "lake", url=url)
    done = jobs.report(spark, tmp_path / "lake", tmp_path / "out", until=DAY)
    assert done.messages == 0
    assert "Nothing ended in this time" in Path(done.page).read_text()
    assert pq.read_table(tmp_path / "out" / "tables" / "reasons.parquet").num_rows == 0
