"""holdfast queue …"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli_runner import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "data")


def test_create_with_options_and_show(cli: Cli) -> None:
    assert cli.out("queue", "create", "emails", "lease=60", "retry={policy: fixed, delay: 5}") == "created emails"
    shown = cli.json("queue", "show", "emails")
    assert shown["options"]["lease"] == 60
    assert shown["options"]["retry"] == {"policy": "fixed", "delay": 5}
    assert shown["stats"]["total"] == 0
    text = cli.out("queue", "show", "emails")
    assert "max attempts      3" in text
    assert "pending       0" in text


def test_creating_twice_fails(cli: Cli) -> None:
    cli("queue", "create", "emails")
    assert "emails" in cli.error("queue", "create", "emails")


def test_list_is_a_table_or_an_array(cli: Cli) -> None:
    assert "no queues yet" in cli.out("queue", "list")
    assert cli.json("queue", "list") == []
    for name in ("b", "a"):
        cli("queue", "create", name)
    cli("message", "send", "b", "1")
    rows = cli.json("queue", "list")
    assert [(row["name"], row["pending"]) for row in rows] == [("a", 0), ("b", 1)]
    heading, first, second = cli.out("queue", "list").splitlines()
    assert heading.split()[:3] == ["name", "paused", "pending"]
    assert first.split()[:3] == ["a", "no", "0"]
    assert second.split()[:3] == ["b", "no", "1"]


def test_configure(cli: Cli) -> None:
    cli("queue", "create", "emails")
    assert cli.out("queue", "configure", "emails", "lease=90", "archive=false") == "configured emails: lease, archive"
    options = cli.json("queue", "show", "emails")["options"]
    assert (options["lease"], options["archive"], options["max_attempts"]) == (90, False, 3)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("leese=5", "did you mean 'lease'"),
        ("lease=-1", "lease"),
        ("lease=soon", "lease"),
        ("retry={policy: x}", "retry"),
    ],
)
def test_configure_refuses_bad_options(cli: Cli, option: str, words: str) -> None:
    cli("queue", "create", "emails")
    assert words in cli.error("queue", "configure", "emails", option)


@pytest.mark.parametrize("arguments", [["emails"], ["emails", "lease"], ["emails", "=5"]])
def test_configure_usage(cli: Cli, arguments: list[str]) -> None:
    cli("queue", "create", "emails")
    cli.error("queue", "configure", *arguments, code=2)


def test_metrics_of_one_and_of_all(cli: Cli) -> None:
    cli("message", "send", "a", "1")
    cli("message", "send", "b", "1", "--delay", "1h")
    assert cli.json("queue", "metrics", "b")["delayed"] == 1
    assert [row["name"] for row in cli.json("queue", "metrics")] == ["a", "b"]
    assert "completed" in cli.out("queue", "metrics")
    assert "delayed       1" in cli.out("queue", "metrics", "b")


def test_pause_and_resume(cli: Cli) -> None:
    cli("message", "send", "a", "1")
    cli("queue", "pause", "a")
    assert cli.json("queue", "show", "a")["paused"] is True
    assert cli.json("message", "read", "a") == []
    cli("queue", "resume", "a")
    assert len(cli.json("message", "read", "a")) == 1


def test_purge_asks_a_person_and_refuses_without_one(cli: Cli) -> None:
    cli("message", "send", "a", "-", input="1\n2\n3\n")
    assert "--yes" in cli.error("queue", "purge", "a", code=2)
    assert cli.json("queue", "show", "a")["stats"]["pending"] == 3
    assert cli.json("queue", "purge", "a", "--yes") == {"queue": "a", "purged": 3}


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 0), ("n\n", 1, 1)])
def test_a_person_is_asked(cli: Cli, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, left: int) -> None:
    cli("message", "send", "a", "1")
    monkeypatch.setattr("holdfast.cli.shell.is_a_person", lambda: True)
    asked = cli("queue", "purge", "a", input=answer, code=code)
    assert "Drop everything that waits in a?" in asked.stderr
    assert cli.json("queue", "show", "a")["stats"]["pending"] == left


def test_delete(cli: Cli) -> None:
    cli("message", "send", "a", "1")
    assert "--yes" in cli.error("queue", "delete", "a", code=2)
    cli.error("queue", "delete", "a", "--yes")
    cli("queue", "delete", "a", "--yes", "--force")
    assert cli.json("queue", "list") == []


@pytest.mark.parametrize("command", ["show", "configure", "metrics", "purge", "delete", "pause", "resume"])
def test_a_missing_queue_is_one_clear_line(cli: Cli, command: str) -> None:
    extra = {"configure": ["lease=1"], "purge": ["--yes"], "delete": ["--yes"]}.get(command, [])
    assert cli.error("queue", command, "nope", *extra) == "holdfast: there is no queue 'nope'\n"


@pytest.mark.parametrize("name", ["../up", "a b", "", "x" * 200])
def test_a_bad_name_is_refused(cli: Cli, name: str) -> None:
    assert "bad queue name" in cli.error("queue", "create", name)
