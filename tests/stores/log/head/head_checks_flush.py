"""The rules of `head.py` about flushes; see `head_checks`."""

from __future__ import annotations

from types import ModuleType

from holdfast.stores.log.head.state import FLUSH_MOST, Drop, Freeze, Gathered, Settled
from tests.stores.log.head.head_bench import T0, Bench, claimed, key, span


def check_only_one_set_is_frozen(head: ModuleType) -> None:
    bench = claimed(head, 3)
    assert bench.one(Freeze("f0")) is False
    bench.settle("t", 1, span(0), "complete")
    settled = bench.head.settled
    assert bench.do(Freeze("f1"), Freeze("f2")) == [True, False]
    assert (bench.head.frozen.flush, bench.head.frozen.since) == ("f1", T0)
    assert (bench.head.frozen.settled, bench.head.frozen.waiting) == (settled, [])
    assert bench.head.settled == []
    frozen = bench.head.frozen
    bench.settle("t", 1, span(1), "complete")
    bench.now += 99.0
    assert bench.one(Freeze("f3")) is False
    assert bench.head.frozen == frozen
    assert [group.mask for group in bench.head.settled] == [span(1)]


def check_a_flush_takes_no_more_than_one_file_should_hold(head: ModuleType) -> None:
    most = FLUSH_MOST // 2 + 1
    bench = Bench(head)
    bench.absorb(*(key(number, most) for number in (1, 2, 3)))
    bench.claim("t", 3 * most)
    for number in (1, 2, 3):
        bench.settle("t", number, (1 << most) - 1, "complete")
    assert bench.one(Freeze("f1"))
    assert [group.block for group in bench.head.frozen.settled] == [1, 2]
    assert [group.block for group in bench.head.settled] == [3]
    assert bench.one(Drop("f1"))
    assert bench.flush("f2")
    assert (bench.head.settled, bench.head.blocks) == ([], {})


def check_a_drop_needs_the_name_of_the_frozen_set(head: ModuleType) -> None:
    bench = claimed(head, 2)
    assert bench.one(Drop("f1")) is False
    bench.settle("t", 1, span(0), "complete")
    bench.one(Freeze("f1"))
    assert bench.one(Drop("f2")) is False
    assert bench.head.frozen is not None
    assert bench.block().gone == 0
    assert bench.one(Drop("f1")) is True
    assert bench.head.frozen is None
    assert bench.block().gone == 1
    assert bench.one(Drop("f1")) is False
    assert bench.block().gone == 1
    assert bench.settle("t", 1, span(0), "complete") == 0, "from here on the archive answers"


def check_a_block_is_finished_once_its_last_row_left(head: ModuleType) -> None:
    """One message each completes with and without a row, dies, is cancelled and is deleted."""
    bench = claimed(head, 4)
    bench.absorb(key(2, 1))
    bench.settle("t", 1, span(0), "complete")
    bench.settle("t", 1, span(1), "complete", keep=False)
    assert bench.flush("f1")
    bench.settle("t", 1, span(2), "dead")
    bench.settle("t", 1, span(3), "complete")
    assert bench.one(Freeze("f2"))
    assert bench.finished == []
    assert bench.one(Drop("f2"))
    assert bench.finished == [key(1, 4)]
    assert list(bench.head.blocks) == [2]
    bench.claim("u", 9)
    bench.settle("u", 2, span(0), "complete", keep=False)
    assert bench.finished == [key(1, 4), key(2, 1)]
    bench.do()
    assert bench.finished == [key(1, 4), key(2, 1)]
    assert bench.head.blocks == {}


def check_many_retries_leave_all_but_the_nearest(head: ModuleType) -> None:
    """(retries, in groups of) → how many of the nearest stay; up to 300 nothing leaves."""
    table = [(300, 1, 300), (301, 1, 100), (400, 50, 100), (400, 70, 50), (400, 400, 0), (999, 100, 99)]
    for count, size, kept in table:
        bench = Bench(head)
        bench.absorb(key(1, count))
        bench.claim("t", count)
        for start in range(0, count, size):
            places = span(*range(start, min(start + size, count)))
            bench.settle("t", 1, places, "retry", delay=float(count - start))
        assert head.flush_due(bench.head, Gathered(), rows=1, age=0.0) == (kept < count)
        assert bench.one(Freeze("f")) == (kept < count)
        nearest = span(*range(count - kept, count))
        assert bench.waits() == nearest, (count, size)
        if kept == count:
            continue
        left = bench.head.frozen.waiting
        assert sum(group.mask for group in left) == span(*range(count)) & ~nearest
        assert min(group.due for group in left) >= max((group.due for group in bench.head.waiting), default=T0)
        assert bench.one(Drop("f"))
        assert bench.block().gone == count - kept if kept else bench.finished == [key(1, count)]


