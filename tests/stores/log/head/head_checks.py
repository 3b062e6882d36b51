"""The rules of `head.py`, one function each. A check takes the head module, so that changed copies can be tried too.

`CHECKS` has all of them, those of the neighbouring files included.
"""

from __future__ import annotations

import sys
from types import ModuleType

from holdfast.stores.log.head.state import Absorb, Claim, Drop, Expire, Extend, Freeze, Head, Purge, Remove, Settle
from tests.stores.log.head import head_checks_claims, head_checks_flush, head_checks_lapsing, head_checks_removal
from tests.stores.log.head.head_bench import T0, Bench, claimed, key, span

ALL = span(0, 1, 2, 3)


# Settling.


def check_settlements_by_the_holder(head: ModuleType) -> None:
    """What becomes of two of four held messages: (rules, attempt, settlement) → (status, kept, completed, failed)."""
    table = [
        ({}, 1, {"action": "complete"}, ("completed", True, 2, 0)),
        ({}, 1, {"action": "complete", "keep": False}, ("completed", False, 2, 0)),
        ({"archive": False}, 1, {"action": "complete"}, ("completed", False, 2, 0)),
        ({"archive": False}, 1, {"action": "complete", "keep": True}, ("completed", True, 2, 0)),
        ({}, 1, {"action": "dead", "error": "why"}, ("dead", True, 0, 0)),
        ({}, 1, {"action": "dead", "error": "why", "keep": False}, ("dead", True, 0, 0)),
        ({"archive": False}, 1, {"action": "dead", "error": "why"}, ("dead", True, 0, 0)),
        ({"dead": "failed"}, 1, {"action": "dead", "error": "why"}, ("failed", True, 0, 2)),
        ({"dead": "failed", "archive": False}, 1, {"action": "dead", "error": "why"}, ("failed", False, 0, 2)),
        ({"dead": "moved"}, 1, {"action": "dead", "error": "why"}, ("moved", True, 0, 2)),
        ({"dead": "moved", "archive": False}, 1, {"action": "dead", "error": "why"}, ("moved", True, 0, 2)),
        ({}, 3, {"action": "retry", "error": "why"}, ("dead", True, 0, 0)),
        ({"dead": "failed"}, 3, {"action": "retry", "error": "why"}, ("failed", True, 0, 2)),
        ({"max_attempts": 1}, 1, {"action": "retry", "error": "why"}, ("dead", True, 0, 0)),
    ]
    for rules, attempt, settlement, (status, kept, completed, failed) in table:
        bench = claimed(head, 4, attempts=attempt, **rules)
        before = bench.block().gone
        assert bench.settle("t", 1, span(1, 2), worker="w", **settlement) == span(1, 2)
        assert (bench.head.completed, bench.head.failed) == (completed, failed), settlement
        assert bench.leased("t") == span(0, 3)
        assert bench.head.waiting == []
        assert bench.block().gone - before == (0 if kept else 2)
        recent = [each for each in bench.head.recent if each.token == "t"]
        if kept:
            (group,) = bench.head.settled
            assert (group.block, group.mask, group.status, group.at) == (1, span(1, 2), status, T0)
            assert (group.attempts, group.worker, group.token) == (attempt, "w", "t")
            assert group.error == settlement.get("error")
            assert recent == []
        else:
            assert [(each.block, each.mask, each.status) for each in recent] == [(1, span(1, 2), status)]
            assert bench.head.settled == []


def check_retry_and_release_wait(head: ModuleType) -> None:
    """A retry keeps its attempt, a release gives it back; both come back after their delay."""
    for action, attempts in (("retry", 2), ("release", 1)):
        bench = claimed(head, 4, attempts=2)
        assert bench.settle("t", 1, span(0, 3), action, delay=5.0, error="why") == span(0, 3)
        (group,) = bench.head.waiting
        assert (group.block, group.mask, group.due) == (1, span(0, 3), T0 + 5.0)
        assert (group.attempts, group.crashed, group.error, group.token) == (attempts, False, "why", "t")
        assert bench.head.settled == []
        assert (bench.head.completed, bench.head.failed) == (0, 0)
        assert bench.leased("t") == span(1, 2)


def check_release_of_the_last_attempt_is_no_end(head: ModuleType) -> None:
    bench = claimed(head, 2, attempts=3)
    assert bench.settle("t", 1, span(0, 1), "release") == span(0, 1)
    assert [group.attempts for group in bench.head.waiting] == [2]
    assert bench.claim("u", 2) == [(1, 0, 3), (1, 1, 3)]


