"""The bucket's time: bounds from dates, no jumps."""

from __future__ import annotations

import time

import pytest

from holdfast.stores.log.cloud.clock import StoreClock


def test_dates_bound_the_offset():
    clock = StoreClock()
    now = time.monotonic()
    offset = 1_000_000.4 - now  # the server's clock is so far ahead of our monotonic one
    clock.sample(now, now, int(now + offset))
    assert clock.doubt == pytest.approx(0.5)
    for step in range(1, 20):
        clock.sample(now + step * 0.05, now + step * 0.05, int(now + step * 0.05 + offset))
    assert clock.doubt < 0.06, "dates around the turn of a second narrow it"


def test_a_correction_comes_little_by_little():
    clock = StoreClock()
    now = time.monotonic()
    clock.sample(now, now, 1000.0)
    before = clock()
    clock.sample(now, now, 2000.0)  # the server's clock was set
    instants = [clock() for _ in range(100)]
    assert instants == sorted(instants)
    assert instants[-1] - before < 1.0


def test_a_contradiction_starts_anew():
    clock = StoreClock()
    now = time.monotonic()
    clock.sample(now, now, 1000.0)
    clock.sample(now, now, 2000.0)
    assert clock.doubt == pytest.approx(0.5)