def check_heavy_errors_leave_with_all_retries(head: ModuleType) -> None:
    for length, stays in ((32 * 1024, True), (32 * 1024 + 1, False)):
        bench = claimed(head, 3)
        bench.settle("t", 1, span(0), "retry", delay=1.0)
        bench.settle("t", 1, span(1), "retry", delay=2.0, error="e" * length)
        bench.settle("t", 1, span(2), "retry", delay=3.0, error="e" * length)
        assert head.flush_due(bench.head, Gathered(), rows=10**9, age=1e9) == (not stays)
        assert head.is_heavy(bench.head) == (not stays)
        assert bench.one(Freeze("f")) == (not stays)
        assert bench.waits() == (span(0, 1, 2) if stays else 0)
        assert head.is_heavy(bench.head) == (not stays), "until they have left"
        assert bench.one(Drop("f")) == (not stays)
        assert not head.is_heavy(bench.head)


def check_many_short_errors_are_heavy_by_what_is_remembered(head: ModuleType) -> None:
    """300 of 199 bytes are below the bound themselves; with the attempts that remember them they are above."""
    for count, heavy in ((100, False), (300, True)):
        bench = claimed(head, count)
        for place in range(count):
            bench.settle("t", 1, span(place), "retry", delay=1.0, error=f"{place}".ljust(199, "e"))
        assert sum(len(group.error) for group in bench.head.waiting) < head.HEAVY
        assert head.is_heavy(bench.head) is heavy


def check_nothing_leaves_when_all_is_near(head: ModuleType) -> None:
    """The two bounds are read apart: with room for all of them, all stay."""
    most, kept = head.NEAR_MOST, head.NEAR_KEPT
    head.NEAR_MOST, head.NEAR_KEPT = 2, 5
    try:
        bench = claimed(head, 3)
        bench.settle("t", 1, span(0, 1, 2), "retry", delay=1.0)
        assert bench.one(Freeze("f")) is False
        assert bench.waits() == span(0, 1, 2)
    finally:
        head.NEAR_MOST, head.NEAR_KEPT = most, kept


def check_retries_and_outcomes_leave_together(head: ModuleType) -> None:
    bench = claimed(head, 500)
    bench.settle("t", 1, span(*range(400)), "retry", delay=9.0)
    bench.settle("t", 1, span(400), "complete")
    assert bench.flush()
    assert bench.block().gone == 401
    assert (bench.head.waiting, bench.head.settled) == ([], [])


def check_when_a_flush_is_due(head: ModuleType) -> None:
    """Outcomes as (count, error, results) → due, for flushes of 10 rows or 5 seconds."""
    heavy = head.HEAVY
    table = [
        ([], False),
        ([(9, None, None)], False),
        ([(10, None, None)], True),
        ([(5, None, None), (5, None, None)], True),
        ([(1, "e" * (heavy - 1), None)], False),
        ([(1, "e" * heavy, None)], True),
        ([(2, "e" * (heavy - 9), [b"r" * 9, None])], True),
        ([(2, "e" * (heavy - 9), [b"r" * 8, None])], False),
    ]
    for outcomes, due in table:
        bench = Bench(head)
        bench.absorb(key(1, 100))
        bench.head.settled = [
            Settled(1, (1 << count) - 1, "completed", T0, 1, error, None, "t", results)
            for count, error, results in outcomes
        ]
        assert head.flush_due(bench.head, Gathered(), rows=10, age=5.0) is due, outcomes
        bench.head.now += 4.999
        assert head.flush_due(bench.head, Gathered(), rows=10, age=5.0) is due
        bench.head.now = T0 + 5.0
        assert head.flush_due(bench.head, Gathered(), rows=10, age=5.0) is bool(outcomes)
        bench.head.now += 99.0
        if bench.one(Freeze("f")):
            assert head.flush_due(bench.head, Gathered(), rows=0, age=0.0) is False, "one at a time"


def check_many_groups_make_a_flush_due(head: ModuleType) -> None:
    bench = Bench(head)
    bench.absorb(key(1, 300))
    for place in range(256):
        assert not head.flush_due(bench.head, Gathered(), rows=10**9, age=1e9)
        bench.claim(f"t{place}", 1)
        bench.settle(f"t{place}", 1, span(place), "complete")
    assert head.flush_due(bench.head, Gathered(), rows=10**9, age=1e9)
