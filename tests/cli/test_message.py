"""holdfast message …"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli_runner import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "data")


def test_send_read_complete(cli: Cli) -> None:
    id = cli.out("message", "send", "emails", '{"to": "ada"}', "--priority", "5", "--header", "trace=a=b")
    [held] = cli.json("message", "read", "emails", "--lease", "2m")
    assert held["id"] == id
    assert held["value"] == {"to": "ada"}
    assert held["priority"] == 5
    assert held["headers"] == {"trace": "a=b"}
    assert (held["attempt"], held["max_attempts"]) == (1, 3)
    assert cli.out("message", "complete", "emails", held["receipt"], "--result", '{"sent": true}') == "completed"
    record = cli.json("message", "show", "emails", id)
    assert (record["status"], record["result"], record["attempts"]) == ("completed", {"sent": True}, 1)


def test_a_receipt_works_once_and_repeats_are_success(cli: Cli) -> None:
    cli("message", "send", "q", "1")
    [held] = cli.json("message", "read", "q")
    cli("message", "complete", "q", held["receipt"])
    cli("message", "complete", "q", held["receipt"])
    cli.error("message", "complete", "q", "no-receipt")


def test_read_prints_receipts_for_people(cli: Cli) -> None:
    cli("message", "send", "q", "-", input='"one"\n"two"\n')
    text = cli.out("message", "read", "q", "--count", "5")
    assert text.count("receipt ") == 2
    assert "value         one" in text
    assert "nothing to read" in cli("message", "read", "q").stderr
    assert cli.json("message", "read", "q", "--wait", "0.05") == []


def test_show_and_list_say_who_held_it_and_what_was_tried(cli: Cli) -> None:
    cli("queue", "create", "q", "max_attempts=3")
    id = cli.out("message", "send", "q", "1")
    [held] = cli.json("message", "read", "q")
    cli("message", "fail", "q", held["receipt"], "--error", "no route", "--retry-in", "0")
    [held] = cli.json("message", "read", "q", "--wait", "5")
    [listed] = cli.json("message", "list", "q", "--state", "processing")
    record = cli.json("message", "show", "q", id)
    assert listed["worker"] == record["worker"] is not None
    assert record["max_attempts"] == 3
    assert [(each["error"], each["worker"]) for each in record["history"]] == [("no route", listed["worker"])]
    assert listed["worker"] in cli.out("message", "list", "q", "--state", "processing")
    text = cli.out("message", "show", "q", id)
    title, line = text.splitlines()[-2:]
    assert title.split() == ["start", "end", "worker", "error"]
    assert line.endswith(f"{listed['worker']}  no route")


def test_fail_retries_then_dies(cli: Cli) -> None:
    cli("queue", "create", "q", "max_attempts=2")
    id = cli.out("message", "send", "q", "1")
    [held] = cli.json("message", "read", "q")
    assert (
        cli.out("message", "fail", "q", held["receipt"], "--error", "no route", "--retry-in", "0")
        == "failed; now pending"
    )
    [held] = cli.json("message", "read", "q", "--wait", "5")
    assert cli.json("message", "fail", "q", held["receipt"])["status"] == "dead"
    assert cli.json("message", "show", "q", id)["error"] == "failed by hand"


def test_cancel(cli: Cli) -> None:
    id = cli.out("message", "send", "q", "1", "--delay", "1h")
    assert cli.json("message", "show", "q", id)["status"] == "delayed"
    cli("message", "cancel", "q", id)
    assert cli.json("message", "show", "q", id)["status"] == "failed"
    assert "only what waits can be cancelled" in cli.error("message", "cancel", "q", id)


def test_expiry(cli: Cli) -> None:
    soon = cli.out("message", "send", "q", "1", "--expires", "1h")
    late = cli.out("message", "send", "q", "2", "--expires", "2100-01-31T12:00:00")
    past = cli.out("message", "send", "q", "3", "--expires", "2001-01-31")
    assert cli.json("message", "show", "q", soon)["expires"] is not None
    assert cli.json("message", "show", "q", late)["expires"] == "2100-01-31T12:00:00Z"
    held = cli.json("message", "read", "q", "--count", "3")
    assert [each["id"] for each in held] == [soon, late]
    assert held[1]["expires"] == "2100-01-31T12:00:00Z"
    assert cli.json("message", "show", "q", past)["error"] == "expired"


def test_dedup_key(cli: Cli) -> None:
    first = cli.out("message", "send", "q", "1", "--dedup-key", "k")
    assert cli.out("message", "send", "q", "2", "--dedup-key", "k") == first
    assert cli.json("queue", "show", "q")["stats"]["pending"] == 1
    assert "for one message" in cli.error("message", "send", "q", "-", "--dedup-key", "k", input="1\n", code=2)


def test_dedup_key_that_holds_until_the_message_ends(cli: Cli) -> None:
    send = ("message", "send", "q", "--dedup-key", "k")
    [first] = cli.json(*send, "1", "--dedup", "alive", "--report")
    assert (first["new"], first["replaced"]) == (True, False)
    assert cli.out(*send, "2", "--dedup", "alive") == first["id"]
    [again] = cli.json(*send, "3", "--dedup", "waiting", "--replace", "--priority", "7", "--report")
    assert again == {"id": first["id"], "new": False, "replaced": True}
    [held] = cli.json("message", "read", "q")
    assert (held["id"], held["value"], held["priority"]) == (first["id"], 3, 7)
    [news] = cli.json(*send, "4", "--dedup", "waiting", "--report")
    assert news["new"]
    assert news["id"] != first["id"]
    assert [row["new"] for row in cli.json("message", "send", "q", "-", "--report", input="5\n6\n")] == [True, True]
    assert news["id"][:8] in cli.out(*send, "7", "--dedup", "alive", "--report")


def test_send_files(cli: Cli, tmp_path: Path) -> None:
    one = tmp_path / "one.json"
    one.write_text(json.dumps({"a": [1, 2]}, indent=2))
    cli("message", "send", "q", f"@{one}")
    many = tmp_path / "many.jsonl"
    many.write_text("".join(f"{number}\n" for number in range(25)))
    sent = cli.json("message", "send", "q", f"@{many}", "--batch-size", "10")
    assert len(set(sent["ids"])) == 25
    read = [row["value"] for row in cli.json("message", "read", "q", "--count", "100")]
    assert read == [{"a": [1, 2]}, *range(25)]


def test_send_lines_says_how_many(cli: Cli) -> None:
    assert cli.out("message", "send", "q", "-", input="1\n\n2\n") == "sent 2 messages to q"
    assert cli.json("message", "send", "q", "-", input="") == {"queue": "q", "ids": []}


def test_a_bad_line_says_what_was_sent_before_it(cli: Cli) -> None:
    error = cli.error("message", "send", "q", "-", "--batch-size", "2", input="1\n2\n3\noops\n", code=2)
    assert "line 4 is not JSON" in error
    assert "2 messages before it were sent" in error
    assert cli.json("queue", "show", "q")["stats"]["pending"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["hello"], "quotes"),
        (["@/no/such/file"], "there is no file"),
        (["1", "--priority", "256"], "priority"),
        (["1", "--priority", "-1"], "priority"),
        (["1", "--delay", "soon"], "no time"),
        (["1", "--expires", "soon"], "no time"),
        (["1", "--header", "x"], "key=value"),
        (["1", "--dedup", "alive"], "--dedup-key"),
        (["1", "--dedup-key", "k", "--dedup", "forever"], "'waiting'"),
        (["1", "--dedup-key", "k", "--replace"], "--dedup alive"),
        ([], "Missing argument"),
    ],
)
def test_usage_errors(cli: Cli, arguments: list[str], words: str) -> None:
    assert words in cli.error("message", "send", "q", *arguments, code=2)
    assert cli.json("queue", "list") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["read", "nope"],
        ["show", "nope", "x"],
        ["complete", "nope", "r"],
        ["fail", "nope", "r"],
        ["cancel", "nope", "x"],
    ],
)
def test_a_missing_queue(cli: Cli, arguments: list[str]) -> None:
    assert cli.error("message", *arguments) == "holdfast: there is no queue 'nope'\n"


def test_unknown_messages(cli: Cli) -> None:
    cli("queue", "create", "q")
    unknown = "01a1e160-675f-7000-814e-56320f600000"
    for command in ("show", "cancel"):
        assert unknown in cli.error("message", command, "q", unknown)


def test_text_with_markup_stays_text(cli: Cli) -> None:
    cli("queue", "create", "q", "max_attempts=1")
    cli.kill("q", '"[red]boo[/red]"')
    assert "[red]boo[/red]" in cli.out("dead", "list", "q")


def test_files_that_are_no_text_are_a_usage_error(cli: Cli, tmp_path: Path) -> None:
    for name, data in {"one.json": b'"\xff"', "many.jsonl": b'1\n"\xff"\n'}.items():
        (tmp_path / name).write_bytes(data)
        assert "is not JSON: it is no UTF-8 text" in cli.error("message", "send", "q", f"@{tmp_path / name}", code=2)
    assert cli.json("queue", "list") == []


def test_parts_beyond_their_limits_are_refused_and_no_queue_is_made(cli: Cli) -> None:
    deep = "[" * 5000 + "]" * 5000
    assert "levels" in cli.error("message", "send", "q", deep, code=2)
    assert "line 2" in cli.error("message", "send", "q", "-", input=f"1\n{deep}\n", code=2)
    assert "the limit is 65536" in cli.error("message", "send", "q", "1", "--header", f"k={'v' * 65_536}")
    assert "the limit is 1024" in cli.error("message", "send", "q", "1", "--dedup-key", "k" * 1025)
    assert cli.json("queue", "list") == []
    cli("queue", "create", "q", "max_message_size=10")
    cli("message", "send", "q", '"small"')
    [held] = cli.json("message", "read", "q")
    assert "the limit is 10" in cli.error("message", "complete", "q", held["receipt"], "--result", '"12345678901"')
    cli("message", "fail", "q", held["receipt"], "--error", "x" * 10_000, "--retry-in", "0")
    assert cli.json("message", "show", "q", held["id"])["error"].endswith("(cut)")


def test_list_and_peek_show_what_waits_without_claiming_it(cli: Cli) -> None:
    low = cli.out("message", "send", "q", "1")
    high = cli.out("message", "send", "q", "2", "--priority", "9")
    later = cli.out("message", "send", "q", "3", "--delay", "1h")
    assert [row["id"] for row in cli.json("message", "list", "q")] == sorted([low, high])
    assert [row["id"] for row in cli.json("message", "list", "q", "--limit", "1", "--after", min(low, high))] == [
        max(low, high)
    ]
    assert [row["id"] for row in cli.json("message", "list", "q", "--state", "delayed")] == [later]
    assert [row["value"] for row in cli.json("message", "peek", "q")] == [2, 1]
    assert [row["value"] for row in cli.json("message", "peek", "q", "--limit", "1")] == [2]
    assert cli.out("message", "list", "q", "--state", "retry") == "nothing is retry"
    assert "'processing'" in cli.error("message", "list", "q", "--state", "dead", code=2)


def test_change_take_back_and_cancel_what_runs(cli: Cli) -> None:
    id = cli.out("message", "send", "q", "1")
    assert cli.json("message", "change", "q", id, "--value", '{"n": 2}', "--priority", "9", "--delay", "1h")[
        "status"
    ] == ("delayed")
    assert "--priority" in cli.error("message", "change", "q", id, code=2)
    cli("message", "change", "q", id, "--delay", "0")
    [held] = cli.json("message", "read", "q", "--lease", "1h")
    assert (held["id"], held["value"], held["priority"]) == (id, {"n": 2}, 9)
    cli.error("message", "change", "q", id, "--priority", "1")
    assert cli.json("message", "take-back", "q", id)["taken_back"] == 1
    cli.error("message", "complete", "q", held["receipt"])
    [held] = cli.json("message", "read", "q", "--lease", "1h")
    assert held["attempt"] == 2
    assert "--worker" in cli.error("message", "take-back", "q", code=2)
    assert "--worker" in cli.error("message", "take-back", "q", id, "--worker", "w", code=2)
    assert cli.json("message", "take-back", "q", "--worker", "nobody")["taken_back"] == 0
    cli.error("message", "cancel", "q", id)
    assert cli.json("message", "cancel", "q", id, "--running")["status"] == "failed"
    cli.error("message", "complete", "q", held["receipt"])
