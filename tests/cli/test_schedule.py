"""holdfast schedule …"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli_runner import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    made = Cli(tmp_path / "data")
    made("queue", "create", "jobs")
    return made


def test_put_list_and_show(cli: Cli) -> None:
    assert "no schedules yet" in cli.out("schedule", "list")
    said = cli.out(
        "schedule", "put", "daily", "jobs", '{"kind": 1}', "--cron", "0 9 * * *", "--tz", "Europe/Berlin",
        "--option", "missed=all", "--option", "start=2030-01-01T00:00:00Z",
    )  # fmt: skip
    assert said == "schedule daily: next 2030-01-01 08:00:00Z"
    [row] = cli.json("schedule", "list")
    assert (row["name"], row["queue"], row["when"], row["state"]) == ("daily", "jobs", "0 9 * * *", "on")
    shown = cli.json("schedule", "show", "daily")
    assert (shown["schedule"]["value"], shown["schedule"]["missed"], shown["missed"]) == ({"kind": 1}, "all", 0)
    assert "missed slots" in cli.out("schedule", "show", "daily")


def test_pause_resume_trigger_and_delete(cli: Cli) -> None:
    cli("schedule", "put", "a", "jobs", "--every", "10m")
    cli("schedule", "pause", "a", "--until", "2090-01-01")
    assert cli.json("schedule", "list")[0]["state"] == "paused"
    cli("schedule", "resume", "a")
    id = cli.out("schedule", "trigger", "a")
    assert cli.json("message", "show", "jobs", id)["headers"]["schedule"] == "a"
    assert "yes" in cli.error("schedule", "delete", "a", code=2)
    assert cli.out("schedule", "delete", "a", "--yes") == "deleted a"
    assert "'a'" in cli.error("schedule", "show", "a")


def test_backfill_and_tick(cli: Cli) -> None:
    cli("schedule", "put", "a", "jobs", "--every", "1h")
    span = ("--since", "2026-01-01T00:00:00", "--until", "2026-01-01T05:00:00")
    assert cli.out("schedule", "backfill", "a", *span) == "6 slots of a have their message"
    cli("schedule", "backfill", "a", *span)
    assert cli.json("queue", "show", "jobs")["stats"]["pending"] == 6
    assert cli.out("schedule", "tick", "--limit", "5", "--deadline", "10") in ("fired 0 messages", "fired 1 messages")


def test_preview_marks_daylight_saving(cli: Cli) -> None:
    rows = cli.json(
        "schedule", "preview", "30 2 * * *", "--tz", "Europe/Berlin", "--since", "2026-03-28", "--count", "3"
    )
    assert [row["local"] for row in rows] == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]
    assert [bool(row["note"]) for row in rows] == [False, True, False]
    cli("schedule", "put", "a", "jobs", "--every", "60")
    assert len(cli.json("schedule", "preview", "a", "--count", "4")) == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["jobs", "--cron", "9 9"], "cron"),
        (["jobs", "--cron", "@reboot"], "@reboot"),
        (["jobs", "--cron", "@daily", "--tz", "Nowhere/Here"], "Nowhere/Here"),
        (["nowhere", "--every", "60"], "nowhere"),
        (["jobs", "--every", "60", "--option", "jiter=3"], "did you mean 'jitter'"),
        (["jobs"], "one of them"),
    ],
)
def test_what_is_wrong_is_a_sentence_and_nothing_changes(cli: Cli, arguments: list[str], words: str) -> None:
    assert words in cli.error("schedule", "put", "a", *arguments)
    assert cli.json("schedule", "list") == []
