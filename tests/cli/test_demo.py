"""holdfast demo: it runs, checks itself, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast import demo
from holdfast.cli.demo import called
from holdfast.cli.root import app
from tests.cli_runner import Cli


def test_the_whole_story() -> None:
    result = CliRunner().invoke(app, ["demo", "--no-spark"])
    assert result.exit_code == 0, result.output
    chapters = [line for line in result.stdout.splitlines() if line in CHAPTERS]
    assert chapters == CHAPTERS
    assert "308 completed, 0 lost, 0 waiting" in result.stdout
    assert "Try next" in result.stdout
    assert result.stderr == ""


def test_what_to_try_next_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / ".venv" / "bin" / "holdfast"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(program), "demo"])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert called() == ".venv/bin/holdfast"
    monkeypatch.setenv("PATH", str(program.parent))
    assert called() == "holdfast"


CHAPTERS = ["Send", "Work", "Dead letters", "Archive", "Crash", "Reopen"]


def test_on_a_store_of_ones_own_it_leaves_nothing_behind(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "data")
    cli("queue", "create", "mine")
    answer = cli.json("demo", "--no-spark")
    assert answer["stats"]["completed"] == 308
    assert [row["name"] for row in cli.json("queue", "list")] == ["mine"]


async def test_a_claim_that_does_not_hold_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "BAD", 99)
    with pytest.raises(demo.DemoFailed, match="the demo claims"):
        await demo.Story(str(tmp_path / "data"), say=lambda line: None).tell()


def test_a_failed_demo_exits_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "BAD", 99)
    assert "the demo claims" in Cli(tmp_path / "data")("demo", code=1).stderr


def test_memory_is_refused_with_a_reason() -> None:
    result = CliRunner().invoke(app, ["demo", "--url", "memory://"])
    assert result.exit_code == 1
    assert "two processes" in result.stderr