def check_the_messages_own_limit_wins(head: ModuleType) -> None:
    for own, ends in ((1, True), (2, False), (9, False)):
        bench = Bench(head, max_attempts=1 if own > 1 else 9)
        bench.absorb(key(1, 1, max_attempts=own))
        bench.claim("t", 1)
        bench.settle("t", 1, 1, "retry")
        assert (bench.head.settled != []) == ends
        assert (bench.head.waiting != []) == (not ends)


def check_waiting_is_ordered_by_due(head: ModuleType) -> None:
    bench = claimed(head, 4)
    for place, delay in enumerate((30.0, 10.0, 20.0, 10.0)):
        bench.settle("t", 1, span(place), "retry", delay=delay)
    assert [group.due - T0 for group in bench.head.waiting] == [10.0, 10.0, 20.0, 30.0]
    assert [group.mask for group in bench.head.waiting] == [span(1), span(3), span(2), span(0)]


def check_results_go_with_their_places(head: ModuleType) -> None:
    bench = claimed(head, 4)
    bench.settle("t", 1, span(1, 2, 3), "complete", results={1: b"one", 3: b"three", 0: b"not asked for"})
    assert bench.head.settled[0].results == [b"one", None, b"three"]
    bench.settle("t", 1, span(0), "complete")
    assert bench.head.settled[1].results is None


def check_outcomes_tell_when_their_lease_began(head: ModuleType) -> None:
    bench = claimed(head, 4)
    began = bench.now
    bench.now += 5.0
    bench.one(Extend("t", 1, span(0), 20.0))
    bench.settle("t", 1, span(0, 1), "complete")
    bench.settle("t", 1, span(2), "dead")
    assert {(group.status, group.claimed, group.at) for group in bench.head.settled} == {
        ("completed", began, began + 5.0),
        ("dead", began, began + 5.0),
    }
    bench.now += 5.0
    again = bench.now
    bench.claim("u", 1)
    bench.settle("u", 1, span(3), "complete")
    assert bench.head.settled[-1].claimed == again
    bench = claimed(head, 1, attempts=3)
    began, bench.now = bench.now, bench.now + 10.0
    bench.one(Expire())
    assert [(group.claimed, group.at) for group in bench.head.settled] == [(began, bench.now)]


def check_repeats_are_success(head: ModuleType) -> None:
    """The same token doing the same again counts and changes nothing, wherever the outcome lies by now.

    (rules, settlement, is there something to flush, which actions lead to what happened)
    """
    table = [
        ({}, {"action": "complete"}, True, ("complete",)),
        ({}, {"action": "complete", "keep": False}, False, ("complete",)),
        ({}, {"action": "dead"}, True, ("dead", "retry")),
        ({"dead": "moved"}, {"action": "dead"}, True, ("dead", "retry")),
        ({"dead": "failed", "archive": False}, {"action": "dead"}, False, ("dead", "retry")),
        ({"max_attempts": 1}, {"action": "retry"}, True, ("dead", "retry")),
        ({}, {"action": "retry", "delay": 9.0}, False, ("retry",)),
        ({}, {"action": "release", "delay": 9.0}, False, ("release",)),
    ]
    for rules, settlement, freezes, same in table:
        bench = claimed(head, 4, **rules)
        assert bench.settle("t", 1, span(1, 2), **settlement) == span(1, 2)
        for frozen in (False, True):
            assert frozen is False or bench.one(Freeze("f")) is freezes
            before = bench.head
            assert bench.settle("t", 1, span(0, 1, 2), **settlement) == span(0, 1, 2)
            assert bench.leased("t") == span(3)
            bench.head = before
            for action in ("complete", "retry", "dead", "release"):
                assert bench.settle("t", 1, span(1, 2), action) == (span(1, 2) if action in same else 0)
                assert bench.settle("t", 1, span(2, 9), action) == (span(2) if action in same else 0)
                assert bench.settle("u", 1, span(1, 2), action) == 0
                assert bench.settle("t", 2, span(1, 2), action) == 0
                assert bench.head == before


def check_repeats_are_success_after_the_message_came_back(head: ModuleType) -> None:
    """Somebody else holds it by now: the repeat is told that it had counted, and changes nothing."""
    for action in ("retry", "release"):
        bench = claimed(head, 2)
        bench.settle("t", 1, span(0, 1), action)
        assert bench.claim("u", 1) == [(1, 0, 2 if action == "retry" else 1)]
        before = bench.head
        assert bench.settle("t", 1, span(0, 1), action) == span(0, 1)
        assert bench.settle("t", 1, span(0, 1), "complete") == 0
        assert bench.settle("t", 1, span(0, 1), "dead") == 0
        assert bench.head == before


