"""The server's clock from here: whatever the network does, the truth lies within the bounds, no lease is cut short."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import QueueOptions
from holdfast.stores.nats import state
from holdfast.stores.nats.clock import DRIFT, MARGIN_S, Clock
from holdfast.v1.task_pb2 import Task

WAYS = st.floats(0, 0.5)  # seconds that a request or its answer is under way
PAUSES = st.floats(0, 60)
AHEAD = st.floats(-1e6, 1e6)
OFF = 1e-6  # what floats cannot tell


class World:
    """A server whose clock is ahead of a client's and runs a little faster or slower, and what the client hears."""

    def __init__(self, ahead: float, drift: float) -> None:
        self.at = 1000.0  # by the client's clock
        self.ahead, self.drift = ahead, drift
        self.clock = Clock(0.0)

    def server(self) -> float:
        return self.at + self.ahead + self.drift * (self.at - 1000.0)

    def ask(self, there: float, back: float, pause: float = 0.0) -> None:
        sent = self.at
        self.at += there
        stamp = self.server()
        self.at += back
        self.clock.hear(stamp, sent, self.at)
        self.at += pause


TALKS = st.lists(st.tuples(WAYS, WAYS, PAUSES), min_size=1, max_size=20)


@given(AHEAD, st.floats(-DRIFT / 2, DRIFT / 2), TALKS)
def test_the_truth_lies_within_the_bounds(ahead: float, drift: float, talks: list[tuple[float, float, float]]) -> None:
    world = World(ahead, drift)
    for there, back, pause in talks:
        world.ask(there, back, pause)
        moment = world.clock.moment(world.at)
        assert moment.earliest - OFF <= world.server() <= moment.latest + OFF
        assert moment.earliest <= moment.now <= moment.latest


@given(TALKS, TALKS, AHEAD, st.floats(0, 5))
def test_nobody_takes_a_lease_that_is_not_over(
    holder: list[tuple[float, float, float]], other: list[tuple[float, float, float]], ahead: float, late: float
) -> None:
    """Two clients of one server: the lease is given by one and judged by the other, each as wrong as it may be."""
    first, second = World(ahead, 0.0), World(-ahead, 0.0)
    for world, talks in ((first, holder), (second, other)):
        for there, back, pause in talks:
            world.ask(there, back, pause)
    given = first.clock.moment(first.at)
    record = state.taken(None, "token", state.lease_end(given, 2.0), given.now)
    told = state.told_end(record.lease_end, given)
    truth = first.server()
    assert told <= truth + 2.0 + OFF  # the holder stops believing in it before anybody else may
    second.at += truth + 2.0 - OFF - late - second.server()  # a moment before its end by the server's clock
    judged = second.clock.moment(second.at)
    assert state.held(record, judged)
    assert state.sight(record, Task(id="x"), QueueOptions(), judged, dead=False) == "wait"
    assert state.wait(record, Task(id="x"), judged) > 0


def test_a_narrow_answer_is_not_forgotten_for_a_wide_one() -> None:
    world = World(5.0, 0.0)
    world.ask(0.001, 0.001)
    world.ask(0.3, 0.0, pause=1.0)
    moment = world.clock.moment(world.at)
    assert moment.doubt < 0.002 + MARGIN_S + 4 * DRIFT
    assert abs(moment.now - world.server()) < 0.003


def test_a_clock_that_was_set_and_another_server_are_believed_at_once() -> None:
    world = World(5.0, 0.0)
    world.ask(0.001, 0.001)
    world.ahead = 65.0  # an operator set it
    world.ask(0.001, 0.001)
    assert abs(world.clock.moment(world.at).now - world.server()) < 0.002
    assert world.clock.age(world.at) == 0.0
    world.clock.doubt_all()  # a reconnect
    assert world.clock.age(world.at) == float("inf")
    world.ahead = 65.0009
    world.ask(0.0001, 0.0001)
    assert world.clock.moment(world.at).latest - world.server() <= 0.0002


def test_a_lease_is_picked_up_soon_after_its_end() -> None:
    world = World(0.0, 0.0)
    world.ask(0.001, 0.001)
    record = state.taken(None, "token", state.lease_end(world.clock.moment(world.at), 1.0), world.at)
    world.at += 1.0 + MARGIN_S + 0.006
    assert not state.held(record, world.clock.moment(world.at))


@given(TALKS, TALKS, st.floats(0.001, 60))
def test_whoever_gave_a_lease_knows_its_end_exactly(
    before: list[tuple[float, float, float]], after: list[tuple[float, float, float]], seconds: float
) -> None:
    world = World(7.0, 0.0)
    for talk in before:
        world.ask(*talk)
    given = world.clock.moment(world.at)
    end = given.at + seconds
    record = state.taken(None, "token", state.lease_end(given, seconds), given.now)
    for talk in after:  # whatever is learned of the server meanwhile
        world.ask(*talk)
    assert state.held(record, world.clock.moment(end - 1e-4).of_own(given.ahead))
    assert not state.held(record, world.clock.moment(end + 1e-4).of_own(given.ahead))
