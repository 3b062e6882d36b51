"""Turns at a head: nobody waits who is alone, and who goes on for long lets others in."""

from __future__ import annotations

import pytest

from holdfast.stores.log.turns import _REST, _TURN, Turns

PACE = 0.07


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def commit(turns: Turns, time: Time, *, rivals: int = 0, beaten: int = 0) -> float:
    """One commit after the pause that is due; how long the pause was."""
    pause = turns.pause()
    time.now += pause
    turns.begun()
    for _ in range(1 + beaten):
        turns.tried()
    time.now += PACE * (1 + 2 * beaten)
    turns.ended(rivals)
    return pause


def test_alone_there_is_only_the_wait_for_callers_that_were_answered_together(time: Time) -> None:
    turns = Turns(time)
    pauses = [commit(turns, time) for _ in range(50)]
    assert pauses[0] == 0.0
    assert all(0 < pause <= 0.1 * PACE for pause in pauses[1:])
    assert not turns.is_shared


def test_with_rivals_a_turn_ends_and_lasts(time: Time) -> None:
    turns = Turns(time)
    pauses = [commit(turns, time, rivals=1) for _ in range(60)]
    rests = [place for place, pause in enumerate(pauses) if pause > PACE]
    assert rests, "others come in"
    assert all(pauses[place] == pytest.approx(_REST * PACE, rel=0.2) for place in rests)
    assert rests[0] >= int(_TURN / (1.1 * PACE)) - 1, "not before the turn is over"


def test_an_absence_that_nobody_uses_makes_the_next_turn_longer(time: Time) -> None:
    def rests(*, used: bool) -> int:
        turns, count = Turns(time), 0
        for _ in range(200):
            count += commit(turns, time, rivals=1) > PACE
            if turns.is_back:
                turns.found(changed=used)
        return count

    assert rests(used=False) < rests(used=True) / 2


def test_who_is_asked_for_a_turn_gives_one_although_no_rival_was_ever_seen(time: Time) -> None:
    turns = Turns(time)
    for _ in range(20):
        commit(turns, time)
    turns.asked()
    assert turns.is_shared
    assert commit(turns, time) > PACE
    assert turns.is_back


def test_who_was_beaten_begins_a_turn_of_its_own(time: Time) -> None:
    turns = Turns(time)
    for _ in range(int(_TURN / PACE)):
        commit(turns, time, rivals=1)
    commit(turns, time, rivals=1, beaten=5)
    assert turns.pause() < PACE


def test_who_is_beaten_by_somebody_who_goes_on_waits_for_the_end_of_its_turn(time: Time) -> None:
    turns = Turns(time)
    turns.begun()
    pauses = []
    for attempt in range(1, 12):
        turns.tried()
        pauses.append(turns.behind("them", attempt))
        time.now += 2 * PACE + pauses[-1]
    assert pauses[:2] == [0.0, 0.0], "that somebody was faster once or twice says nothing"
    assert any(pause > 0 for pause in pauses[2:])
    assert pauses[-1] == 0.0, "its turn must be over"


def test_who_is_beaten_by_one_after_the_other_does_not_wait(time: Time) -> None:
    turns = Turns(time)
    turns.begun()
    for attempt in range(12):
        turns.tried()
        assert turns.behind(f"them {attempt}", 1) == 0.0
        time.now += 2 * PACE


def test_after_a_natural_rest_nobody_is_waited_for(time: Time) -> None:
    turns = Turns(time)
    for _ in range(int(_TURN / PACE) + 1):
        commit(turns, time, rivals=3)
    time.now += 10.0
    assert turns.pause() < PACE
