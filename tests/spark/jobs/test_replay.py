"""replay: what a dry run counts goes back, each message once, whatever is killed or asked for twice."""

from __future__ import annotations

import asyncio
import importlib
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.spark import jobs
from holdfast.spark.lake import Lake
from tests.spark.jobs.stories import dead_of, story


def look(url: str, name: str, view: Any = "ready") -> list[Any]:
    async def work() -> list[Any]:
        async with holdfast.connect(url) as broker:
            return await broker.store.scan(name, view, limit=10_000)

    return asyncio.run(work())


def make(url: str, name: str) -> None:
    async def work() -> None:
        async with holdfast.connect(url) as broker:
            await broker.queue(name)

    asyncio.run(work())


def test_from_a_lake_each_message_once(spark: SparkSession, tmp_path: Path) -> None:
    url, place = story(tmp_path, count=200), tmp_path / "lake"
    jobs.lake(spark, "emails", place, url=url)
    make(url, "again")
    choice: dict[str, Any] = {"url": url, "to": "again", "status": "dead"}
    dry = jobs.replay(spark, place, dry_run=True, **choice)
    assert (dry.replayed, look(url, "again")) == (dead_of(200), [])
    done = jobs.replay(spark, place, **choice)
    assert (done.replayed, done.by_queue) == (dry.replayed, {"again": dry.replayed})
    assert jobs.replay(spark, place, **choice).replayed == 0
    assert jobs.replay(spark, place, dry_run=True, **choice).replayed == 0
    # an overlapping choice takes the rest, not the same
    rest = jobs.replay(spark, place, url=url, to="again", where="attempts >= 1", limit=50)
    assert rest.replayed == 50
    found = look(url, "again")
    origins = {(one.headers or {})["replayed_from"] for one in found}
    assert len(found) == len(origins) == dry.replayed + 50
    old = {one.id: one for view in ("archive", "dead") for one in look(url, "emails", view)}
    for one in found:
        before = old[(one.headers or {})["replayed_from"]]
        assert (one.payload, one.content_type, one.attempts) == (before.payload, before.content_type, 0)
        assert (one.headers or {})["of"] == "emails"


def test_a_killed_replay_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, place = story(tmp_path, count=50), tmp_path / "lake"
    jobs.lake(spark, "emails", place, url=url)
    make(url, "again")
    replay_module: Any = importlib.import_module("holdfast.spark.jobs.replay")  # the package has the function
    publish, die = replay_module._FromLake._publish, True

    def dying(self: Any, *arguments: Any) -> None:
        if die:
            raise KeyboardInterrupt
        publish(self, *arguments)

    monkeypatch.setattr(replay_module._FromLake, "_publish", dying)
    with pytest.raises(KeyboardInterrupt):
        jobs.replay(spark, place, url=url, to="again")
    noted = Lake(place).replayed.state()
    [intent] = Lake(place).replays(noted)
    assert (noted.mark(intent.mark), noted.rows, look(url, "again")) == (1, 50, [])
    die = False
    assert jobs.replay(spark, place, url=url, to="again").replayed == 0  # nothing new, but what was begun
    assert len(look(url, "again")) == 50
    assert Lake(place).replayed.state().mark(intent.mark) == 2


def test_a_rate_spreads_what_becomes_due(spark: SparkSession, tmp_path: Path) -> None:
    url, place = story(tmp_path, count=30), tmp_path / "lake"
    jobs.lake(spark, "emails", place, url=url)
    make(url, "again")
    before = time.time()
    assert jobs.replay(spark, place, url=url, to="again", rate=0.01).replayed == 30
    due = sorted(one.visible_at for one in look(url, "again", "delayed"))
    assert len(due) >= 28  # all but what was due at once
    gaps = [later - earlier for earlier, later in pairwise(due)]
    assert min(gaps) >= 50  # the log engine lets what is due late in the same block be due together
    assert due[-1] > before + 2800


def test_dead_letters_of_one_reason(spark: SparkSession, tmp_path: Path) -> None:
    url = story(tmp_path, count=200)
    letters = look(url, "emails", "dead")
    street = [one.id for one in letters if "street" in (one.error or "")]
    from holdfast.causes import cause

    mark = cause(next(one.error for one in letters if one.id == street[0])).fingerprint
    choice: dict[str, Any] = {"dead": "emails", "url": url, "reason": mark}
    assert jobs.replay(spark, dry_run=True, **choice).replayed == len(street)
    started = time.monotonic()
    assert jobs.replay(spark, rate=2.0, **choice).replayed == len(street)
    assert time.monotonic() - started >= (len(street) - 2) / 2.0
    assert jobs.replay(spark, **choice).replayed == 0
    assert {(one.headers or {})["replayed_from"] for one in look(url, "emails")} == set(street)
    assert jobs.replay(spark, dead="emails", url=url).replayed == len(letters) - len(street)


def test_bad_input_is_said_at_once(spark: SparkSession, tmp_path: Path) -> None:
    story(tmp_path, count=1)
    for arguments, sentence in (
        ({}, "replay what"),
        ({"dead": "emails", "to": "x"}, "their own queue"),
        ({"dead": "emails", "status": "gone"}, "unknown status"),
        ({"dead": "emails", "stauts": "dead"}, "did you mean 'status'"),
        ({"lake": str(tmp_path / "none")}, "there is no lake"),
        ({"dead": "emails", "rate": 0}, "rate"),
        ({"dead": "emails", "where": "priority >"}, "Spark says: .*PARSE_SYNTAX_ERROR"),
        ({"dead": "emails", "where": "prio > 1"}, "Spark says: .*prio"),
    ):
        with pytest.raises(holdfast.ConfigError, match=sentence):
            jobs.replay(spark, url=(tmp_path / "store").as_uri(), **arguments)
