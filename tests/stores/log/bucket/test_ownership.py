"""Whose a head is: nobody waits who is alone, the others leave an owner its term, and nobody waits for ever."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

import pytest

from holdfast.stores.log.bucket.ownership import (
    LONE_TERM_S,
    MEMORY_S,
    PATIENCE_S,
    REST_TRIPS,
    TERM_MAX_S,
    TERM_TRIPS,
    Ownership,
    parse,
)
from holdfast.stores.log.head import codec, repeat
from holdfast.stores.log.head.state import Beyond, Head

TRIP = 0.07
START = 1000.0


class Time:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def head_of(time: Time, turn: str = "", **ages: float) -> Head:
    """Who replaced it how long ago; the store's clock is ours."""
    sessions = {name: (1, time.now - age) for name, age in ages.items()}
    return Head(now=time.now, beyond=Beyond(sessions=sessions, turn=turn))


def ownership(time: Time, name: str = "me") -> Ownership:
    made = Ownership(name, clock=time)
    made.trip_s = TRIP
    return made


def swap(time: Time, own: Ownership, head: Head, *, took: float = TRIP) -> tuple[str, float]:
    """A replacement that succeeds; the owner it names, and the seconds left."""
    turn = own.turn(head)
    time.now += took
    own.swapped()
    return parse(turn)


def refused(time: Time, own: Ownership, head: Head) -> None:
    own.turn(head)
    time.now += TRIP
    wait(time, own, head)


def wait(time: Time, own: Ownership, head: Head, *, age: float = 0.0, waited: float = 0.0) -> float:
    return own.wait_s(head, seen_at=time.now - age, store_now=time.now, waiting_since=time.now - waited)


@pytest.mark.parametrize(
    ("turn", "age", "waited", "least", "most"),
    [
        ("", 0.0, 0.0, 0.0, 0.0),
        ("me 500", 0.0, 0.0, 0.0, 0.0),
        ("other 500", 0.0, 0.0, 0.5, 0.5 + TRIP),
        ("other 500", 0.3, 0.0, 0.2, 0.2 + TRIP),
        ("other 500", 2.0, 0.0, 1e-9, TRIP),
        ("other 60", 0.0, 0.0, 0.0, 0.0),
        ("other 500", 0.0, PATIENCE_S + 0.1, 0.0, 0.0),
        ("gone 500", 0.0, 0.0, 0.0, 0.0),
        ("other", 0.0, 0.0, 0.0, 0.0),
        ("other 999999", 0.0, 0.0, TERM_MAX_S, TERM_MAX_S + TRIP),
        ("other -5", 0.0, 0.0, 0.0, 0.0),
        ("other 99999999999", 0.0, 0.0, 0.0, 0.0),
        ("other 5 5", 0.0, 0.0, 0.0, 0.0),
        ("stranger 500", 0.0, 0.0, 0.0, 0.0),
    ],
    ids=[
        "nobody's", "ours", "another's", "what is left since it was read", "over: read again", "over when we arrive",
        "waited long enough", "its owner has done nothing for long", "as earlier versions wrote it", "too long a term",
        "no number", "a huge number", "torn", "an owner that never replaced it",
    ],
)  # fmt: skip
def test_how_long_a_head_is_left_alone(
    time: Time, turn: str, age: float, waited: float, least: float, most: float
) -> None:
    head = head_of(time, turn, other=0.1, me=0.2, gone=MEMORY_S + 0.1)
    assert least <= wait(time, ownership(time), head, age=age, waited=waited) <= most


def test_after_a_term_the_others_come_one_by_one(time: Time) -> None:
    """The one first that has not had the head for the longest time; who is new comes as early."""
    head = head_of(time, "owner 500", second=0.9, third=0.8, fourth=0.7, fifth=0.6, gone=MEMORY_S + 1.0, owner=0.0)
    waits = [wait(time, ownership(time, name), head) for name in ("second", "third", "fourth", "fifth", "new")]
    for trips, pause in zip((0, 1, 2, 2, 0), waits, strict=True):
        assert 0.5 + trips * TRIP <= pause < 0.5 + (trips + 0.5) * TRIP


