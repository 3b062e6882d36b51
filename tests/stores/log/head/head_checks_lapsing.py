"""The rules of `head.py` about messages that expire; see `head_checks`."""

from __future__ import annotations

from types import ModuleType

from holdfast.stores.log import names
from holdfast.stores.log.head.pipelines import FOREVER
from holdfast.stores.log.head.state import NEVER, Absorb, Claim, Exhausted, Expire, Remove
from tests.stores.log.head.head_bench import T0, Bench, key, span

END = T0 + 5.0


def lapsing(number: int, count: int, *, end: float = END, **said: object) -> str:
    return key(number, count, expires=names.number_of(end), **said)


def check_fresh_messages_expire(head: ModuleType) -> None:
    """At their instant and not before; what was cancelled, and other blocks, are left alone."""
    bench = Bench(head)
    bench.absorb(lapsing(1, 4, attempts=1), key(2, 1), lapsing(3, 1, end=END + 1.0))
    assert bench.one(Remove(1, span(2), "cancelled")) == span(2)
    assert bench.head.first_end() == END
    bench.now = END - 0.001
    assert bench.one(Expire()) == []
    assert bench.claim("t", 1) == [(1, 0, 2)]
    bench.now = END
    block = bench.block()
    assert bench.one(Expire()) == [Exhausted(1, span(1, 3), 1, block)]
    group = bench.head.settled[-1]
    assert (group.block, group.mask, group.status, group.error) == (1, span(1, 3), "failed", "expired")
    assert (group.at, group.attempts, group.worker, group.token) == (END, 1, None, "")
    assert (group.results, group.claimed) == (None, 0.0)
    assert bench.head.failed == 3
    assert bench.block().fresh() == 0
    assert bench.one(Expire()) == []
    assert bench.claim("u", 9) == [(2, 0, 1), (3, 0, 1)]
    assert bench.leased("t") == span(0), "what is in hand is not taken away"


def check_messages_expire_once_nobody_holds_them(head: ModuleType) -> None:
    bench = Bench(head, max_attempts=9)
    bench.absorb(lapsing(1, 5), key(2, 1))
    bench.do(Claim("t", 3, 7.0, "me"))
    bench.do(Claim("u", 2, 60.0))
    bench.do(Claim("v", 1, 1.0))
    bench.settle("t", 1, span(0), "retry", delay=50.0, error="no", worker="other")
    bench.settle("t", 1, span(1), "release")
    bench.now = END
    mine = bench.block()
    assert bench.one(Expire()) == [Exhausted(1, span(1), 0, mine), Exhausted(1, span(0), 1, mine)]
    assert [group.worker for group in bench.head.settled] == ["me", "other"]
    assert {group.error for group in bench.head.settled} == {"expired"}
    assert bench.waits() == 0
    bench.now = T0 + 7.0
    assert bench.one(Expire()) == [Exhausted(1, span(2), 1, mine)], "its lease is over"
    assert (bench.head.settled[-1].worker, bench.head.settled[-1].claimed) == ("me", 0.0)
    assert bench.leased("u") == span(3, 4)
    assert bench.leased("v", 2) == span(0), "of a block that does not expire"
    assert bench.settle("u", 1, span(3), "complete") == span(3)
    bench.settle("u", 1, span(4), "retry", error="late")
    assert bench.one(Expire()) == [Exhausted(1, span(4), 1, mine)]
    assert (bench.head.completed, bench.head.failed) == (1, 4)


def check_last_lease_comes_before_expiry(head: ModuleType) -> None:
    """With no attempt left it is dead, as ever."""
    bench = Bench(head, max_attempts=1)
    bench.absorb(lapsing(1, 2))
    bench.do(Claim("t", 1, 1.0))
    bench.now = END
    block = bench.block()
    assert bench.one(Expire()) == [Exhausted(1, span(0), 1), Exhausted(1, span(1), 0, block)]
    assert [(group.status, group.error) for group in bench.head.settled] == [
        ("dead", "lease expired"),
        ("failed", "expired"),
    ]


def check_pipelines_keep_what_has_expired(head: ModuleType) -> None:
    bench = Bench(head)
    bench.absorb(lapsing(1, 1))
    bench.do(Claim("t", 1, FOREVER))
    bench.now = END
    assert bench.one(Expire()) == []
    assert not head.has_lapsing(bench.head, bench.rules)


def check_what_is_not_kept_comes_and_goes_in_one_step(head: ModuleType) -> None:
    bench = Bench(head, archive=False)
    bench.now = END
    name = lapsing(1, 2)
    _, (ended,) = bench.do(Absorb([name], "own"), Expire())
    assert (ended.block, ended.mask, ended.attempts, ended.lapsed.key) == (1, span(0, 1), 0, name)
    assert (bench.finished, bench.head.blocks, bench.head.settled) == ([name], {}, [])
    assert bench.head.failed == 2


def check_whether_something_has_expired(head: ModuleType) -> None:
    bench = Bench(head)
    assert bench.head.first_end() == NEVER
    assert not head.has_lapsing(bench.head, bench.rules)
    bench.absorb(lapsing(1, 2), lapsing(2, 1, end=END + 1.0))
    bench.do(Claim("t", 1, 60.0))
    assert not head.has_lapsing(bench.head, bench.rules)
    bench.now = END
    bench.do(Claim("none", 0, 1.0))  # moves the clock of the head
    assert [block.no for block in head.lapsed(bench.head)] == [1]
    assert head.has_lapsing(bench.head, bench.rules)
    bench.one(Expire())
    assert not head.has_lapsing(bench.head, bench.rules), "the other one is held"
    bench.settle("t", 1, span(0), "retry", delay=50.0)
    assert head.has_lapsing(bench.head, bench.rules)


def check_expired_blocks_are_absorbed_and_count_for_nothing(head: ModuleType) -> None:
    bench = Bench(head)
    bench.do(Expire())
    keys = [lapsing(1, 9, end=T0), lapsing(2, 9, end=T0 + 0.001), key(3, 9)]
    assert head.wanted(bench.head, keys, 1) == (keys[:2], True)
    assert head.wanted(bench.head, keys[:1], 1) == (keys[:1], False)
    bench.absorb(*keys[:2])
    bench.now = T0 + 0.001
    bench.do(Claim("none", 0, 1.0))
    assert head.wanted(bench.head, keys, 1) == (keys[2:], True), "what the head holds counts for nothing either"
