"""The ways in which bytes go bad."""

from __future__ import annotations

from random import Random

WAYS = ("flip", "cut", "zero", "swap", "delete")
_SECTOR = 512  # bytes: what a disk loses at once


def spoiled(data: bytes, way: str, chance: Random, other: bytes) -> bytes | None:
    """None: nothing is left. `other` are the bytes of another object of its kind."""
    if way == "delete":
        return None
    if way == "swap":
        return other
    if way == "cut":
        return data[: chance.randrange(len(data))] if data else data
    changed = bytearray(data)
    if way == "flip" and data:
        bit = chance.randrange(8 * len(data))
        changed[bit // 8] ^= 1 << bit % 8
    if way == "zero":
        start = chance.randrange(max(1, len(data)))
        start -= start % _SECTOR
        changed[start : start + _SECTOR] = bytes(len(changed[start : start + _SECTOR]))
    return bytes(changed)