def test_an_owner_that_does_nothing_is_waited_for_once(time: Time) -> None:
    """A head that is read again and is still the same counts from when it was first seen."""
    own, head = ownership(time), head_of(time, "other 500", me=0.5, other=0.0)
    time.now += wait(time, own, head)
    assert wait(time, own, head) == 0.0


def test_who_finds_nothing_to_claim_keeps_the_head_no_longer(time: Time) -> None:
    own = ownership(time)
    refused(time, own, head_of(time, other=0.3))
    own.goes_on = False
    assert swap(time, own, head_of(time, me=0.1, other=0.3)) == ("", 0.0)


def test_terms_are_shorter_where_many_take_part(time: Time) -> None:
    own = ownership(time)
    own._is_steady = True
    many = {f"p{number}": 0.1 for number in range(7)}
    refused(time, own, head_of(time, me=0.3, **many))
    assert swap(time, own, head_of(time, me=0.3, **many))[1] <= PATIENCE_S / 8 + 0.001


def test_who_is_alone_names_nobody_and_rests_now_and_then(time: Time) -> None:
    own, began, rests = ownership(time), time.now, []
    while time.now - began < 3 * LONE_TERM_S:
        pause = wait(time, own, head_of(time, me=0.1))
        rests += [pause] if pause else []
        time.now += pause
        assert swap(time, own, head_of(time, me=0.1)) == ("", 0.0)
    assert 2 <= len(rests) <= 3
    assert all(pause >= (REST_TRIPS - 0.5) * TRIP for pause in rests), "somebody's read and replacement fit in"


def test_others_that_are_not_in_the_way_change_nothing(time: Time) -> None:
    own = ownership(time)
    for _ in range(20):
        assert swap(time, own, head_of(time, me=0.1, other=0.3)) == ("", 0.0)
        assert own.is_shared
        time.now += 0.4
    swap(time, own, head_of(time, me=0.1, other=MEMORY_S + 0.1))
    assert not own.is_shared


def test_who_was_refused_names_itself_for_a_term_then_rests(time: Time) -> None:
    own, left = ownership(time), []
    head = head_of(time, me=0.1, other=0.3)
    refused(time, own, head)
    for _ in range(3 * TERM_TRIPS):
        head = head_of(time, me=0.1, other=0.3)
        if pause := wait(time, own, head):
            break
        left.append(swap(time, own, head))
    assert pause == pytest.approx(REST_TRIPS * TRIP, abs=0.02)
    assert left[-1] == ("", 0.0), "its last: anybody's"
    assert all(owner == "me" for owner, _ in left[:-1])
    assert left[0][1] == pytest.approx(2 * TRIP, abs=0.002), "it has not shown yet that it goes on"
    assert left[1][1] == pytest.approx((TERM_TRIPS - 1) * TRIP, abs=0.002)
    assert len(left) == TERM_TRIPS
    time.now += pause
    refused(time, own, head_of(time, me=0.1, other=0.3))
    assert swap(time, own, head_of(time, me=0.1, other=0.3))[1] > 5 * TRIP, "it went on before"


def test_who_pauses_keeps_the_head_for_a_moment_only(time: Time) -> None:
    own = ownership(time)
    refused(time, own, head_of(time, other=0.3))
    for _ in range(8):
        assert swap(time, own, head_of(time, me=0.4, other=0.3))[1] <= 2 * TRIP + 0.001
        time.now += 5 * TRIP


def test_a_head_that_others_want_is_read_first_after_a_pause(time: Time) -> None:
    own = ownership(time)
    swap(time, own, head_of(time, other=0.3))
    time.now += 1.0
    assert not own.is_outdated, "nobody was in our way"
    refused(time, own, head_of(time, other=0.3))
    swap(time, own, head_of(time, other=0.3))
    assert not own.is_outdated
    time.now += 3 * TRIP
    assert own.is_outdated
    time.now += MEMORY_S
    assert not own.is_outdated


def test_a_refusal_is_forgotten(time: Time) -> None:
    own = ownership(time)
    refused(time, own, head_of(time, other=0.3))
    time.now += MEMORY_S
    assert swap(time, own, head_of(time, other=0.3)) == ("", 0.0)


