"""holdfast dead … and holdfast archive …"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli_runner import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    cli = Cli(tmp_path / "data")
    cli("queue", "create", "q", "max_attempts=1")
    return cli


def finish(cli: Cli, value: str) -> str:
    """A completed message; its id."""
    cli("message", "send", "q", value)
    [held] = cli.json("message", "read", "q")
    cli("message", "complete", "q", held["receipt"])
    return str(held["id"])


def test_list_dead(cli: Cli) -> None:
    assert cli.out("dead", "list", "q") == "no dead letters"
    ids = [cli.kill("q", str(number)) for number in range(3)]
    rows = cli.json("dead", "list", "q")
    assert [row["id"] for row in rows] == ids
    assert rows[0]["error"] == "broken"
    assert [row["id"] for row in cli.json("dead", "list", "q", "--limit", "1", "--after", ids[0])] == [ids[1]]
    text = cli.out("dead", "list", "q")
    assert all(id in text for id in ids)


def test_replay_some_and_all(cli: Cli) -> None:
    ids = [cli.kill("q", str(number)) for number in range(4)]
    assert cli.json("dead", "replay", "q", ids[0]) == {"queue": "q", "replayed": 1}
    assert cli.out("dead", "replay", "q") == "replayed 3 dead letters of q"
    assert cli.out("dead", "replay", "q") == "replayed 0 dead letters of q"
    rows = cli.json("message", "read", "q", "--count", "10")
    assert sorted(row["value"] for row in rows) == [0, 1, 2, 3]
    assert sorted(row["headers"]["replayed_from"] for row in rows) == sorted(ids)


def test_delete_and_purge_dead(cli: Cli) -> None:
    ids = [cli.kill("q", str(number)) for number in range(3)]
    assert "--yes" in cli.error("dead", "delete", "q", ids[0], code=2)
    assert cli.json("dead", "delete", "q", ids[0], "--yes")["deleted"] == 1
    assert "--yes" in cli.error("dead", "purge", "q", code=2)
    assert cli.json("dead", "purge", "q", "--yes")["deleted"] == 2
    assert cli.json("dead", "list", "q") == []


def test_list_archive(cli: Cli) -> None:
    assert cli.out("archive", "list", "q") == "the archive is empty"
    id = finish(cli, "7")
    [row] = cli.json("archive", "list", "q")
    assert (row["id"], row["status"], row["value"]) == (id, "completed", 7)
    assert row["finished_at"] >= row["enqueued_at"]
    assert "completed" in cli.out("archive", "list", "q")


def test_replay_archive(cli: Cli) -> None:
    first, second = finish(cli, "1"), finish(cli, "2")
    assert cli.json("archive", "replay", "q", first)["replayed"] == 1
    assert cli.json("archive", "replay", "q", "--until", "2020-01-01")["replayed"] == 0
    assert cli.json("archive", "replay", "q", "--since", "2020-01-01")["replayed"] == 1, "the first was there already"
    rows = cli.json("message", "read", "q", "--count", "10")
    assert sorted(row["headers"]["replayed_from"] for row in rows) == sorted([first, second])


@pytest.mark.parametrize("arguments", [[], ["some-id", "--since", "2020-01-01"], ["--since", "yesterday"]])
def test_replay_archive_usage(cli: Cli, arguments: list[str]) -> None:
    cli.error("archive", "replay", "q", *arguments, code=2)


def test_purge_archive(cli: Cli) -> None:
    finish(cli, "1")
    cli.kill("q")
    assert "--yes" in cli.error("archive", "purge", "q", code=2)
    assert cli.json("archive", "purge", "q", "--yes", "--older-than", "1d")["deleted"] == 0
    assert cli.json("archive", "purge", "q", "--yes")["deleted"] == 1
    assert len(cli.json("dead", "list", "q")) == 1


@pytest.mark.parametrize("group", ["dead", "archive"])
def test_a_missing_queue(cli: Cli, group: str) -> None:
    assert cli.error(group, "list", "nope") == "holdfast: there is no queue 'nope'\n"
