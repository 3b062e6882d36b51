"""The rules of `head.py` about claiming; see `head_checks`."""

from __future__ import annotations

from types import ModuleType

from holdfast.stores.log.head.state import Claim, Expire, Head, Rules
from tests.stores.log.head.head_bench import T0, Bench, claimed, key, span


def check_claim_order(head: ModuleType) -> None:
    """Priority, block, place; never more than the limit."""
    bench = Bench(head)
    bench.absorb(key(9, 2), key(3, 2, priority=1), key(4, 2), key(8, 1, priority=255), key(2, 1, priority=1))
    expected = [(4, 0, 1), (5, 0, 1), (2, 0, 1), (2, 1, 1), (3, 0, 1), (3, 1, 1), (1, 0, 1), (1, 1, 1)]
    for limit in (1, 2, 3, 7, 8, 100):
        trial = Bench(head)
        trial.head = bench.head
        given = [trial.claim(f"t{turn}", limit) for turn in range(10)]
        assert all(len(each) <= limit for each in given)
        assert [each for turn in given for each in turn] == expected


def check_claims_of_one_commit_share_nothing(head: ModuleType) -> None:
    bench = Bench(head)
    bench.absorb(key(1, 5))
    first, second, third = bench.do(Claim("t", 2, 10.0), Claim("u", 2, 20.0), Claim("v", 2, 30.0))
    assert [[each.mask for each in taken] for taken in (first, second, third)] == [
        [span(0, 1)],
        [span(2, 3)],
        [span(4)],
    ]
    assert [each.expires for taken in (first, second, third) for each in taken] == [T0 + 10.0, T0 + 20.0, T0 + 30.0]
    assert (bench.leased("t"), bench.leased("u"), bench.leased("v")) == (span(0, 1), span(2, 3), span(4))


def check_what_returns_keeps_its_place(head: ModuleType) -> None:
    """Fresh messages, due retries and expired leases of one block, claimed together, come in order of place."""
    bench = Bench(head, max_attempts=5)
    bench.absorb(key(1, 5), key(2, 1))
    bench.claim("a", 1, 5.0)
    bench.claim("b", 1, 60.0)
    bench.claim("c", 2)
    bench.settle("c", 1, span(3), "retry", delay=3.0)
    bench.settle("c", 1, span(2), "retry", delay=60.0)
    bench.now += 6.0
    taken = bench.one(Claim("t", 3, 10.0))
    given = sorted((each.block, each.mask, each.attempt, each.recovered) for each in taken)
    assert given == [(1, span(0), 2, True), (1, span(3), 2, False), (1, span(4), 1, False)]
    assert bench.leased("t") == span(0, 3, 4)
    assert bench.leased("a") == 0, "the old token is gone with its lease"
    assert bench.leased("b") == span(1), "a live lease is never taken"
    assert bench.waits() == span(2), "what is not due waits on"
    assert bench.claim("u", 9) == [(2, 0, 1)]


def check_what_somebody_else_delayed_has_a_margin(head: ModuleType) -> None:
    """Clocks differ, so a retry or a delayed block of another process is due later."""
    later = key(2, 1, due=T0 + 4.05)  # born long ago: a clock may have gained a second since, and 0.05 in five
    bench = Bench(head, margin=2.0, own="u", now=T0)
    bench.absorb(key(1, 1), later)
    bench.claim("t", 1)
    bench.settle("t", 1, span(0), "release")
    assert bench.claim("t", 1) == [(1, 0, 1)], "what is given back at once waits for nothing"
    bench.settle("t", 1, span(0), "retry", delay=5.0)
    for passed, given in ((7.04, []), (7.06, [(1, 0, 2), (2, 0, 1)])):
        bench.now = T0 + passed
        assert head.wanted(Head(now=bench.now), [later], 1, bench.rules) == ([later], bool(given))
        assert bench.claim("u", 9) == given


def check_ones_own_instants_are_by_ones_own_clock(head: ModuleType) -> None:
    """The head's time may be that of a process whose clock is ahead."""
    later = key(2, 1, due=T0 + 4.05)
    bench = Bench(head, margin=2.0, own="t", own_blocks=(later,), now=T0)
    bench.absorb(key(1, 1), later)
    bench.claim("t", 1)
    bench.head.now = T0 + 60.0
    bench.settle("t", 1, span(0), "retry", delay=5.0)
    for passed, given in ((5.04, []), (5.06, [(1, 0, 2), (2, 0, 1)])):
        bench.rules = Rules(margin=2.0, own="t", own_blocks=(later,), now=T0 + passed)
        assert bench.claim("t", 9) == given


