"""holdfast install, uninstall, doctor, maintain, recover."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli_runner import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "data")


def test_install_is_harmless_to_repeat(cli: Cli, tmp_path: Path) -> None:
    planned = cli.json("install", "--dry-run")
    assert planned["dry_run"] is True
    assert ["folder" in planned["steps"][0], "database" in planned["steps"][1]] == [True, True]
    assert not (tmp_path / "data").exists()
    for _ in range(2):
        cli("install")
    cli("queue", "create", "q")
    cli("install")
    assert cli.json("install", "--dry-run")["steps"] == []
    assert [row["name"] for row in cli.json("queue", "list")] == ["q"]


def test_uninstall_asks(cli: Cli) -> None:
    cli("queue", "create", "q")
    assert "--yes" in cli.error("uninstall", code=2)
    assert cli.out("uninstall", "--yes") == "uninstalled"
    assert cli.json("queue", "list") == []


def test_doctor_prints_a_line_per_check(cli: Cli) -> None:
    checks = cli.json("doctor")
    assert {"configuration", "store", "survives", "clock", "queues", "oldest message", "dead letters"} <= {
        check["name"] for check in checks
    }
    assert {check["state"] for check in checks} <= {"ok", "warn"}
    lines = cli.out("doctor").splitlines()
    assert len(lines) == len(checks)
    assert all(line.split()[0] in ("ok", "warn") for line in lines)


def test_doctor_warns_of_dead_letters(cli: Cli) -> None:
    cli("queue", "create", "q", "max_attempts=1")
    cli.kill("q")
    [check] = [check for check in cli.json("doctor") if check["name"] == "dead letters"]
    assert (check["state"], check["detail"]) == ("warn", "1 in q: look with `holdfast dead list QUEUE`")


@pytest.mark.parametrize("url", ["ftp://x", "file:///dev/null/x"])
def test_doctor_fails_with_exit_1(cli: Cli, url: str) -> None:
    lines = cli("doctor", "--url", url, code=1).stdout.splitlines()
    assert lines[-1].startswith("fail")


def test_doctor_tells_a_bad_environment_as_a_line_of_its_own(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LOG_LEVEL", "loud")
    assert cli("doctor", code=1).stdout.startswith("fail  configuration  HOLDFAST_LOG_LEVEL: unknown log level 'loud'")
    assert "unknown log level" in cli.error("queue", "list")


def test_maintain_says_what_was_done(cli: Cli) -> None:
    assert cli.json("maintain") == []
    cli("queue", "create", "a")
    cli("queue", "create", "b")
    assert [row["queue"] for row in cli.json("maintain")] == ["a", "b"]
    assert [row["queue"] for row in cli.json("maintain", "b")] == ["b"]
    assert cli.out("maintain").splitlines() == ["a: nothing to do", "b: nothing to do"]
    assert cli.error("maintain", "nope").startswith("holdfast: ")


def test_recover_finds_nothing_where_nothing_is_ever_late(cli: Cli) -> None:
    assert cli.json("recover") == []
    cli.out("queue", "create", "a")
    assert cli.out("recover").splitlines() == ["a: nothing was set aside"]
    assert cli.json("recover", "a", "--delete", "--yes")[0]["done"]["deleted"] == 0
    assert cli.error("recover", "nope").startswith("holdfast: there is no queue 'nope'")
