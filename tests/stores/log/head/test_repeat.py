"""The rules of a repeat window in the head, one by one; without a window nothing of them shows."""

from __future__ import annotations

import msgspec

from holdfast import ids
from holdfast.stores.log import names
from holdfast.stores.log.bucket.listing import Late
from holdfast.stores.log.head import codec, machine, repeat
from holdfast.stores.log.head.state import (
    Absorb,
    Beyond,
    Bury,
    Claim,
    Forget,
    Freeze,
    Head,
    Lease,
    Purge,
    Refreeze,
    Rules,
    SetAside,
    Settle,
)
from holdfast.stores.log.names import BlockName
from tests.stores.log.head.head_bench import T0, Bench, key

R = 15.0


def born(at: float, count: int = 1) -> str:
    """The key of a block that was born at an instant."""
    return BlockName(f"{ids.Ids().block(at):032x}", count, 0, 0, 0).inbox_key()


def finished(bench: Bench, *keys: str) -> None:
    bench.absorb(*keys)
    bench.claim("t", 100)
    for no in list(bench.head.blocks):
        bench.one(Settle("t", no, (1 << 100) - 1, "complete", keep=False))


def test_a_finished_block_is_buried_and_not_absorbed_again():
    bench = Bench(machine, window=R)
    finished(bench, key(1, 2))
    assert bench.finished == [], "it is deleted only when nobody can create it any more"
    assert bench.head.beyond.graveyard == (key(1, 2),)
    assert bench.one(Absorb([key(1, 2)], bench.head.ticket())) == 0
    assert machine.wanted(bench.head, [key(1, 2)], 5)[0] == []


def test_without_a_window_it_is_deleted_at_once():
    bench = Bench(machine)
    finished(bench, key(1, 2))
    assert bench.finished == [key(1, 2)]
    assert bench.head.beyond.graveyard == ()


def test_forgetting_is_counted_and_refuses_older_lists():
    bench = Bench(machine, window=R)
    finished(bench, key(1, 2), key(2, 1))
    forgets, before = bench.head.beyond.forgets, bench.head.ticket()
    assert bench.one(Forget([key(1, 2)])) == 1
    assert bench.one(Forget([key(1, 2)])) == 0
    assert bench.head.beyond.graveyard == (key(2, 1),)
    assert bench.head.beyond.forgets == forgets + 1
    assert bench.one(Absorb([key(1, 2), key(3, 1)], before)) == 0, "the list is older than the forgetting"
    assert bench.one(Absorb([key(3, 1)], bench.head.ticket())) == 1


def test_a_deletion_is_final_after_birth_and_window():
    old, young = born(T0 - R - repeat.MARGIN - 0.1), born(T0 - R)
    bench = Bench(machine, window=R)
    finished(bench, old, young)
    assert repeat.deletable(bench.head, T0, R) == [old]


def test_late_and_purged_blocks_are_never_absorbed():
    timely, late = born(T0), born(T0 - 1)
    made = {timely: T0 + R, late: T0 + R}
    rules = Rules(window=R)
    assert repeat.sort_out(Head(), made, rules) == repeat.Sorted([timely], [], {late: T0 + R})
    bench = Bench(machine, window=R)
    bench.one(Purge(T0 + R + 1))
    assert repeat.sort_out(bench.head, made, rules) == repeat.Sorted([], [timely, late], {})
    undated = repeat.sort_out(bench.head, {timely: None}, rules)
    assert undated == repeat.Sorted([timely], [], {}), "no date, no judgement"


def test_a_date_says_late_unless_the_bucket_was_copied_since():
    """Born and written before the epoch: the date is that of the copy. Written after it: a sleeper, as ever."""
    old, epoch = born(T0), T0 + 1000.0
    rules = Rules(window=R, margin=2.0, epoch=epoch)

    def fate(made: float, purged_at: float = 0.0, key: str = old) -> str:
        return repeat.fate(key, made, Head(beyond=Beyond(purged_at=purged_at)), rules)

    assert (fate(T0 + R), fate(epoch - 1), fate(epoch + 2)) == ("admit", "admit", "admit")
    assert fate(epoch + 2.1) == "late", "written after the copy was opened"
    assert repeat.fate(old, epoch - 1, Head(), Rules(window=R)) == "late", "never copied"
    assert fate(epoch + 100, key=born(epoch + 1)) == "late", "born in the copy"
    assert fate(epoch - 1, purged_at=epoch) == "purged"
    assert fate(epoch + 50, purged_at=epoch + 10) == "late", "written after the purge: no date deletes it"
    assert fate(T0 - 1, purged_at=T0) == "admit", "born after the purge, whatever its date"


