"""Turns at a head: nobody waits who is alone, who goes on lets others in, and a turn that nobody uses is anybody's."""

from __future__ import annotations

import pytest

from holdfast.stores.log.bucket.turns import _ASKING, _HEARD, _IN_LINE, _OLD, _OUTSIDE, _ROUND, _STALLED, Turns
from holdfast.stores.log.head import codec, repeat
from holdfast.stores.log.head.state import Beyond, Head

PACE = 0.07


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


class Process:
    """One that replaces a head again and again; refused when the head is not the one it knows."""

    def __init__(self, name: str, time: Time) -> None:
        self.name, self.time = name, time
        self.turns = Turns(name, time)
        self.attempts = self.refused = 0

    def wait(self, head: Head, *, is_read: bool = True) -> float:
        return self.turns.wait(head, self.time.now, is_read=is_read)

    def replace(self, head: Head, *, beaten: int = 0) -> Head:
        """A commit that takes its time, and succeeds in the end."""
        self.time.now += self.turns.pause()
        self.turns.begun()
        return self.finish(head, beaten=beaten)

    def finish(self, head: Head, *, beaten: int = 0) -> Head:
        for _ in range(beaten):
            self.turns.tried()
            self.time.now += 2 * PACE  # refused, and the head read
        self.turns.tried()
        self.attempts += 1
        head.now = max(head.now, self.time.now)
        head = repeat.seated(head, self.turns.guests(head))
        written = repeat.signed(head, self.name, self.attempts, self.turns.next(head))
        self.time.now += PACE
        self.turns.ended(len(written.beyond.sessions) - 1)
        return written


def head_of(time: Time, turn: str, **ages: float) -> Head:
    """Who replaced it how long ago."""
    sessions = {name: (1, time.now - age) for name, age in ages.items()}
    return Head(now=time.now, beyond=Beyond(sessions=sessions, turn=turn))


def test_alone_there_is_only_the_wait_for_callers_that_were_answered_together(time: Time) -> None:
    one, head, pauses = Process("one", time), Head(), []
    for _ in range(50):
        pauses.append(one.turns.pause())
        head = one.replace(head)
        assert head.beyond.turn == ""
    assert pauses[0] == 0.0
    assert all(pause < 0.1 * PACE for pause in pauses)
    assert not one.turns.is_shared
    assert not one.turns.is_contended or one.turns._runs


def test_others_that_are_not_in_the_way_change_nothing(time: Time) -> None:
    """Now and then is no crowd: nobody has to wait for a turn."""
    one, two, head = Process("one", time), Process("two", time), Head()
    for _ in range(5):
        head = one.replace(head)
        time.now += 0.4
        assert two.wait(head) == 0.0
        head = two.replace(head)
        time.now += 0.4
        assert head.beyond.turn == ""


def test_a_turn_ends_and_names_the_one_that_waits_for_the_longest_time(time: Time) -> None:
    one = Process("one", time)
    head = one.replace(head_of(time, "", three=0.9, two=0.5), beaten=1)
    assert head.beyond.turn == "one"
    begun = time.now
    while head.beyond.turn == "one":
        assert one.wait(head, is_read=False) == 0.0, "it is its own turn"
        head = one.replace(head)
        assert time.now - begun < 2 * _ROUND
    assert head.beyond.turn == "three"
    assert time.now - begun >= _ROUND / 3 - 2 * PACE


def test_who_pauses_between_its_replacements_passes_the_turn_on_at_once(time: Time) -> None:
    one, head = Process("one", time), head_of(time, "", two=0.1)
    for _ in range(8):
        head = one.replace(head, beaten=1)
        head.beyond.sessions["two"] = (1, head.now)
        time.now += 0.4
    assert head.beyond.turn == "", "whoever waits may have it"


def test_who_finds_nothing_to_claim_passes_the_turn_on(time: Time) -> None:
    one = Process("one", time)
    one.turns.goes_on = False
    assert one.replace(head_of(time, "one", one=0.1, two=0.5), beaten=1).beyond.turn == ""


def test_others_leave_a_head_alone_while_its_turn_is_used(time: Time) -> None:
    busy, other = Process("busy", time), Process("other", time)
    other.turns.begun()
    head = head_of(time, "busy", busy=0.0, other=0.5)
    for _ in range(10):
        assert other.wait(head) > 0.0
        assert other.turns.is_next
        head = busy.finish(head)
        head.beyond = Beyond(sessions=head.beyond.sessions, turn="busy")
    head.beyond = Beyond(sessions=head.beyond.sessions, turn="other")
    assert other.wait(head) == 0.0
    assert other.turns.is_ours, "blocks may be read beside the replacement"


