"""What is due: tables, and properties against an independent recount."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ids, schedules
from holdfast.schedules import Mark, Plan, due, moved, slot_id, visible_at, wakes_at, with_backfill

T0 = 1_790_000_000.0  # a multiple of ten


def plan(**said: Any) -> Plan:
    return Plan(
        **{"name": "a", "queue": "q", "payload": b"", "content_type": "", "every": 10.0, "created_at": T0, **said}
    )


def recounted(plan: Plan, mark: Mark, now: float, *, alive: bool) -> tuple[list[float], int]:
    """The rules of the contract, slot by slot: what fires, and how many do not."""
    every = plan.every or 0.0
    begin = max(mark.slot, plan.created_at)
    first = int(begin // every) + 1
    slots = [number * every for number in range(first, int(now // every) + 1)]
    young = [slot for slot in slots if now - slot < 60.0]
    old = [slot for slot in slots if now - slot >= 60.0]
    late = {"none": [], "latest": old[-1:], "all": old[-100:]}[plan.missed]
    fires = [slot for slot in late if now - slot <= plan.catch_up] + young
    if plan.overlap == "skip":
        fires = [] if alive else fires[-1:]
    return fires, len(slots) - len(fires)


@given(
    st.sampled_from([1.0, 7.0, 10.0, 300.0]), st.sampled_from(["latest", "all", "none"]),
    st.sampled_from(["allow", "skip"]), st.sampled_from([0.0, 90.0, 3600.0, 20_000.0]),
    st.integers(-20, 12_000), st.integers(0, 4000), st.booleans(),
)  # fmt: skip
def test_what_fires_is_what_a_recount_says(
    every: float, missed: Any, overlap: Any, catch_up: float, after: int, decided: int, alive: bool
) -> None:
    one = plan(every=every, missed=missed, overlap=overlap, catch_up=catch_up)
    now, mark = T0 + after + 0.5, Mark(T0 + decided if decided else 0.0)
    found = due(one, mark, now, alive=alive)
    fires, left = recounted(one, mark, now, alive=alive)
    if found is None:
        assert (fires, left) == ([], 0)
        return
    assert (found.fires, found.missed) == (fires, left)
    assert found.slot == (now // every) * every
    new = moved(one, mark, found)
    assert new.slot > mark.slot  # it only moves forward
    assert (new.fired, new.missed) == (len(fires), left)
    assert due(one, new, now, alive=alive) is None  # once is enough


@given(st.lists(st.integers(-4000, 4000), min_size=1, max_size=12))
def test_no_slot_fires_twice_whatever_the_clock_does(steps: list[int]) -> None:
    """Steps forward and back: a mark never goes back, and what it has passed does not come again."""
    one, mark, now = plan(missed="all"), Mark(), T0
    fired: list[float] = []
    for step in steps:
        now += step
        found = due(one, mark, now)
        if found is not None:
            assert all(slot <= now for slot in found.fires)
            fired += found.fires
            mark = moved(one, mark, found)
    assert fired == sorted(set(fired))


def test_a_step_back_of_an_hour_fires_nothing_again_and_one_forward_lets_missed_decide() -> None:
    one, mark = plan(every=60.0, missed="latest"), Mark(T0)
    assert due(one, mark, T0 - 3600.0) is None
    assert due(one, mark, T0 + 1.0) is None
    forward = due(one, mark, T0 + 3600.0)
    assert forward is not None
    assert len(forward.fires) == 2  # the newest of those that were missed, and the one that is young
    assert forward.missed == 60 - 2


def test_a_paused_one_keeps_its_slot_until_its_pause_is_over() -> None:
    one = plan(paused=True, paused_until=T0 + 100.0)
    assert due(one, Mark(), T0 + 99.0) is None
    assert wakes_at(one, Mark(), T0 + 5.0) == T0 + 100.0
    assert wakes_at(plan(paused=True), Mark(), T0 + 5.0) is None
    after = due(one, Mark(), T0 + 101.0)
    assert after is not None
    assert after.fires == [T0 + 40.0, *(T0 + at for at in range(50, 101, 10))]


def test_an_id_says_slot_and_priority_and_is_the_same_for_everybody() -> None:
    made = slot_id(plan(priority=7), T0)
    number = ids.number(made)
    assert number is not None
    assert (ids.born_at(number), ids.priority_of(number), ids.is_carried(number)) == (T0, 7, True)
    assert made == slot_id(plan(priority=7, every=3.0), T0)
    assert len({made, slot_id(plan(priority=7), T0 + 1), slot_id(plan(name="b", priority=7), T0)}) == 3


def test_jitter_is_spread_and_the_same_for_everybody() -> None:
    delays = [visible_at(plan(jitter=30.0), T0 + n) - T0 - n for n in range(200)]
    assert delays == [visible_at(plan(jitter=30.0), T0 + n) - T0 - n for n in range(200)]
    assert all(0 <= delay <= 30 for delay in delays)
    assert max(delays) - min(delays) > 25
    assert visible_at(plan(), T0) == T0


def test_spans_that_touch_become_one() -> None:
    mark = with_backfill(with_backfill(Mark(5.0), 10.0, 20.0), 20.0, 30.0)
    assert mark.backfilled == ((10.0, 30.0),)
    assert mark.slot == 5.0
    for number in range(schedules.REMEMBERED_SPANS + 5):
        mark = with_backfill(mark, 100.0 * number + 100, 100.0 * number + 150)
    assert len(mark.backfilled) == schedules.REMEMBERED_SPANS


@pytest.mark.parametrize("name", ["", "a b", "-a", "x" * 129, None, "a/b"])
def test_names_are_checked(name: object) -> None:
    with pytest.raises(schedules.ConfigError, match="name"):
        schedules.checked_name(name)
