"""The bucket's time: bounds from dates, no jumps unless a date is far off, and no pause while the machine sleeps."""

from __future__ import annotations

import pytest

from holdfast.stores.log.cloud import clock as clocks
from holdfast.stores.log.cloud.clock import FAR, StoreClock, ticks


def test_dates_bound_the_offset():
    clock = StoreClock()
    now = ticks()
    offset = 1_000_000.4 - now  # the server's clock is so far ahead of ours
    clock.sample(now, now, int(now + offset))
    assert clock.doubt == pytest.approx(0.5)
    for step in range(1, 20):
        clock.sample(now + step * 0.05, now + step * 0.05, int(now + step * 0.05 + offset))
    assert clock.doubt < 0.06, "dates around the turn of a second narrow it"


@pytest.mark.parametrize("step", [FAR - 1.5, 1.5 - FAR])
def test_a_correction_comes_little_by_little(step: float):
    clock = StoreClock()
    now = ticks()
    clock.sample(now, now, 1000.0)
    before = clock()
    clock.sample(now, now, 1000.0 + step)  # the server's clock was set
    instants = [clock() for _ in range(100)]
    assert instants == sorted(instants)
    assert abs(instants[-1] - before) < 1.0


@pytest.mark.parametrize("date", [2000.0, 10.0, 1000.0 + FAR + 2, 1000.0 - FAR - 2])
def test_a_date_that_is_far_off_is_believed_at_once(date: float):
    clock = StoreClock()
    now = ticks()
    clock.sample(now, now, 1000.0)
    clock.sample(now, now, date)
    assert clock() == pytest.approx(date + 0.5, abs=1.0)
    assert clock.doubt == pytest.approx(0.5)


def test_an_object_that_was_written_again_says_nothing():
    """Its date is new, its tag is that of our own write: it was copied onto itself, say to be encrypted."""
    clock = StoreClock()
    now = ticks()
    clock.sample(now - 600, now - 600, 1000.0)
    assert clock() == pytest.approx(1600.5, abs=1.0)
    clock.sample(now - 300, now - 300, 1590.0)
    assert clock() == pytest.approx(1600.5, abs=1.0)


def test_the_sleep_of_the_machine_counts(monkeypatch: pytest.MonkeyPatch):
    """The monotonic clock of Linux stands still meanwhile: every block written after it would look late."""
    clock = StoreClock()
    now = ticks()
    clock.sample(now, now, 1000.0)
    monkeypatch.setattr(clocks, "since_boot", lambda: now + 3600.0)
    assert clock() == pytest.approx(4600.5, abs=1.0)
