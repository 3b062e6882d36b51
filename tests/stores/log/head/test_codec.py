"""The head as bytes. That every head comes out as it went in is in `test_machine_properties`."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import StoreError
from holdfast.schedules import Mark
from holdfast.stores.log.head import codec, machine
from holdfast.stores.log.head.codec import HeadWriter, decode
from holdfast.stores.log.head.state import Freeze, Frozen, Head, Lease, Waiting
from tests.stores.log.head.head_bench import T0, Bench, claimed, key, span


def full() -> Bench:
    """A head with something of everything."""
    bench = claimed(machine, 900, attempts=2, crash=True)
    bench.settle("t", 1, span(0), "complete", results={0: b"=r"}, worker="w")
    bench.settle("t", 1, span(1), "complete", keep=False)
    bench.settle("t", 1, span(*range(10, 400)), "retry", delay=9.0, error="größer als ’üblich’")
    assert bench.one(Freeze("f" * 32))
    bench.settle("t", 1, span(2, 899), "dead", error="why")
    bench.settle("t", 1, span(3), "release", delay=2.5)
    bench.absorb(key(2, 7, priority=255, due=T0 + 0.001), key(3, 2, max_attempts=9, attempts=3, crashed=True))
    bench.claim("u", 1)
    return bench


def test_everything_comes_out_as_it_went_in():
    bench = full()
    parts = (bench.head.blocks, bench.head.leases, bench.head.waiting, bench.head.settled, bench.head.recent)
    assert all(parts)
    assert bench.head.frozen is not None
    assert bench.head.frozen.waiting
    found = decode(HeadWriter().encode(bench.head))
    assert found == bench.head
    assert found.blocks[2].due == T0 + 0.001
    assert found.blocks[3].name.crashed
    assert decode(HeadWriter().encode(Head())) == Head()


def test_a_head_that_was_read_goes_on_as_the_one_that_was_written():
    one, other = full(), full()
    other.head = decode(HeadWriter().encode(other.head))
    for bench in (one, other):
        bench.now += 20.0
        bench.claim("v", 500)
        bench.settle("v", 1, span(*range(900)), "complete")
    assert one.head == other.head
    assert one.finished == other.finished


def test_one_writer_for_many_heads():
    """Parts that come, change and go, also in the middle: the bytes are those of a new writer."""
    leases = [Lease(f"t{number}", 1, 1 << number, T0, 1, False) for number in range(6)]
    changed = msgspec.structs.replace(leases[2], expires=T0 + 1)
    writer = HeadWriter()
    for these in (
        [],
        leases[:3],
        leases[:3],
        leases,
        leases[:5],
        [*leases[:2], changed, *leases[3:]],
        leases[1:],
        leases[::-1],
        [],
        leases,
    ):
        written = Head(now=T0, leases=list(these))
        data = writer.encode(written)
        assert data == HeadWriter().encode(written)
        assert decode(data) == written


@pytest.mark.parametrize("count", [0, 1, 15, 16, 300, 70_000])
def test_lists_of_any_length(count: int):
    written = Head(leases=[Lease("t", 1, 1, T0, 1, False)] * count)
    assert decode(HeadWriter().encode(written)) == written


def test_masks_are_as_long_as_their_highest_place():
    wire = msgspec.msgpack.decode(HeadWriter().encode(Head(leases=[Lease("t", 1, span(0, 8), T0, 1, True, T0)])))
    assert wire[6] == [["t", 1, b"\x01\x01", T0, 1, True, T0]]


def test_only_a_retry_that_names_its_worker_needs_its_format():
    plain = Waiting(1, span(0, 8), T0, 1, False, "why", "t", "retry")
    named = msgspec.structs.replace(plain, worker="w")
    for waiting, frozen in ([named], None), ([plain], Frozen("f", T0, [], [named])):
        wrote = Head(waiting=waiting, frozen=frozen)
        data = HeadWriter().encode(wrote)
        assert (msgspec.msgpack.decode(data)[0], decode(data)) == (codec.WORKERS, wrote)
    wire = msgspec.msgpack.decode(HeadWriter().encode(Head(waiting=[plain])))
    assert (wire[0], len(wire[7][0])) == (codec.PLAIN, 8), "as the version before reads it"


def test_a_newer_format_is_refused():
    with pytest.raises(StoreError, match=rf"format {codec.FORMAT + 1}.*upgrade holdfast"):
        decode(msgspec.msgpack.encode((codec.FORMAT + 1, "and nothing as before")))


def test_only_marks_of_schedules_need_their_format() -> None:
    marks = {"daily": Mark(1_790_000_000.0, "id", 3, 1, ((1.0, 2.0),)), "new": Mark()}
    head = Head(now=5.0, schedules=marks)
    data = codec.HeadWriter().encode(head)
    assert (msgspec.msgpack.decode(data)[0], codec.decode(data)) == (codec.SCHEDULES, head)
    assert msgspec.msgpack.decode(codec.HeadWriter().encode(Head(now=5.0)))[0] == codec.PLAIN


def test_only_leases_that_name_their_holder_need_the_newest_format() -> None:
    for worker, number in ((None, codec.PLAIN), ("w", codec.FORMAT)):
        head = Head(leases=[Lease("t", 1, 0b11, 30.0, 1, False, 1.0, worker)])
        data = codec.HeadWriter().encode(head)
        assert (msgspec.msgpack.decode(data)[0], codec.decode(data)) == (number, head)