def check_the_lowest_places_first_whatever_they_come_from(head: ModuleType) -> None:
    for limit, expected in ((1, span(0)), (2, span(0, 1)), (3, span(0, 1, 2)), (4, span(0, 1, 2, 3))):
        bench = Bench(head, max_attempts=5)
        bench.absorb(key(1, 4))
        bench.claim("a", 1, 5.0)
        bench.claim("b", 2)
        bench.settle("b", 1, span(1, 2), "retry")
        bench.now += 6.0
        taken = bench.one(Claim("t", limit, 10.0))
        assert sum(each.mask for each in taken) == expected
        assert bench.leased("t") == expected
        assert bench.leased("a") == span(0) & ~expected
        assert bench.waits() == span(1, 2) & ~expected
        assert bench.block().fresh() == span(3) & ~expected


def check_a_live_lease_is_never_stolen(head: ModuleType) -> None:
    bench = claimed(head, 2)
    bench.now += 9.999
    assert bench.claim("u", 9) == []
    bench.now = T0 + 10.0
    assert bench.claim("u", 9) == [(1, 0, 2), (1, 1, 2)]
    assert (bench.leased("t"), bench.leased("u")) == (0, span(0, 1))


def check_retries_wait_for_their_time(head: ModuleType) -> None:
    bench = claimed(head, 2)
    bench.settle("t", 1, span(0), "retry", delay=5.0)
    bench.settle("t", 1, span(1), "release", delay=6.0)
    bench.now += 4.999
    assert bench.claim("u", 9) == []
    bench.now = T0 + 5.0
    assert bench.claim("v", 9) == [(1, 0, 2)]
    bench.now = T0 + 6.0
    assert bench.claim("w", 9) == [(1, 1, 1)]


def check_a_paused_queue_gives_nothing(head: ModuleType) -> None:
    bench = Bench(head, paused=True)
    bench.absorb(key(1, 2))
    assert bench.claim("t", 9) == []
    assert bench.head.leases == []
    assert bench.block().fresh() == span(0, 1)


def check_blocks_wait_for_their_time(head: ModuleType) -> None:
    bench = Bench(head)
    bench.absorb(key(1, 2, due=T0 + 5.0), key(2, 1, due=T0 + 50.0, priority=9), key(3, 1))
    assert bench.claim("t", 9) == [(3, 0, 1)]
    bench.now += 4.999
    assert bench.claim("t", 9) == []
    bench.now = T0 + 5.0
    assert bench.claim("u", 9) == [(1, 0, 1), (1, 1, 1)]


def check_attempts_of_a_block_count(head: ModuleType) -> None:
    """Retries that left the head in a block go on counting where they were."""
    bench = Bench(head, max_attempts=3)
    bench.absorb(key(1, 1, attempts=2))
    assert bench.claim("t", 1) == [(1, 0, 3)]
    bench.settle("t", 1, span(0), "retry")
    assert [group.status for group in bench.head.settled] == ["dead"]


def check_a_claim_takes_nothing_that_has_no_attempt_left(head: ModuleType) -> None:
    """Also when nobody has ended it yet."""
    bench = Bench(head, max_attempts=1)
    bench.absorb(key(1, 1))
    bench.claim("t", 1, 5.0)
    bench.now += 6.0
    assert bench.one(Claim("u", 1, 5.0)) == []
    assert len(bench.one(Expire())) == 1


def check_the_last_attempt_after_a_crash_is_alone(head: ModuleType) -> None:
    """(attempts before, crash) → alone, for a message with two neighbours that never ran."""
    table = [(1, True, False), (2, True, True), (2, False, False), (1, False, False)]
    for attempts, crash, alone in table:
        bench = claimed(head, 1, attempts=attempts, crash=crash)
        bench.absorb(key(2, 2))
        if crash:
            bench.now += 10.0
        else:
            bench.settle("t", 1, span(0), "retry")
        taken = bench.one(Claim("u", 9, 10.0))
        assert [each.alone for each in taken] == ([True] if alone else [False, False])
        assert [(each.block, each.mask) for each in taken] == ([(1, 1)] if alone else [(1, 1), (2, span(0, 1))])
        assert taken[0].recovered == crash


def check_others_go_before_the_one_that_runs_alone(head: ModuleType) -> None:
    """Messages before it in the same block, or in blocks before, are given first, without it."""
    same, other = Bench(head, max_attempts=2), Bench(head, max_attempts=2)
    same.absorb(key(1, 4))
    same.claim("a", 1, 60.0)
    same.claim("b", 1)
    same.now += 11.0
    same.settle("a", 1, span(0), "release")
    assert same.claim("t", 9) == [(1, 0, 1)]
    taken = same.one(Claim("u", 9, 10.0))
    assert [(each.mask, each.alone, each.attempt) for each in taken] == [(span(1), True, 2)]
    assert same.claim("v", 9) == [(1, 2, 1), (1, 3, 1)]

    other.absorb(key(2, 2))
    other.claim("a", 2)
    other.now += 11.0
    other.absorb(key(1, 1), key(3, 1))
    assert other.claim("t", 9) == [(2, 0, 1)]
    for token, place in (("u", 0), ("v", 1)):
        taken = other.one(Claim(token, 9, 10.0))
        assert [(each.block, each.mask, each.alone) for each in taken] == [(1, span(place), True)]
    assert other.claim("w", 9) == [(3, 0, 1)]


