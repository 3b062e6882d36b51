"""The log as JSON."""

from __future__ import annotations

import json
import logging
import sys

from holdfast.log_lines import formatter


def record(message: str, *values: object, error: BaseException | None = None) -> logging.LogRecord:
    info = sys.exc_info() if error else None
    return logging.LogRecord("holdfast.audit", logging.WARNING, __file__, 1, message, values, info)


def test_a_line_is_one_object() -> None:
    told = json.loads(formatter("json").format(record("a %s\nb", "word")))
    assert (told["level"], told["logger"], told["message"]) == ("warning", "holdfast.audit", "a word\nb")
    assert told["time"].endswith("+00:00")
    assert "error" not in told


def test_a_traceback_stays_on_its_line() -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        line = formatter("json").format(record("failed", error=error))
    assert "\n" not in line
    assert "ValueError: no" in json.loads(line)["error"]


def test_text_is_as_before() -> None:
    assert formatter("text").format(record("plain")).endswith(" WARNING holdfast.audit plain")