def test_a_trip_is_learned_from_what_nobody_disturbed(time: Time) -> None:
    own = ownership(time)
    for _ in range(30):
        swap(time, own, head_of(time), took=0.02)
    assert own.trip_s == pytest.approx(0.02, abs=0.002)
    swap(time, own, head_of(time), took=30.0)
    assert own.trip_s < 0.03
    for _ in range(60):
        swap(time, own, head_of(time), took=30.0)
    assert own.trip_s <= 0.3
    own.swapped()
    assert own.lost == 0, "a commit that wrote nothing says nothing"


def test_a_head_keeps_its_owner(time: Time) -> None:
    head = head_of(time, "two 420", one=0.5, two=0.1)
    assert codec.decode(codec.HeadWriter().encode(head)) == head
    assert codec.decode(codec.HeadWriter().encode(head_of(time, one=0.5))).beyond.turn == ""


class World:
    """A head far away: a request arrives after half a trip, its answer after another half."""

    def __init__(self, time: Time, seed: int) -> None:
        self.time, self.dice = time, random.Random(seed)
        self.version, self.turn = 0, ""
        self.sessions: dict[str, tuple[int, float]] = {}
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.time.now + seconds, next(self._count), call))

    def ask(self, at_the_head: Callable[[], Callable[[], None]]) -> None:
        half = TRIP * self.dice.uniform(0.4, 0.6)
        self.later(half, lambda: self.later(half, at_the_head()))

    def run(self, seconds: float) -> None:
        end = self.time.now + seconds
        while self.events and self.events[0][0] < end:
            self.time.now, _, call = heapq.heappop(self.events)
            call()


class Process:
    """One that always has something to commit."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.own = world, name, ownership(world.time, name)
        self.seen, self.version, self.seen_at = Beyond(), 0, START
        self.swaps = self.refusals = self.reads = 0
        self.longest = 0.0

    def begin(self) -> None:
        self.began = self.world.time.now
        self.decide()

    def decide(self) -> None:
        now = self.world.time.now
        head = Head(now=now, beyond=self.seen)
        if pause := self.own.wait_s(head, seen_at=self.seen_at, store_now=now, waiting_since=self.began):
            self.world.later(pause, self.read)
        else:
            turn, version = self.own.turn(head), self.version
            self.world.ask(lambda: self.replace(version, turn))

    def look(self, seen_at: float) -> None:
        world = self.world
        self.seen, self.version = Beyond(sessions=dict(world.sessions), turn=world.turn), world.version
        self.seen_at = seen_at

    def read(self) -> None:
        self.reads += 1
        asked = self.world.time.now

        def at_the_head() -> Callable[[], None]:
            self.look(asked)
            return self.decide

        self.world.ask(at_the_head)

    def replace(self, version: int, turn: str) -> Callable[[], None]:
        world = self.world
        if version != world.version:
            self.refusals += 1
            return self.read
        world.version, world.turn = version + 1, turn
        head = Head(now=world.time.now, beyond=Beyond(sessions=world.sessions))
        world.sessions = repeat.signed(head, self.name, 1).beyond.sessions
        self.look(world.time.now)
        return self.done

    def done(self) -> None:
        self.own.swapped()
        self.swaps += 1
        self.longest = max(self.longest, self.world.time.now - self.began)
        self.world.later(0.005, self.begin)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_processes_share_a_head_and_lose_little(time: Time, count: int) -> None:
    def swaps(count: int, seed: int) -> list[Process]:
        time.now = START
        world = World(time, seed)
        processes = [Process(world, f"p{number}") for number in range(count)]
        for number, each in enumerate(processes):
            world.later(0.05 * number, each.begin)
        world.run(60.0)
        return processes

    random.seed(count)
    alone = swaps(1, 1)[0].swaps
    for seed in range(3):
        processes = swaps(count, seed)
        assert sum(each.swaps for each in processes) > 0.8 * alone
        assert min(each.swaps for each in processes) > 0.5 * max(each.swaps for each in processes)
        assert max(each.longest for each in processes) < 4 * PATIENCE_S + LONE_TERM_S
        if count <= 4:
            requests = sum(each.swaps + each.refusals + each.reads for each in processes)
            assert requests < 3 * sum(each.swaps for each in processes)
