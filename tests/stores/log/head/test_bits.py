"""Sets of places as whole numbers do what sets do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.stores.log.head import bits

PLACES = st.sets(st.integers(0, 1200), max_size=40)
RUNS = st.builds(lambda start, length: set(range(start, start + length)), st.integers(0, 1000), st.integers(0, 200))


def as_mask(places: set[int]) -> int:
    return sum(1 << place for place in places)


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [(0, 0, 0), (0, 1, 1), (0, 4, 0b1111), (2, 4, 0b1100), (3, 3, 0), (5, 2, 0), (1000, 1001, 1 << 1000)],
)
def test_span(start: int, stop: int, expected: int):
    assert bits.span(start, stop) == expected


@given(places=PLACES | RUNS)
def test_places_come_in_order(places: set[int]):
    assert list(bits.places(as_mask(places))) == sorted(places)
    assert len(bits.places(as_mask(places))) == len(places)


@given(places=PLACES | RUNS, count=st.integers(1, 50))
def test_lowest(places: set[int], count: int):
    assert bits.lowest(as_mask(places), count) == as_mask(set(sorted(places)[:count]))


@given(start=st.integers(0, 50), stop=st.integers(0, 50))
def test_span_is_a_range(start: int, stop: int):
    assert list(bits.places(bits.span(start, stop))) == list(range(start, stop))


def test_the_lowest_none_of_a_set_is_empty():
    assert bits.lowest(0b101, 0) == 0
