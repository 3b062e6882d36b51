"""The rules of `head.py` about removing messages: cancel, delete, purge; see `head_checks`."""

from __future__ import annotations

from types import ModuleType

import msgspec

from holdfast.stores.log.head.pipelines import FOREVER
from holdfast.stores.log.head.state import Claim, Drop, Freeze, Purge, Remove, Rewrite, TakeBack
from tests.stores.log.head.head_bench import T0, Bench, claimed, key, span

ALL = span(0, 1, 2, 3)


def check_cancel_of_fresh_messages(head: ModuleType) -> None:
    """From the middle of a block: the others keep their places, the cancelled one is never given."""
    bench = Bench(head)
    bench.absorb(key(1, 5, attempts=1))
    assert bench.claim("t", 1) == [(1, 0, 2)]
    assert bench.one(Remove(1, span(2, 3), "cancelled")) == span(2, 3)
    (group,) = bench.head.settled
    assert (group.mask, group.status, group.error, group.attempts) == (span(2, 3), "failed", "cancelled", 1)
    assert (group.at, group.worker, group.token, group.results) == (T0, None, "", None)
    assert bench.head.failed == 2
    assert bench.one(Remove(1, span(2, 3), "cancelled")) == 0
    assert bench.head.failed == 2
    assert bench.block().fresh() == span(1, 4)
    assert bench.claim("u", 1) == [(1, 1, 2)]
    assert bench.claim("v", 9) == [(1, 4, 2)]
    assert bench.claim("w", 9) == []


def check_replayed_messages_leave_with_the_flush(head: ModuleType) -> None:
    """They are neither lost nor counted as failed: the flush writes them elsewhere, then they are gone."""
    bench = Bench(head)
    bench.absorb(key(1, 3))
    assert bench.one(Remove(1, span(0, 1), replay=True)) == span(0, 1)
    (group,) = bench.head.settled
    assert (group.mask, group.status, group.error) == (span(0, 1), "replayed", None)
    assert (bench.head.failed, bench.block().gone) == (0, 0)
    assert bench.flush()
    assert bench.block().gone == 2


def check_cancel_of_waiting_messages(head: ModuleType) -> None:
    bench = claimed(head, 3, attempts=2)
    bench.settle("t", 1, span(0), "retry", delay=8.0, error="why")
    bench.settle("t", 1, span(1), "retry", delay=9.0, error="why")
    assert bench.one(Remove(1, span(1, 2), "cancelled")) == span(1)
    (group,) = bench.head.settled
    assert (group.mask, group.status, group.error, group.attempts) == (span(1), "failed", "cancelled", 2)
    assert bench.waits() == span(0)
    assert bench.leased("t") == span(2), "a held message is not cancelled"
    assert bench.one(Remove(1, span(0), "cancelled")) == span(0)
    assert bench.head.waiting == []
    assert bench.head.failed == 2


def check_cancel_of_messages_whose_lease_is_over(head: ModuleType) -> None:
    """They are visible again, so they are nobody's; the old token is worth nothing then."""
    bench = claimed(head, 4, attempts=2)
    bench.now += 9.9
    assert bench.one(Remove(1, span(0), "cancelled")) == 0
    bench.now = T0 + 10.0
    assert bench.one(Remove(1, span(0, 1), "cancelled")) == span(0, 1)
    (group,) = bench.head.settled
    assert (group.mask, group.status, group.error, group.attempts) == (span(0, 1), "failed", "cancelled", 2)
    assert bench.leased("t") == span(2, 3)
    assert bench.one(Remove(1, span(2))) == span(2)
    assert bench.settle("t", 1, ALL, "complete") == span(3)
    assert (bench.head.completed, bench.head.failed, bench.block().gone) == (1, 2, 1)


def check_cancel_touches_no_other_block(head: ModuleType) -> None:
    bench = claimed(head, 1)
    bench.absorb(key(2, 1), key(3, 1))
    bench.claim("u", 2)
    bench.settle("u", 2, span(0), "retry", delay=99.0)
    bench.now += 11.0
    assert bench.one(Remove(1, span(0))) == span(0)
    assert bench.waits(2) == span(0)
    assert bench.leased("u", 3) == span(0)


def check_cancel_keeps_no_row_without_an_archive(head: ModuleType) -> None:
    bench = Bench(head, archive=False)
    bench.absorb(key(1, 2))
    assert bench.one(Remove(1, span(1), "cancelled")) == span(1)
    assert bench.head.settled == []
    assert (bench.block().gone, bench.head.failed) == (1, 1)


def check_delete_leaves_no_trace(head: ModuleType) -> None:
    bench = Bench(head)
    bench.absorb(key(1, 3), key(2, 1))
    bench.claim("t", 1)
    bench.settle("t", 1, span(0), "release", delay=9.0)
    assert bench.one(Remove(1, span(0, 2))) == span(0, 2)
    assert (bench.head.settled, bench.head.waiting, bench.head.failed) == ([], [], 0)
    assert bench.block().gone == 2
    assert bench.one(Remove(1, span(1))) == span(1)
    assert bench.finished == [key(1, 3)]
    assert bench.claim("u", 9) == [(2, 0, 1)]


