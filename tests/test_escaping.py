"""Text of others cannot steer a terminal, nor forge a line of a log or of a command's answer."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

import holdfast
from holdfast import escaping
from tests.cli_runner import Cli

HOSTILE = "no\x1b]0;owned\x07\x1b[2J\r\n2026-11-17 00:00:00 INFO holdfast all is well\x9b31m\u202egnp"
STEERING = "\x1b\x07\r\x9b\u202e"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "data")


def shows_no_steering(text: str) -> bool:
    return not any(each in text for each in STEERING) and "\n2026-11-17 00:00:00 INFO" not in text


def test_what_steers_is_written_out() -> None:
    assert escaping.one_line("plain é 日本 😀") == "plain é 日本 😀"
    assert escaping.one_line("a\nb\tc\x1b[0m\x00\u2028\udc80") == r"a\nb\tc\x1b[0m\x00\u2028\udc80"
    assert escaping.many_lines("a\nb\x1b") == "a\nb\\x1b"
    assert json.loads(escaping.in_json(json.dumps(HOSTILE, ensure_ascii=False))) == HOSTILE
    assert shows_no_steering(escaping.one_line(HOSTILE))


async def bury(url: str) -> str:
    """A dead letter whose value, headers and error are hostile."""
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("q", max_attempts=1)
        id = await queue.enqueue({"name": HOSTILE}, headers={"k": HOSTILE})
        delivery = await queue.dequeue()
        assert delivery is not None
        await delivery.fail(ValueError(HOSTILE))
    return id


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("command", [("dead", "list", "q"), ("message", "show", "q")])
def test_commands_show_text_as_text(cli: Cli, command: tuple[str, ...], form: tuple[str, ...]) -> None:
    id = asyncio.run(bury(cli.url))
    output = cli(*command, *([id] if command[0] == "message" else []), *form).stdout
    assert "owned" in output
    assert shows_no_steering(output)
    if form:
        found = json.loads(output)
        assert HOSTILE in (found[0] if isinstance(found, list) else found)["error"]


def test_errors_of_commands_are_one_line(cli: Cli) -> None:
    said = cli.error("queue", "show", HOSTILE)
    assert shows_no_steering(said)
    assert len(said.splitlines()) == 1


async def test_the_log_of_a_worker_is_one_line_for_each_record(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(value: str) -> None:
        raise ValueError(value)

    done = asyncio.Event()
    async with holdfast.connect("memory://") as broker:
        queue = await broker.queue("q", max_attempts=1)
        broker.on("message.dead", lambda event: done.set())
        with caplog.at_level(logging.WARNING, "holdfast"):
            async with queue.worker(handle):
                await queue.enqueue(HOSTILE)
                await asyncio.wait_for(done.wait(), 10)
    told = [record.getMessage() for record in caplog.records]
    assert any("all is well" in text for text in told)
    assert all(shows_no_steering(text) and "\n" not in text for text in told)


def test_a_traceback_is_set_in(caplog: pytest.LogCaptureFixture) -> None:
    logger = escaping.logger_named("holdfast.tests")
    assert escaping.logger_named("holdfast.tests") is logger
    assert len(logger.filters) == 1
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("%s failed: %d", HOSTILE, 7)
    [record] = [each for each in caplog.records if each.name == "holdfast.tests"]
    assert record.getMessage().endswith("failed: 7")
    # Not caplog.text: where Spark has a logger that does not propagate, pytest's handler gets Spark's JSON format.
    shown = logging.Formatter().format(record)
    assert shows_no_steering(shown)
    assert "  Traceback (most recent call last)" in shown
