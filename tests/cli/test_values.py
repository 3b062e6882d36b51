"""What people type becomes values, or a usage error that says what to write."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
import typer

from holdfast.cli import values
from holdfast.cli.message_input import Lines
from holdfast.cli.output import shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("1.5", 1.5), ("45s", 45), ("10m", 600), ("2h", 7200), ("7d", 604800), ("0.5h", 1800)],
)
def test_seconds(text: str, expected: float) -> None:
    assert values.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "x", "m", "-1", "-2h", "nan", "inf", "1e999", "5 parsecs"])
def test_seconds_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        values.seconds(text)


@pytest.mark.parametrize("text", [b'"\xff"', b"\xff", b'{"a": "\xff"}', '"\udcff"', "{oops", ""])
def test_what_is_no_json_or_no_utf8_is_refused(text: str | bytes) -> None:
    with pytest.raises(typer.BadParameter, match="is not JSON"):
        values.json_value(text)


def test_instants_are_utc_unless_they_say_otherwise() -> None:
    assert values.instant("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    assert values.instant("2026-01-31T12:00:00+02:00") == datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2)))
    with pytest.raises(typer.BadParameter, match="write for example"):
        values.instant("yesterday")


def test_options_are_read_as_yaml() -> None:
    texts = ["lease=60", "archive=false", "retry={policy: fixed, delay: 5}", "dead_letter=graves", "max_messages=null"]
    assert values.options(texts) == {
        "lease": 60,
        "archive": False,
        "retry": {"policy": "fixed", "delay": 5},
        "dead_letter": "graves",
        "max_messages": None,
    }


@pytest.mark.parametrize("text", ["lease", "=5", "retry={policy: fixed"])
def test_options_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        values.options([text])


def test_pairs_keep_what_follows_the_first_sign() -> None:
    assert values.pairs(["a=b=c", "d="], what="a header") == {"a": "b=c", "d": ""}


def test_json_says_that_text_needs_quotes() -> None:
    assert values.json_value('{"a": [1, null]}') == {"a": [1, None]}
    with pytest.raises(typer.BadParameter, match="quotes"):
        values.json_value("hello")


def test_lines_of_an_argument() -> None:
    lines = Lines.of('{"a": 1}')
    assert not lines.many
    assert list(lines.batches(10)) == [[{"a": 1}]]


def test_lines_of_a_file(tmp_path: Path) -> None:
    whole = tmp_path / "one.json"
    whole.write_text('{\n  "a": 1\n}\n')
    assert list(Lines.of(f"@{whole}").batches(10)) == [[{"a": 1}]]
    many = tmp_path / "many.jsonl"
    many.write_text("1\n\n2\n3\n")
    assert list(Lines.of(f"@{many}").batches(2)) == [[1, 2], [3]]
    with pytest.raises(typer.BadParameter, match="there is no file"):
        Lines.of(f"@{tmp_path / 'none.json'}")


def test_lines_of_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"1\n2\n{oops\n")))
    lines = Lines.of("-")
    batches = lines.batches(2)
    assert next(batches) == [1, 2]
    lines.sent = 2
    with pytest.raises(typer.BadParameter, match=r"line 3 .*2 messages before it were sent"):
        next(batches)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (0.5, "0.5"),
        (3.0, "3"),
        ("text", "text"),
        ({"a": 1}, '{"a":1}'),
        (b"\x00", "b'\\x00'"),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31 12:00:00Z"),
    ],
)
def test_values_as_people_read_them(value: object, expected: str) -> None:
    assert shown(value) == expected
