"""How long a replacement takes, and whether others take part."""

from __future__ import annotations

import pytest

from holdfast.stores.log.bucket.pace import MEMORY_S, Pace
from holdfast.stores.log.head.state import Beyond, Head

NOW = 1000.0  # of the bucket


class Time:
    now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def head_of(**ages: float) -> Head:
    """Who replaced it, and how long ago."""
    return Head(now=NOW, beyond=Beyond(sessions={name: (1, NOW - age) for name, age in ages.items()}))


def swap(time: Time, pace: Pace, head: Head, took: float = 0.06) -> None:
    pace.tries(head)
    time.now += took
    pace.swapped()


def test_a_trip_is_learned_from_replacements(time: Time) -> None:
    pace = Pace("me", clock=time)
    for _ in range(30):
        swap(time, pace, head_of(), took=0.02)
    assert pace.trip_s == pytest.approx(0.02, abs=0.002)
    for _ in range(60):
        swap(time, pace, head_of(), took=30.0)
    assert pace.trip_s <= 0.3, "something was held up"
    before = pace.trip_s
    time.now += 1.0
    pace.swapped()
    assert pace.trip_s == before, "a commit that wrote nothing says nothing"


def test_others_take_part_while_they_replace_the_head(time: Time) -> None:
    pace = Pace("me", clock=time)
    swap(time, pace, head_of(me=0.1))
    assert not pace.is_shared
    swap(time, pace, head_of(me=0.1, other=MEMORY_S - 0.1))
    assert pace.is_shared
    swap(time, pace, head_of(me=0.1, other=MEMORY_S + 0.1))
    assert not pace.is_shared


def test_a_head_that_others_replace_is_outdated_after_a_pause(time: Time) -> None:
    pace = Pace("me", clock=time)
    swap(time, pace, head_of())
    time.now += 1.0
    assert not pace.is_outdated
    swap(time, pace, head_of(other=0.3))
    assert not pace.is_outdated
    time.now += 0.3
    assert pace.is_outdated
