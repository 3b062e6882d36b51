"""The examples of the pipeline run and say what they should; all in one session, one of them as the program it is."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import ROOT

EXAMPLES = ROOT / "examples" / "spark"

WRONG = "rejected, a priority is a whole number from 0 to 255"
EXPECTED = {
    "ingest_csv.py": [
        "5 rows: 3 messages, 2 rejected",
        f"{WRONG}: 3,12,urgent,fr",
        f"{WRONG}: 4,3,300,es",
        "loaded again: 0 messages",
        "first out: {'order': 1, 'amount': 20.5}, priority 9, headers {'land': 'it'}",
    ],
    "stream_to_parquet.py": ["s0: 100 readings", "s1: 100 readings", "s2: 100 readings"],
    "handler_fleet.py": ["99 completed, 1 dead, 0 left", "10 were tried again"],
    "nightly_lake.py": [
        "night 1: 100 added, 100 in the lake",
        "night 2: 100 added, 200 in the lake",
        "compacted: True",
        "report of 200 messages: report.html",
    ],
    "read_the_lake.py": [
        "Spark 120, polars 120, pyarrow 120",
        "DuckDB 120, pandas 120",
        "after compact: Spark 120, DuckDB 120",
    ],
    "fan_out.py": ["failed half way, and started again", "mails: 100", "customs: 25", "rows of the table: 100"],
    "redrive_dead_letters.py": ["would replay 30", "replayed 30", "once more: 0", "30 wait, 10 stay dead"],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_spark_example(name: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / name))["main"](spark, tmp_path)
    assert capsys.readouterr().out.splitlines() == EXPECTED[name]


def test_as_a_program(tmp_path: Path) -> None:
    """What is defined in `__main__` travels to executors too."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "handler_fleet.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == EXPECTED["handler_fleet.py"]


def test_every_spark_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)
    for path in EXAMPLES.glob("*.py"):
        assert re.search(rf"\b{path.name}\b", path.read_text().splitlines()[0]), path


@pytest.mark.parametrize(("guide", "name"), [("delta.md", "read_the_lake.py"), ("fan-out.md", "fan_out.py")])
def test_guides_show_what_the_examples_run(guide: str, name: str) -> None:
    """Their blocks are not programs of their own, but every line of them is one of the example."""
    blocks = re.findall(r"^```python no-run\n(.*?)^```$", (ROOT / "docs" / "guide" / guide).read_text(), re.M | re.S)
    there = {line.strip() for line in (EXAMPLES / name).read_text().splitlines()}
    shown = [line.strip() for block in blocks for line in block.splitlines() if line.strip()]
    assert shown
    assert [line for line in shown if line not in there] == []
