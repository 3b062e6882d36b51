"""What has gathered in a head is counted as it grows, and anew when it is another list."""

from __future__ import annotations

from holdfast.stores.log.head.state import Gathered, Settled
from tests.stores.log.head.head_bench import T0


def group(mask: int, *, error: str | None = None, results: list[bytes | None] | None = None) -> Settled:
    return Settled(1, mask, "completed", T0, 1, error, None, "t", results)


def counted(gathered: Gathered, settled: list[Settled]) -> tuple[int, int]:
    gathered.count(settled)
    return gathered.rows, gathered.bytes


def test_what_is_added_is_added():
    first, second = group(0b111, error="abc"), group(0b1000, results=[b"=12345", None])
    gathered = Gathered()
    assert counted(gathered, []) == (0, 0)
    assert counted(gathered, [first]) == (3, 3)
    assert counted(gathered, [first, second]) == (4, 9)
    assert counted(gathered, [first, second]) == (4, 9)


def test_another_list_is_counted_anew():
    groups = [group(1 << place) for place in range(5)]
    gathered = Gathered()
    for settled in (groups, groups[:2], groups[2:], [], [group(0b11)], groups):
        assert counted(gathered, settled)[0] == sum(each.mask.bit_count() for each in settled)
