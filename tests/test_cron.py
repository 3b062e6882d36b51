"""Slots of cron text and intervals, against an independent recount of every second."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.cron import Times, fields, zone
from holdfast.errors import ConfigError

# The local days on which clocks change: an hour in Berlin and New York, half an hour on Lord Howe Island.
CHANGES = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
]
Fits = Callable[[datetime], bool]


def times(cron: str | None = None, tz: str = "UTC", *, every: float | None = None) -> Times:
    return Times(cron=cron, every=every, tz=tz, start=None, end=None)


def span(tz: str, day: str) -> tuple[int, int]:
    """A day and its neighbours."""
    midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(tz))
    return int((midnight - timedelta(days=1)).timestamp()), int((midnight + timedelta(days=2)).timestamp())


def between(found: Times, after: int, upto: int) -> list[float]:
    return list(takewhile(lambda slot: slot <= upto, found.after(after)))


def elapsed(tz: str, after: int, upto: int, fits: Fits) -> list[float]:
    """Every minute whose local time fits, one by one."""
    local = ZoneInfo(tz)
    minutes = range(after - after % 60 + 60, upto + 1, 60)
    return [float(at) for at in minutes if fits(datetime.fromtimestamp(at, UTC).astimezone(local))]


def fixed(tz: str, after: int, upto: int, fits: Fits) -> list[float]:
    """Every local minute of the calendar that fits, once: the first that exists, or the end of the gap around it."""
    local = ZoneInfo(tz)
    exist: dict[datetime, int] = {}
    for at in range(after - 86400, upto + 86400, 60):
        at -= at % 60
        exist.setdefault(datetime.fromtimestamp(at, UTC).astimezone(local).replace(tzinfo=None), at)
    first = min(exist)
    found = set()
    for number in range((max(exist) - first) // timedelta(minutes=1)):
        minute = first + timedelta(minutes=number)
        if fits(minute):
            while minute not in exist:
                minute += timedelta(minutes=1)
            found.add(float(exist[minute]))
    return sorted(slot for slot in found if after < slot <= upto)


@pytest.mark.parametrize(("tz", "day"), CHANGES)
@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("* * * * *", lambda at: True),
        ("*/15 * * * *", lambda at: at.minute % 15 == 0),
        ("30 * * * *", lambda at: at.minute == 30),
        ("*/7 1-3 * * *", lambda at: at.minute % 7 == 0 and 1 <= at.hour <= 3),
        ("15 */2 * * *", lambda at: at.minute == 15 and at.hour % 2 == 0),
    ],
)
def test_jobs_with_a_wildcard_go_by_elapsed_time(tz: str, day: str, text: str, fits: Fits) -> None:
    after, upto = span(tz, day)
    assert between(times(text, tz), after, upto) == elapsed(tz, after, upto, fits)


@pytest.mark.parametrize(("tz", "day"), CHANGES)
@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("0 2 * * *", lambda at: (at.hour, at.minute) == (2, 0)),
        ("15 2 * * *", lambda at: (at.hour, at.minute) == (2, 15)),
        ("30 2 * * *", lambda at: (at.hour, at.minute) == (2, 30)),
        ("0,20,40 1,2,3 * * *", lambda at: at.hour in (1, 2, 3) and at.minute in (0, 20, 40)),
        ("0 45 1 * * *", lambda at: (at.hour, at.minute) == (1, 45)),
    ],
)
def test_jobs_at_fixed_times_run_once_whatever_the_clocks_do(tz: str, day: str, text: str, fits: Fits) -> None:
    after, upto = span(tz, day)
    assert between(times(text, tz), after, upto) == fixed(tz, after, upto, fits)


def test_the_words_of_the_contract() -> None:
    berlin = times("30 2 * * *", "Europe/Berlin")
    spring = datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp()
    autumn = datetime(2026, 10, 24, 12, tzinfo=UTC).timestamp()
    assert next(berlin.after(spring)) == datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp()  # 03:00, right after the gap
    first, second = islice(berlin.after(autumn), 2)
    assert first == datetime(2026, 10, 25, 0, 30, tzinfo=UTC).timestamp()  # the first 02:30 of two
    assert second == datetime(2026, 10, 26, 1, 30, tzinfo=UTC).timestamp()


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["* * * * *", "*/20 * * * *", "30 2 * * *", "0 9 * * MON-FRI", "15 10 6 * * *", "0 0 1 1 *"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
    st.integers(1_700_000_000, 1_900_000_000),
    st.integers(1, 200_000),
    st.integers(1, 50),
)
def test_looking_back_finds_the_same_slots(text: str, tz: str, after: int, width: int, most: int) -> None:
    found = times(text, tz)
    every = between(found, after, after + width)
    assert found.newest(after, after + width, most) == every[-most:]
    assert found.count(after, after + width, 1000) == min(len(every), 1000)
    assert all(after < slot <= after + width for slot in every)
    assert every == sorted(set(every))


@given(
    st.floats(1.0, 90_000.0).map(lambda x: round(x, 3)), st.integers(1_700_000_000, 1_900_000_000), st.integers(1, 9)
)
def test_intervals_are_the_same_for_everybody(every: float, after: int, most: int) -> None:
    found = times(every=every)
    slots = list(islice(found.after(after), 12))
    assert all(slot > after for slot in slots)
    assert [round(slot / every) * every for slot in slots] == pytest.approx(slots, abs=0.002)
    assert found.newest(after, slots[-1], most) == slots[-most:]
    assert found.count(after, slots[-1], 3) == 12


def test_start_and_end_are_the_first_and_the_last_that_may_be() -> None:
    found = Times(cron=None, every=10.0, start=1003.0, end=1033.0)
    assert list(found.after(0.0)) == [1003.0, 1013.0, 1023.0, 1033.0]
    assert found.newest(0.0, 5000.0, 2) == [1023.0, 1033.0]
    assert found.count(0.0, 5000.0, 100) == 4


@pytest.mark.parametrize("start", [1003.0, 1003.5536, 1003.622393, 1_794_978_855.622393])
def test_an_interval_has_its_first_slot_at_its_start(start: float) -> None:
    found = Times(cron=None, every=10.0, start=start, end=start + 20.0)
    assert list(found.after(0.0)) == pytest.approx([start, start + 10.0, start + 20.0], abs=0.0006)
    assert found.count(start - 1.0, start + 100.0, 100) == 3


@pytest.mark.parametrize("text", ["@daily", "@hourly", "@weekly", "@monthly", "@yearly", "@midnight", "@annually"])
def test_names_stand_for_fields(text: str) -> None:
    assert len(fields(text).split()) == 5


@pytest.mark.parametrize("text", ["", "x", "* * * *", "60 * * * *", "0 0 31 2 *", "* * * * * * *", "@reboot", "@never"])
def test_other_text_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match="cron"):
        fields(text)


@pytest.mark.parametrize("name", ["Europe/Atlantis", "", "../etc/passwd", "CET\0"])
def test_unknown_zones_are_refused_with_a_sentence(name: str) -> None:
    with pytest.raises(ConfigError, match="tz"):
        zone(name)