def test_who_comes_later_in_line_looks_less_often(time: Time) -> None:
    second, third = Process("second", time), Process("third", time)
    head = head_of(time, "first", second=0.5, third=0.1, first=0.0)
    second.turns.begun()
    third.turns.begun()
    assert second.wait(head) < PACE
    assert third.wait(head) > 2 * PACE
    assert not third.turns.is_next


def test_a_turn_that_nobody_uses_is_anybodys_and_is_not_given_again(time: Time) -> None:
    other = Process("other", time)
    other.turns.begun()
    head = head_of(time, "gone", other=0.5, third=0.3, gone=0.1)
    assert other.wait(head) > 0.0
    time.now += 2 * _STALLED * PACE
    assert other.wait(head, is_read=False) > 0.0, "what is remembered may have changed"
    assert other.wait(head) == 0.0
    head = other.finish(head, beaten=1)
    while head.beyond.turn == "other":
        assert other.wait(head) == 0.0
        head = other.replace(head)
    assert head.beyond.turn == "third"


def test_a_turn_of_long_ago_keeps_nobody_out(time: Time) -> None:
    other = Process("other", time)
    head = head_of(time, "gone", gone=0.1, other=0.5)
    time.now += _OLD + 0.1
    assert other.wait(head, is_read=False) == 0.0


def test_who_is_not_in_line_asks_and_waits_until_it_is_put_there(time: Time) -> None:
    new, busy = Process("new", time), Process("busy", time)
    new.turns.begun()
    head, asked = head_of(time, "busy", second=0.3, busy=0.0), []
    for _ in range(4):
        assert new.wait(head) > 0.0
        assert new.turns.asks
        asked.append(new.turns.may_ask())
        time.now += 0.3 * _ASKING
    assert asked == [True, False, False, False], "who has asked is given some time to be heard"
    time.now += _ASKING
    assert new.turns.may_ask(), "then it asks again"
    busy.turns.asked(["new"])
    head = busy.replace(head)
    assert head.beyond.turn == "new"
    assert head.beyond.sessions["new"][0] == 0, "nothing that it has tried is in this head"
    new.turns.begun()
    assert new.wait(head) == 0.0
    second = Process("second", time)
    second.turns.begun()
    assert second.wait(head) > 0.0, "who is in line has its own turns"


def test_who_is_beaten_twice_while_nobody_has_a_turn_waits_for_an_answer(time: Time) -> None:
    new = Process("new", time)
    new.turns.begun()
    head = head_of(time, "", busy=0.0)
    new.turns.tried()
    assert new.wait(head) == 0.0, "most likely nobody comes in between again"
    assert new.turns.asks
    assert new.turns.may_ask()
    time.now += 2 * PACE
    new.turns.tried()
    assert new.wait(head) > 0.0
    time.now += 10 * PACE
    head.now = time.now
    assert new.wait(head) == 0.0, "nobody has heard it"


def test_who_is_not_heard_comes_in_between(time: Time) -> None:
    new = Process("new", time)
    new.turns.begun()
    head = head_of(time, "busy", busy=0.0)
    assert new.wait(head) > 0.0
    time.now += _OUTSIDE + 0.01
    head.now = time.now
    assert new.wait(head) == 0.0


def test_all_who_ask_are_put_in_line_and_a_turn_ends_early_for_them_once(time: Time) -> None:
    one = Process("one", time)
    head = one.replace(head_of(time, ""))
    one.turns.asked(["two", "three", "one"])
    assert one.turns.is_shared
    head = one.replace(head)
    assert list(head.beyond.sessions) == ["two", "three", "one"]
    assert head.beyond.turn == "two"
    assert one.turns.others == 2
    head.beyond = Beyond(sessions=head.beyond.sessions, turn="one")
    one.turns.asked(["four"])
    head = one.replace(head)
    assert head.beyond.turn == "one", "it has its turn first"
    assert list(head.beyond.sessions) == ["four", "two", "three", "one"]


def test_a_plea_is_remembered_until_its_owner_is_in_line_but_not_for_long(time: Time) -> None:
    one = Process("one", time)
    head = one.replace(head_of(time, "", two=_IN_LINE + 1.0))
    one.turns.asked(["two"])
    assert one.turns.guests(head) == ["two"], "a replacement that is refused puts nobody in line"
    assert one.turns.guests(head) == ["two"]
    seated = repeat.seated(head, ["two"])
    assert seated.beyond.sessions["two"] == (1, head.now), "its last attempt is still known"
    assert one.turns.guests(seated) == []
    one.turns.asked(["two"])
    time.now += _HEARD + 0.1
    assert one.turns.guests(head) == [], "it has come in between by now, or is gone"