def check_repeats_are_success_while_spilled_retries_are_frozen(head: ModuleType) -> None:
    bench = claimed(head, 400)
    every = span(*range(400))
    bench.settle("t", 1, every, "retry", delay=9.0)
    assert bench.one(Freeze("f"))
    assert bench.head.waiting == []
    assert bench.settle("t", 1, every, "retry", delay=9.0) == every
    assert bench.settle("t", 1, every, "dead") == 0


def check_one_token_may_end_messages_differently(head: ModuleType) -> None:
    """What is remembered of a token tells completed from failed."""
    bench = claimed(head, 4, dead="failed", archive=False)
    bench.settle("t", 1, span(0), "complete")
    bench.settle("t", 1, span(1), "dead")
    bench.settle("t", 1, span(2), "complete")
    assert bench.settle("t", 1, ALL & ~span(3), "complete") == span(0, 2)
    assert bench.settle("t", 1, ALL & ~span(3), "dead") == span(1)
    assert (bench.head.completed, bench.head.failed) == (2, 1)
    assert len(bench.head.recent) == 2


def check_a_stale_token_changes_nothing(head: ModuleType) -> None:
    bench = claimed(head, 2, attempts=2, crash=True)
    assert bench.leased("t1") == 0
    before = bench.head
    for action in ("complete", "retry", "dead", "release"):
        assert bench.settle("t1", 1, span(0, 1), action) == 0
        assert bench.settle("nobody", 1, span(0, 1), action) == 0
        assert bench.settle("t", 7, span(0, 1), action) == 0
    assert bench.one(Extend("t1", 1, span(0, 1), 60.0)) == 0
    assert bench.head == before


def check_recent_memory_is_bounded(head: ModuleType) -> None:
    bench = Bench(head)
    bench.absorb(key(1, 40))
    for place in range(40):
        bench.claim(f"t{place}", 1)
        bench.settle(f"t{place}", 1, span(place), "complete", keep=False)
    assert [each.token for each in bench.head.recent] == [f"t{place}" for place in range(8, 40)]
    assert bench.settle("t39", 1, span(39), "complete") == span(39)
    assert bench.settle("t7", 1, span(7), "complete") == 0
    assert head.RECENT_MOST == 32


# Extending.


def check_extend_never_shortens(head: ModuleType) -> None:
    for seconds, end in ((60.0, 60.0), (10.0, 10.0), (9.0, 10.0), (0.0, 10.0)):
        bench = claimed(head, 2)
        assert bench.one(Extend("t", 1, span(0, 1), seconds)) == span(0, 1)
        (lease,) = bench.head.leases
        assert (lease.mask, lease.expires) == (span(0, 1), T0 + end)
    bench.now += 4.0
    assert bench.one(Extend("t", 1, span(0, 1), 8.0)) == span(0, 1)
    assert [lease.expires for lease in bench.head.leases] == [T0 + 12.0]


def check_extend_splits_a_lease(head: ModuleType) -> None:
    bench = claimed(head, 4, attempts=2, crash=True)
    started = bench.now
    assert bench.one(Extend("t", 1, span(1, 2, 9), 60.0)) == span(1, 2)
    ends = {lease.mask: lease.expires - started for lease in bench.head.leases}
    assert ends == {span(0, 3): 10.0, span(1, 2): 60.0}
    assert {(lease.attempts, lease.crashed) for lease in bench.head.leases} == {(2, True)}
    assert bench.one(Extend("t", 1, ALL, 30.0)) == ALL
    assert sorted(lease.expires - started for lease in bench.head.leases) == [30.0, 60.0]
    assert bench.settle("t", 1, ALL, "complete") == ALL
    assert bench.head.leases == []


def check_extend_of_nothing_held(head: ModuleType) -> None:
    bench = claimed(head, 2)
    bench.settle("t", 1, span(0), "complete")
    before = bench.head
    for intent in (Extend("t", 1, span(0), 60.0), Extend("u", 1, span(1), 60.0), Extend("t", 2, span(1), 60.0)):
        assert bench.one(intent) == 0
    assert bench.head == before
    assert bench.one(Extend("t", 1, span(0, 1), 60.0)) == span(1)


# Absorbing and expiring.


def check_absorbing_twice_is_harmless(head: ModuleType) -> None:
    bench = Bench(head)
    keys = [key(1, 3, priority=7, max_attempts=2, attempts=1, crashed=True), key(2, 4, due=T0 + 5)]
    assert bench.absorb(*keys) == 2
    assert [(block.no, block.key, block.due) for block in bench.head.blocks.values()] == [
        (1, keys[0], 0.0),
        (2, keys[1], T0 + 5),
    ]
    bench.claim("t", 1)
    before = bench.head
    assert bench.absorb(*keys) == 0
    assert bench.head == before
    assert bench.absorb(keys[1], key(3, 1)) == 1
    assert list(bench.head.blocks) == [1, 2, 3]


