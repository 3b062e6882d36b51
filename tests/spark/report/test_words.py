"""Steps, numbers and scales of a report."""

from __future__ import annotations

import pytest

from holdfast.spark.report import words
from holdfast.spark.report.charts import Line, of_time, plot
from holdfast.spark.report.frame import Head, Html, table, tile
from holdfast.spark.report.periods import MOST_STEPS, Period, period_of, start_of_all

DAY = 86400.0


@pytest.mark.parametrize(
    ("seconds", "step"),
    [(0.5, 1), (200, 1), (201, 5), (3600, 60), (6 * 3600, 300), (DAY, 900), (7 * DAY, 3600), (90 * DAY, 3600)],
)
def test_steps_follow_the_range(seconds: float, step: int) -> None:
    made = period_of(1_700_000_123.4, 1_700_000_123.4 + seconds)
    assert made.step == step
    assert made.steps <= MOST_STEPS + 1 or step == 3600
    assert made.place(made.start) == 0
    assert made.place(made.end - 1e-3) == made.steps - 1


def test_steps_begin_where_clocks_show_them() -> None:
    made = Period(3725.0, 7300.0, 300)
    assert [made.at(place) for place in (0, 1)] == [3600.0, 3900.0]
    assert made.steps == 13


def test_a_message_that_waited_for_long_does_not_stretch_the_period() -> None:
    assert start_of_all(90.0, 100.0, 200.0) == 90.0
    assert start_of_all(-1e6, 100.0, 200.0) == -1.0


@pytest.mark.parametrize(
    ("now", "before", "said"),
    [
        (112, 100, "+12 %"),
        (50, 100, "\N{MINUS SIGN}50 %"),
        (350, 100, "×3.5"),
        (100, 100, "as before"),
        (3, 0, "none before"),
    ],
)
def test_changes_in_words(now: float, before: float, said: str) -> None:
    assert words.change(now, before) == said


def test_shares_do_not_round_to_all_or_nothing() -> None:
    assert [words.share(part, 100_000) for part in (0, 1, 99_999, 100_000)] == [
        "0 %",
        "under 0.1 %",
        "over 99.9 %",
        "100 %",
    ]


def test_rates_are_numbers_that_people_can_read() -> None:
    assert [words.rate_for(each).name for each in (5.0, 0.5, 0.01, 0.0)] == ["second", "minute", "hour", "hour"]


def test_scales_of_time_have_few_lines() -> None:
    assert [words.duration(tick) for tick in of_time([0.5, 400.0]).ticks] == ["100 ms", "1 s", "10 s", "60 s", "10 min"]
    assert len(of_time([1e-6, 864e5]).ticks) <= 5


def test_a_line_is_interrupted_where_nothing_is_known() -> None:
    drawn = plot([Line("q", "done", [1.0, None, 2.0])], ["a", "b"], label="<l>", show=words.number)
    assert drawn.count("M") == 2
    assert "&lt;l&gt;" in drawn


def test_what_users_wrote_is_text_wherever_it_stands() -> None:
    evil = "<b onclick='x'>"
    made = [tile(evil, evil, evil), table([Head(evil)], [[evil]], label=evil)]
    assert all("<b" not in each for each in made)
    assert "<b>1</b>" in table([Head("a")], [[Html("<b>1</b>")]], label="l")