def check_purge_spares_what_is_held_or_settled(head: ModuleType) -> None:
    """Of seven messages one each is settled, frozen, held, fresh, waiting, due and under an expired lease."""
    bench = Bench(head)
    bench.absorb(key(1, 7), key(2, 3, due=T0 + 99), key(3, 2))
    bench.claim("a", 1)
    bench.settle("a", 1, span(0), "complete")
    bench.one(Freeze("f"))
    bench.claim("b", 1)
    bench.settle("b", 1, span(1), "complete")
    bench.claim("c", 1, 5.0)
    bench.claim("d", 1, 50.0)
    bench.claim("e", 1)
    bench.settle("e", 1, span(4), "retry", delay=60.0)
    bench.claim("f", 1)
    bench.settle("f", 1, span(5), "release")
    bench.now += 6.0
    assert bench.one(Purge()) == 4 + 3 + 2
    assert bench.finished == [key(2, 3, due=T0 + 99), key(3, 2)]
    assert bench.block().gone == 4
    assert bench.leased("d") == span(3)
    assert len(bench.head.leases) == 1
    assert bench.head.waiting == []
    assert bench.one(Purge()) == 0
    assert bench.claim("u", 9) == []
    assert bench.settle("d", 1, span(3), "complete") == span(3)
    assert (bench.head.completed, bench.head.failed) == (3, 0)
    assert bench.one(Drop("f"))
    assert bench.flush("g")
    assert bench.finished[2:] == [key(1, 7)]
    assert bench.head.blocks == {}


def check_cancel_of_held_messages_when_asked_for(head: ModuleType) -> None:
    """Their token is worth nothing then; what a pipeline holds stays."""
    bench = claimed(head, 3, attempts=1)
    bench.settle("t", 1, span(0), "retry", delay=8.0)
    assert bench.one(Remove(1, span(0, 1), "cancelled", held=True)) == span(0, 1)
    assert {(each.mask, each.claimed) for each in bench.head.settled} == {(span(0), 0.0), (span(1), T0)}
    assert bench.leased("t") == span(2)
    assert bench.settle("t", 1, span(1, 2), "complete") == span(2)
    assert (bench.head.completed, bench.head.failed) == (1, 2)
    bench.absorb(key(2, 1))
    bench.claim("pipe", 1, lease=2 * FOREVER)
    assert bench.one(Remove(2, span(0), "cancelled", held=True)) == 0


def check_leases_are_taken_back(head: ModuleType) -> None:
    """At once and for everybody: the old token is worth nothing, the attempt counts, and the next claim recovers it."""
    bench = claimed(head, 4, attempts=1)
    bench.rules = msgspec.structs.replace(bench.rules, margin=2.0, own="t")
    assert bench.one(TakeBack(2, ALL, "nobody")) == 0
    assert bench.one(TakeBack(1, span(1, 2), "nobody")) == span(1, 2)
    assert bench.one(TakeBack(1, span(1, 2), "again")) == 0, "their lease is over"
    assert bench.leased("t") == span(0, 3)
    assert bench.settle("t", 1, ALL, "complete") == span(0, 3)
    (taken,) = bench.one(Claim("u", 9, 10.0))
    assert (taken.mask, taken.attempt, taken.recovered) == (span(1, 2), 2, True)
    bench.now += 11.0
    assert bench.one(TakeBack(1, span(1, 2), "late")) == span(1, 2), "by the margin it is not over yet"
    bench.absorb(key(2, 1))
    bench.claim("pipe", 9, lease=2 * FOREVER)
    assert bench.one(TakeBack(2, span(0), "nobody")) == 0, "a pipeline's"


def check_messages_are_rewritten(head: ModuleType) -> None:
    """Only what nobody holds; due ones are fresh in their new block, the others wait."""
    bench = Bench(head)
    bench.absorb(key(1, 5, attempts=1), key(2, 1, due=T0 + 50, crashed=True))
    assert bench.claim("t", 2) == [(1, 0, 2), (1, 1, 2)]
    assert not bench.one(Rewrite(1, span(0), key(7, 1), "n")), "held"
    assert not bench.head.waiting
    assert bench.one(Rewrite(1, span(3), key(7, 1, priority=3, attempts=1), "n"))
    assert not bench.one(Rewrite(1, span(3), key(8, 1), "n")), "it is gone from there"
    assert bench.block(1).gone == 1
    assert bench.claim("u", 1) == [(3, 0, 2)]
    bench.settle("t", 1, span(0), "retry", delay=20.0)
    assert not head.has_crashed(bench.head, 1, span(0))
    assert bench.one(Rewrite(1, span(0), key(9, 1, attempts=2), "n"))
    (waiting,) = bench.head.waiting
    assert (waiting.block, waiting.due, waiting.attempts, waiting.crashed) == (4, T0 + 20.0, 2, False)
    assert bench.one(Rewrite(4, span(0), key(10, 1, attempts=2), "n", delay=5.0))
    assert [(each.block, each.due) for each in bench.head.waiting] == [(5, T0 + 5.0)]
    assert bench.one(Rewrite(2, span(0), key(11, 1, crashed=True), "n"))
    assert [(each.due, each.crashed) for each in bench.head.waiting] == [(T0 + 5.0, False), (T0 + 50, True)]
    assert head.has_crashed(bench.head, 6, span(0))
    assert bench.one(Rewrite(6, span(0), key(12, 1, crashed=True), "n", at=T0 - 1))
    assert bench.claim("v", 1, lease=1.0) == [(1, 2, 2)], "by age"
    bench.now += 6.0
    assert head.has_crashed(bench.head, 1, span(2)), "its lease is over"
    assert bench.one(Rewrite(5, span(0), key(13, 1, attempts=2), "n")), "it is due by now"
    assert bench.one(Rewrite(1, span(2), key(14, 1, attempts=2, crashed=True), "n", delay=9.0))
    assert [(each.attempts, each.crashed) for each in bench.head.waiting] == [(2, True)]
    assert not head.has_crashed(bench.head, 8, span(0))