def test_what_is_set_aside_is_not_absorbed_and_then_buried():
    late, other = born(T0 - 100), born(T0 - 90)
    bench = Bench(machine, window=R)
    bench.absorb(other)
    assert bench.one(SetAside({late: T0, other: T0})) == 1, "what the head holds stays"
    assert bench.head.beyond.aside == {late: T0}
    assert bench.one(Absorb([late], bench.head.ticket())) == 0
    assert machine.wanted(bench.head, [late], 5)[0] == []
    assert bench.head.held == 2
    assert codec.decode(codec.HeadWriter().encode(bench.head)) == bench.head
    assert bench.one(Bury([late, "inbox/255/unknown"], ["parts/1", other])) == 1
    assert bench.head.beyond.graveyard == (late, "parts/1"), "a part that is alive is not buried"
    assert bench.head.beyond.aside == {}
    assert bench.one(SetAside({late: T0})) == 0


def test_a_head_with_nothing_set_aside_is_written_as_before():
    signed, _ = Late(R).sign(Head(now=T0))
    assert msgspec.msgpack.decode(codec.HeadWriter().encode(signed))[0] == codec.LATE
    assert len(msgspec.msgpack.decode(codec.HeadWriter().encode(signed))[11]) == 4
    bench = Bench(machine, window=R)
    bench.one(SetAside({born(T0): T0}))
    wire = codec.HeadWriter().encode(bench.head)
    assert msgspec.msgpack.decode(wire)[0] == codec.ASIDE, "an older version refuses it, with a sentence"


def test_an_owner_that_an_older_version_has_named_is_read_over():
    """It stood before what is set aside."""
    for aside in ({}, {born(T0): T0}):
        head = Head(now=T0, beyond=Beyond(sessions={"one": (3, T0)}, aside=aside))
        wire = msgspec.msgpack.decode(codec.HeadWriter().encode(head))
        wire[11][4:] = ["one 420", *([aside] if aside else [])]
        assert codec.decode(msgspec.msgpack.encode(wire)) == head
        assert codec.decode(codec.HeadWriter().encode(head)) == head


def test_a_bundle_is_spent_with_its_parts():
    bench = Bench(machine, window=R)
    assert bench.one(Absorb([key(1, 2), key(2, 2)], Head().ticket(), ["inbox/255/b.bundle"])) == 2
    assert bench.head.beyond.graveyard == ("inbox/255/b.bundle",)
    bench.one(Absorb([], Head().ticket(), ["inbox/255/b.bundle"]))
    assert bench.head.beyond.graveyard == ("inbox/255/b.bundle",)


def test_somebody_elses_lease_has_a_margin():
    lease = Lease("aaaa1", 1, 1, T0, 1, False)
    assert lease.is_over(T0, Rules())
    mine, theirs = Rules(margin=2.0, own="aaaa"), Rules(margin=2.0, own="bbbb")
    assert lease.is_over(T0, mine)
    assert not lease.is_over(T0 + 1.9, theirs)
    assert lease.is_over(T0 + 2.0, theirs)
    assert lease.over_at(theirs) == T0 + 2.0


def test_a_signature_tells_whether_an_attempt_was_applied():
    me, other = Late(R), Late(R)
    first, attempt = me.sign(Head(now=T0))
    data = codec.HeadWriter().encode(first)
    assert me.is_signed(data, attempt)
    on_top, _ = other.sign(first)
    assert me.is_signed(codec.HeadWriter().encode(on_top), attempt), "somebody has written on top of it"
    again, second = me.sign(on_top)
    data = codec.HeadWriter().encode(again)
    assert (me.is_signed(data, attempt), me.is_signed(data, second)) == (False, True)
    assert not me.is_signed(None, attempt)
    assert not other.is_signed(codec.HeadWriter().encode(first), 1)


def test_old_sessions_are_dropped():
    me, other = Late(R), Late(R)
    signed, _ = me.sign(Head(now=T0))
    later, _ = other.sign(Head(now=T0 + 3600, beyond=signed.beyond))
    assert set(later.beyond.sessions) == {other.session}


def test_a_set_that_was_left_frozen_gets_another_name():
    bench = Bench(machine, window=R)
    bench.absorb(key(1, 1))
    bench.claim("t", 1)
    bench.settle("t", 1, 1, "dead", error="why")
    assert bench.one(Freeze("a"))
    bench.now += 100
    assert bench.one(Refreeze("x", "b", [])) is False
    assert bench.one(Refreeze("a", "b", [1])) is True
    frozen = bench.head.frozen
    assert frozen is not None
    assert (frozen.flush, frozen.since, frozen.earlier, frozen.origin) == ("b", bench.now, [("a", [1])], "a")
    assert codec.decode(codec.HeadWriter().encode(bench.head)) == bench.head


def test_a_head_with_a_window_is_read_back():
    bench = Bench(machine, window=R)
    finished(bench, key(1, 2))
    bench.do(Claim("t", 1, 10.0), Purge(T0))
    signed, _ = Late(R).sign(bench.head)
    assert codec.decode(codec.HeadWriter().encode(signed)) == signed


def test_births_are_in_the_names_of_blocks_alone():
    assert names.birth_of("q@1/" + born(T0)) == T0
    assert names.birth_of(f"q@1/parts/{1:032x}/" + born(T0)) == T0
    assert names.birth_of("q@1/archive/date=2026-01-01/a-b-1-c.parquet") is None
    assert names.birth_of("q@1/head") is None
