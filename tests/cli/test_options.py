"""The options that every command takes, wherever they stand; what is quiet, and in which zone times are shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from holdfast.cli.root import app
from tests.cli_runner import Cli


def run(*arguments: str, code: int = 0, input: str | None = None) -> str:
    result = CliRunner().invoke(app, list(arguments), input=input)
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout.strip()


def test_common_options_before_and_after_the_command(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    run("--url", url, "queue", "create", "jobs")
    said = [
        run("--url", url, "--json", "queue", "list"),
        run(f"--url={url}", "queue", "--json", "list"),
        run("queue", "list", "--url", url, "--json"),
        run("--json", "queue", "list", "--url", url),
    ]
    assert "jobs" in said[0]
    assert said == [said[0]] * 4
    assert len(run("--url", url, "message", "send", "jobs", "--", "-5")) == 36  # what follows -- is no option
    assert "requires an argument" in CliRunner().invoke(app, ["--url"]).output
    assert "Missing command" in CliRunner().invoke(app, ["--json"]).output


def test_quiet_prints_just_the_ids(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    assert len(cli.out("message", "send", "jobs", '{"a":1}', "--quiet")) == 36
    ids = run("--quiet", "--url", cli.url, "message", "send", "jobs", "-", input="1\n2\n").splitlines()
    assert [len(id) for id in ids] == [36, 36]
    assert cli.out("-q", "queue", "pause", "jobs") == ""
    assert cli.out("queue", "pause", "jobs") != ""


def test_times_are_local_or_utc(tmp_path: Path) -> None:
    """In a process of its own, which has a zone of its own."""
    cli = Cli(tmp_path)
    cli("queue", "create", "jobs")

    def created(*options: str) -> str:
        code = "from holdfast.cli import main; main()"
        command = [sys.executable, "-c", code, *options, "queue", "show", "jobs", "--url", cli.url]
        done = subprocess.run(
            command, env={**os.environ, "TZ": "<+0530>-5:30"}, capture_output=True, text=True, check=True, timeout=60
        )
        return next(line for line in done.stdout.splitlines() if line.startswith("created at")).split("  ")[-1].strip()

    assert created().endswith("+05:30")
    assert created("--utc").endswith("Z")
    assert created()[11:13] != created("--utc")[11:13]