def test_a_turn_that_was_begun_and_refused_does_not_shorten_the_one_that_is_given(time: Time) -> None:
    one = Process("one", time)
    head = head_of(time, "", two=0.5, one=0.4)
    one.turns.begun()
    one.turns.tried()
    assert one.turns.next(head) == ""  # and it is refused: somebody was faster
    time.now += 1.0
    head = head_of(time, "two", three=0.3, one=1.4, two=0.0)
    assert one.wait(head) > 0.0
    time.now += 0.5
    head = head_of(time, "one", three=0.8, one=1.9, two=0.0)
    assert one.wait(head) == 0.0
    assert one.finish(head).beyond.turn == "one", "its turn has just begun"


def test_who_comes_in_between_leaves_the_turn_to_whom_it_belongs(time: Time) -> None:
    new = Process("new", time)
    assert new.replace(head_of(time, "busy", second=0.3, busy=0.0), beaten=1).beyond.turn == "busy"
    assert new.replace(head_of(time, "busy", second=9.0, busy=8.0), beaten=1).beyond.turn == "", "of long ago"


def test_who_did_nothing_for_a_while_is_not_in_line(time: Time) -> None:
    one = Process("one", time)
    head = one.replace(head_of(time, "", two=_IN_LINE + 0.1), beaten=1)
    assert head.beyond.turn == ""


@pytest.mark.parametrize("count", [2, 4, 8])
def test_everybody_has_turns_and_nobody_is_refused_once_all_are_in_line(time: Time, count: int) -> None:
    """Each looks when it is told to; a replacement of a head that somebody else has replaced since is refused."""
    processes = [Process(str(number), time) for number in range(count)]
    head = head_of(time, "0", **{each.name: 0.01 * place for place, each in enumerate(processes)})
    ready = {each.name: time.now for each in processes}
    replaced: dict[str, int] = {each.name: 0 for each in processes}
    busy = 0.0
    for each in processes:
        each.turns.begun()
        each.turns.ended(count - 1)
        each.turns._pace = PACE
    started = time.now
    while time.now - started < 30.0:
        process = min(processes, key=lambda each: ready[each.name])
        time.now = max(time.now, ready[process.name])
        pause = process.wait(head)
        if pause:
            ready[process.name] = time.now + pause + PACE  # and a look
            continue
        before = time.now
        head = process.finish(head)
        busy += time.now - before
        replaced[process.name] += 1
        process.turns.begun()
        ready[process.name] = time.now
    assert min(replaced.values()) > 0.5 * max(replaced.values()), replaced
    assert busy / (time.now - started) > 0.75, "hardly anything is lost between turns"


def test_a_head_keeps_whose_turn_it_is(time: Time) -> None:
    head = head_of(time, "two", one=0.5, two=0.1)
    assert codec.decode(codec.HeadWriter().encode(head)) == head
    assert codec.decode(codec.HeadWriter().encode(head_of(time, "", one=0.5))).beyond.turn == ""


def test_who_asks_in_vain_comes_in_between(time) -> None:
    """Where nobody replaces the head any more nobody hears it, however slow replacements are."""
    newcomer = Process("new", time)
    newcomer.turns._pace = 0.12
    head = head_of(time, "", gone=60.0)
    newcomer.turns.begun()
    newcomer.turns.tried()
    newcomer.turns.tried()
    assert newcomer.turns.may_ask()
    begun = time.now
    while (pause := newcomer.wait(head)) > 0 and time.now < begun + 10.0:
        if newcomer.turns.asks:
            newcomer.turns.may_ask()
        time.now += pause
    assert time.now - begun < 2 * _OUTSIDE


def test_guests_who_have_left_are_no_reason_to_end_a_turn(time) -> None:
    """Who asked and is put in line may be known as one that does not use its turn: then nobody is left to name."""
    process = Process("me", time)
    head = process.replace(head_of(time, ""))
    process.turns.asked(["guest"])
    process.turns._absent["guest"] = 0
    head.now = time.now
    guests = process.turns.guests(head)
    assert guests == ["guest"]
    process.turns._absent["guest"] = 0
    time.now += 2 * _HEARD
    assert process.turns.next(repeat.seated(head, guests)) in ("", "me")
