"""The bucket's time: bounds from dates, no jumps unless a date is far off, and no pause while the machine sleeps."""

from __future__ import annotations

import pytest

from holdfast.stores.log.bucket import clock as clocks
from holdfast.stores.log.bucket import probe
from holdfast.stores.log.bucket import requests as wires
from holdfast.stores.log.bucket.clock import FAR, StoreClock, ticks
from holdfast.stores.log.bucket.faults import Doubt
from holdfast.stores.log.bucket.requests import Listed, Tag


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


def test_a_write_from_before_the_clock_was_set_says_nothing():
    """A list shows an object long after we wrote it: its date is of the old clock."""
    clock = StoreClock()
    now = ticks()
    clock.sample(now - 60, now - 60, 1000.0)
    clock.sample(now, now, 1000.0 + 3600)  # the server's clock was set
    clock.sample(now - 50, now - 50, 1010.0)
    assert clock() == pytest.approx(4600.5, abs=1.0)


def test_the_sleep_of_the_machine_counts(monkeypatch: pytest.MonkeyPatch):
    """The monotonic clock of Linux stands still meanwhile: every block written after it would look late."""
    clock = StoreClock()
    now = ticks()
    clock.sample(now, now, 1000.0)
    monkeypatch.setattr(clocks, "since_boot", lambda: now + 3600.0)
    assert clock() == pytest.approx(4600.5, abs=1.0)


def test_a_date_that_says_little_is_forgotten():
    """A first request that was held up for long leaves the offset open by as much; the next one sets it at once."""
    clock = StoreClock()
    now = ticks()
    clock.sample(now - 40.0, now, 1000.0)
    assert clock.doubt > 20.0
    clock.sample(now, now, 1040.0)
    assert clock() == pytest.approx(1040.5, abs=1.0)


class _HeldUp:
    """A wire whose first answers take long, by a clock of its own."""

    def __init__(self, slow: int) -> None:
        self.now = 100.0
        self.slow = slow
        self.created = 0

    def monotonic(self) -> float:
        return self.now

    def create(self, key: str, data: bytes) -> Tag:
        self.written = self.now
        self.created += 1
        self.now += 20.0 if self.created <= self.slow else 0.1
        return Tag("t")

    def head(self, key: str, until: float) -> Listed:
        return Listed(key, Tag("t"), float(int(1_800_000_000 + self.written)))

    def delete(self, keys: list[str], until: float) -> None:
        pass


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_opening_reads_the_time_until_it_is_known(slow: int, monkeypatch: pytest.MonkeyPatch):
    wire, clock = _HeldUp(slow), StoreClock()
    monkeypatch.setattr(wires, "time", wire)
    monkeypatch.setattr(clocks, "since_boot", wire.monotonic)
    probe._create(wire, "probe/x", clock, wire.now + 100.0)
    assert wire.created == slow + 1
    assert clock() == pytest.approx(1_800_000_000 + wire.now, abs=1.0)


def test_opening_fails_when_the_time_cannot_be_read(monkeypatch: pytest.MonkeyPatch):
    wire, clock = _HeldUp(9), StoreClock()
    monkeypatch.setattr(wires, "time", wire)
    monkeypatch.setattr(clocks, "since_boot", wire.monotonic)
    with pytest.raises(Doubt):
        probe._create(wire, "probe/x", clock, wire.now + 50.0)
