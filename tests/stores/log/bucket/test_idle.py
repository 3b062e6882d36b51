"""Looks become rarer when nothing comes, and are as often as asked for with the first message."""

from __future__ import annotations

from holdfast.stores.log.bucket.idle import Polling


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def looks(polling: Polling, clock: Clock, seconds: float) -> int:
    """How many looks a consumer takes in a while in which nothing comes."""
    end, count = clock.now + seconds, 0
    while True:
        clock.now += polling.pause(1)
        if clock.now >= end:
            clock.now = end
            return count
        polling.looked(1, None)
        count += 1


def test_an_idle_queue_is_looked_at_less_and_less():
    clock = Clock()
    polling = Polling(1.0, clock=clock)
    assert 50 <= looks(polling, clock, 60) <= 61
    assert looks(polling, clock, 240) < 100
    assert looks(polling, clock, 3600) <= 100, "with the options read now and then: at most 120 requests an hour"


def test_a_message_brings_it_back():
    clock = Clock()
    polling = Polling(1.0, clock=clock)
    looks(polling, clock, 600)
    assert polling.interval > 30
    assert not polling.is_active
    polling.found()
    assert polling.is_active
    assert 8 <= looks(polling, clock, 10) <= 11


def test_a_signal_and_what_is_due_end_the_pause():
    clock = Clock()
    polling = Polling(5.0, clock=clock)
    polling.looked(7, None)
    assert polling.pause(7) == 5.0
    assert polling.pause(8) == 0.0, "somebody in this process has signalled"
    polling.looked(8, 2.0)
    assert polling.pause(8) == 2.0


def test_housekeeping_rests_with_the_queue():
    clock = Clock()
    polling = Polling(1.0, clock=clock)
    assert not polling.is_resting()
    clock.now += 400
    assert polling.is_resting()
    clock.now += 3700
    assert not polling.is_resting(), "now and then it is done all the same"
    assert polling.is_resting()
    polling.found()
    assert not polling.is_resting()
