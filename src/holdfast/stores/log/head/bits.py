"""Sets of places in a block, as whole numbers: one bit a place."""

from __future__ import annotations

from collections.abc import Sequence


def span(start: int, stop: int) -> int:
    """The places from `start` up to, not including, `stop`."""
    return (1 << stop) - (1 << start) if stop > start else 0


def places(mask: int) -> Sequence[int]:
    """The places in a set, in order."""
    low = (mask & -mask).bit_length() - 1
    run = mask >> low if mask else 0
    if run & (run + 1) == 0:  # one run of neighbours, by far the most common
        return range(low, low + run.bit_length()) if mask else ()
    return [place for place, digit in enumerate(bin(mask)[:1:-1]) if digit == "1"]


def lowest(mask: int, count: int) -> int:
    """The first `count` places of a set."""
    if count <= 0:
        return 0
    if mask.bit_count() <= count:
        return mask
    chosen = places(mask)[:count]
    return mask & span(0, chosen[-1] + 1)
