"""holdfast pipeline: the commands do what the functions do; the demo ends with the lake and the report."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import holdfast
from holdfast.cli import pipeline
from holdfast.cli.root import app
from holdfast.spark.jobs import Progress, session
from tests.cli_runner import Cli
from tests.spark.jobs.stories import dead_of, story

HANDLERS = "tests.spark.jobs.fleet_handlers"


@pytest.fixture
def cli(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Its jobs run in the session of the tests, which must outlive them."""
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    return Cli(tmp_path / "store")


def test_lake_report_and_compact(cli: Cli, tmp_path: Path) -> None:
    story(tmp_path, count=100)
    lake, out = str(tmp_path / "lake"), str(tmp_path / "out")
    assert (
        cli.out("pipeline", "lake", "emails", lake).splitlines()[0]
        == f"added 100 messages to {lake}, which now has 100"
    )
    assert cli.json("pipeline", "lake", lake)["added"] == 0
    told = cli.out("pipeline", "report", lake, out, "--since", "2020-01-01").splitlines()[0]
    assert told == f"100 messages of 1 queues: open {out}/report.html"
    assert cli.json("pipeline", "compact", lake, "--dry-run")["files"] >= 2
    dry = cli.json("pipeline", "replay", "--dead", "emails", "--dry-run", "--reason", "no street")
    assert dry["replayed"] == dead_of(100) // 2
    assert cli.json("pipeline", "replay", "--dead", "emails", "--reason", "no street")["replayed"] == dry["replayed"]


def test_ingest_and_process(cli: Cli, tmp_path: Path) -> None:
    cli("queue", "create", "orders", "max_attempts=2", "retry={policy: fixed, delay: 0}")
    (tmp_path / "orders.csv").write_text("n,urgency\n1,3\n5,0\n7,high\n")
    load = ["pipeline", "ingest", str(tmp_path / "orders.csv"), "orders", "--priority", "urgency"]
    assert cli.out(*load, "--dry-run").splitlines()[0] == "would add 2 messages to orders, 1 rejected"
    assert (
        cli.out(*load, "--rejects", str(tmp_path / "bad")).splitlines()[0] == "added 2 messages to orders, 1 rejected"
    )
    done = cli.json("pipeline", "process", "orders", f"{HANDLERS}:ship", "--tasks", "1", "--timeout", "10s")
    assert (done["completed"], done["dead"], done["left"]) == (1, 1, 0)  # 5 always fails


def test_table(cli: Cli, tmp_path: Path) -> None:
    story(tmp_path, count=2)
    cli("queue", "create", "orders")
    for number in (1, 2, "x"):
        cli("message", "send", "orders", json.dumps({"n": number}))
    table = ["pipeline", "table", "orders", str(tmp_path / "table"), "--type", "tests.spark.jobs.table_types:Order"]
    told = cli.out(*table, "--by-day", "--keep", "priority").splitlines()[0]
    assert told == f"added 2 rows to {tmp_path / 'table'}, 1 messages could not be read"
    again = cli.json(*table, "--by-day", "--keep", "priority")
    assert (again["rows"], again["dead"], again["batches"]) == (0, 0, 0)
    assert "is not a table of this type" in cli.error(*table)
    assert "unknown format" in cli.error(*table, "--format", "orc")


def test_what_is_wrong_is_one_line(cli: Cli, tmp_path: Path) -> None:
    story(tmp_path, count=1)
    assert "there is no lake at" in cli.error("pipeline", "report", str(tmp_path / "none"), "out")
    assert "did you mean 'emails'" in cli.error("pipeline", "lake", "email", str(tmp_path / "lake"))
    assert "Give a lake, or dead=QUEUE" in cli.error("pipeline", "replay")
    assert "key=value" in cli.error("pipeline", "lake", "x", "--conf", "nonsense", code=2)


def test_no_java_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.spark.jobs.session import missing

    monkeypatch.setenv("PATH", "/nowhere")
    for name in ("JAVA_HOME", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    sentence = missing()
    assert sentence is not None
    assert "Java 17" in sentence
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: None))
    with pytest.raises(holdfast.ConfigError, match="Java 17"):
        session()


def test_progress_in_a_line() -> None:
    assert pipeline.line_of(Progress("process orders", 1200, 5000, 310.4, 12.0)) == (
        "process orders: 1,200 of 5,000, 310.4/s, oldest waits 12 s"
    )


def test_the_demo_ends_with_the_lake_and_the_report(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # the report stays where it is
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 0, result.output
    [page] = [line.partition(": ")[2] for line in result.stdout.splitlines() if line.startswith("the report")]
    assert "<svg" in Path(page).read_text()


def test_the_demo_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast import demo

    said: list[str] = []
    monkeypatch.setattr(demo, "_lacking", lambda: "Spark needs Java")
    import asyncio

    asyncio.run(demo.Story("file:///nowhere", say=said.append, pipeline=True).keep_and_measure())
    assert said == ["\nLake and report", "left out: Spark needs Java"]