def check_numbers_of_blocks_are_not_reused(head: ModuleType) -> None:
    bench = claimed(head, 1)
    bench.settle("t", 1, 1, "complete", keep=False)
    assert bench.head.blocks == {}
    bench.absorb(key(2, 1))
    assert list(bench.head.blocks) == [2]


def check_expiry_ends_what_has_no_attempt_left(head: ModuleType) -> None:
    """(rules, attempt) → how it ends when its lease is over, None: it does not; and whether a row is kept."""
    table = [
        ({}, 3, "dead", True),
        ({"archive": False}, 3, "dead", True),
        ({"max_attempts": 1}, 1, "dead", True),
        ({"retry_expired": False}, 1, "dead", True),
        ({"dead": "failed"}, 3, "failed", True),
        ({"dead": "failed", "archive": False}, 3, "failed", False),
        ({"dead": "moved", "archive": False}, 3, "moved", True),
        ({}, 1, None, False),
        ({}, 2, None, False),
    ]
    for rules, attempt, status, kept in table:
        bench = claimed(head, 2, attempts=attempt, **rules)
        bench.now += 9.9
        assert bench.one(Expire()) == []
        bench.now = T0 + 10.0
        over = bench.one(Expire())
        assert [(each.block, each.mask, each.attempts) for each in over] == (
            [(1, span(0, 1), attempt)] if status else []
        )
        assert bench.leased("t") == (0 if status else span(0, 1))
        assert bench.head.failed == (2 if status in ("failed", "moved") else 0)
        ended = [(group.mask, group.status, group.error, group.attempts) for group in bench.head.settled]
        assert ended == ([(span(0, 1), status, "lease expired", attempt)] if kept else [])
        assert bench.finished == ([key(1, 2)] if status and not kept else [])


def check_the_holder_may_finish_after_the_end_while_nobody_took_it(head: ModuleType) -> None:
    """Settle and extend come before expiry in one commit."""
    for intent in (Settle("t", 1, span(0, 1), "complete"), Extend("t", 1, span(0, 1), 60.0)):
        bench = claimed(head, 2, attempts=3)
        bench.now += 11.0
        mask, over, taken = bench.do(intent, Expire(), Claim("u", 9, 10.0))
        assert (mask, over, taken) == (span(0, 1), [], [])


# All together.


def check_intents_run_in_the_order_of_the_protocol(head: ModuleType) -> None:
    """Whatever their order in the call; the results come in the order of the call."""
    bench = claimed(head, 1)
    bench.absorb(key(2, 1))
    intents = [
        Drop("f"),
        Freeze("f"),
        Claim("u", 9, 10.0),
        Expire(),
        Absorb([key(3, 1)], "own"),
        Purge(),
        Remove(2, span(0), "cancelled"),
        Settle("t", 1, span(0), "complete"),
    ]
    results = bench.do(*intents)
    assert results[:2] == [True, True]
    assert [each.block for each in results[2]] == [3], "absorbed after the purge, claimed after that"
    assert results[3:] == [[], 1, 0, span(0), span(0)]
    assert bench.finished == [key(1, 1), key(2, 1)]


def check_apply_leaves_its_input_alone(head: ModuleType) -> None:
    bench = claimed(head, 4)
    bench.settle("t", 1, span(0), "complete")
    bench.settle("t", 1, span(1), "retry")
    before, copy = bench.head, bench.head.copy()
    bench.do(
        Settle("t", 1, span(2), "complete", keep=False), Absorb([key(2, 1)], "own"), Claim("u", 9, 10.0), Freeze("f")
    )
    assert before == copy
    assert bench.head != copy


def check_the_heads_time_never_goes_back(head: ModuleType) -> None:
    bench = Bench(head)
    bench.do()
    bench.now -= 100.0
    bench.absorb(key(1, 1))
    assert bench.head.now == T0
    bench.claim("t", 1)
    assert bench.head.leases[0].expires == T0 + 10.0


def check_an_empty_head_has_nothing(head: ModuleType) -> None:
    assert head.apply(Head(), [], T0, Bench(head).rules) == head.Applied(Head(now=T0), [], [])


CHECKS = {
    name: check
    for module in (
        head_checks_claims,
        head_checks_flush,
        head_checks_lapsing,
        head_checks_removal,
        sys.modules[__name__],
    )
    for name, check in list(vars(module).items())
    if name.startswith("check_")
}
