"""Numbers, spans and instants in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.server.page import words


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "–"), (0.0, "0 ms"), (0.008, "8 ms"), (2.0, "2 s"), (2.34, "2.3 s"), (59.0, "59 s"), (840.0, "14 min"),
        (14640.0, "4 h 4 min"), (3 * 86400.0, "3 d"),
    ],
)  # fmt: skip
def test_spans(seconds: float | None, said: str) -> None:
    assert words.duration(seconds) == said


def test_numbers_and_rates() -> None:
    assert [words.number(each) for each in (None, 0, 1204, 12.5)] == ["–", "0", "1,204", "12.5"]
    assert [words.rate(each) for each in (None, 0.0, 0.021, 1.44, 12.4, 118.2)] == [
        "–",
        "0.0",
        "0.021",
        "1.4",
        "12.4",
        "118",
    ]


def test_instants() -> None:
    now = datetime(2026, 11, 16, 13, 16, 20, 123_456, UTC)
    assert words.ago(now - timedelta(seconds=58), now) == "58 s ago"
    assert words.ago(now + timedelta(minutes=3), now) == "in 3 min"
    assert words.exact(now) == "Mon 2026-11-16 13:16:20.123 UTC"


def test_only_our_own_words_are_said() -> None:
    assert words.done("replayed", "38") == "38 messages went back into their queue."
    assert words.done("<b>", "1") is None
    assert words.done("replayed", "many") is None