def check_a_full_claim_needs_no_stop(head: ModuleType) -> None:
    """One that must run alone but lies beyond the limit stops nobody."""
    bench = Bench(head, max_attempts=2)
    bench.absorb(key(1, 3))
    bench.claim("a", 2, 60.0)
    bench.claim("b", 1)
    bench.now += 11.0
    bench.settle("a", 1, span(0, 1), "release")
    assert bench.claim("t", 2) == [(1, 0, 1), (1, 1, 1)]
    assert bench.claim("u", 2) == [(1, 2, 2)]


def check_a_crash_is_remembered_through_retries_and_blocks(head: ModuleType) -> None:
    bench = claimed(head, 1, attempts=2, crash=True, max_attempts=4)
    bench.settle("t", 1, span(0), "retry")
    assert bench.claim("u", 1) == [(1, 0, 3)]
    bench.settle("u", 1, span(0), "release")
    assert bench.claim("u", 1) == [(1, 0, 3)]
    bench.settle("u", 1, span(0), "retry")
    assert [each.alone for each in bench.one(Claim("v", 9, 10.0))] == [True]

    for crashed in (True, False):
        bench = Bench(head)
        bench.absorb(key(1, 3, attempts=2, crashed=crashed))
        taken = bench.one(Claim("t", 9, 10.0))
        assert [(each.mask, each.alone) for each in taken] == [(span(0), True) if crashed else (span(0, 1, 2), False)]


def check_expiry_comes_before_the_claim(head: ModuleType) -> None:
    """A message with no attempt left is not given, also when both are asked for at once."""
    bench = claimed(head, 2, attempts=3)
    bench.absorb(key(2, 1))
    bench.now += 10.0
    taken, over = bench.do(Claim("u", 9, 10.0), Expire())
    assert [(each.block, each.mask) for each in taken] == [(2, span(0))]
    assert [(each.block, each.mask, each.attempts) for each in over] == [(1, span(0, 1), 3)]


# Which blocks to take in.


def check_wanted_counts_nothing_beyond_the_end_of_the_list(head: ModuleType) -> None:
    """More urgent blocks may follow the last one listed: what is held or due behind it is not enough."""
    bench = Bench(head)
    bench.absorb(key(1, 10))
    urgent, due = key(5, 2, priority=5), key(3, 10, due=T0 - 1)
    assert head.wanted(bench.head, [urgent], 5) == ([urgent], True)
    assert head.wanted(bench.head, [urgent], 5, upto=urgent) == ([urgent], False)
    assert head.wanted(bench.head, [urgent], 2, upto=urgent) == ([urgent], True)
    assert head.wanted(Bench(head).head, [urgent, due], 5, upto=urgent) == ([urgent, due], False)


def check_wanted_takes_just_enough(head: ModuleType) -> None:
    """(demand, what is known and how far it was claimed) → which of the listed blocks."""
    listed = [key(number, 10) for number in range(1, 6)]
    urgent = key(9, 10, priority=5)
    table = [
        (0, [], []),
        (1, [], [urgent]),
        (10, [], [urgent]),
        (11, [], [urgent, listed[0]]),
        (35, [], [urgent, *listed[:3]]),
        (999, [], [urgent, *listed]),
        (11, [urgent], [listed[0]]),
        (10, [urgent], []),
        (11, [listed[0]], [urgent]),
        (21, [listed[0]], [urgent, listed[1]]),
        (21, [listed[4]], [urgent, listed[0], listed[1]]),
    ]
    for demand, known, expected in table:
        bench = Bench(head)
        bench.absorb(*known)
        chosen, enough = head.wanted(bench.head, [*listed, urgent], demand)
        assert chosen == expected, (demand, known)
        assert enough is (demand <= 60)


def check_wanted_counts_what_a_block_can_still_give(head: ModuleType) -> None:
    bench = Bench(head)
    later = key(2, 10, due=T0 + 5.0)
    bench.absorb(key(1, 10), later)
    listed = [key(1, 10), later, key(3, 10), key(4, 10)]
    assert head.wanted(bench.head, listed, 10)[0] == []
    assert head.wanted(bench.head, listed, 11)[0] == [key(3, 10)], "a block that is not due gives nothing"
    bench.claim("t", 8)
    assert head.wanted(bench.head, listed, 3)[0] == [key(3, 10)]
    bench.claim("t", 2)
    assert head.wanted(bench.head, listed, 11)[0] == [key(3, 10), key(4, 10)]
    bench.now += 5.0
    bench.do()
    assert head.wanted(bench.head, listed, 10)[0] == []
