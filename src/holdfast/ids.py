"""Message ids: UUIDv7 text whose low bits say where a message lies.

48 bits milliseconds · 4 version · 12 sequence · 2 variant · 8 priority · 1 carried · 33 random · 20 place.

The *block* of an id is the id with place 0. `carried` marks messages that may lie anywhere but in the inbox of
their priority: delayed ones, and those whose block stores ids as a column (spilled retries, dead letters, replays).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import threading
from collections.abc import Collection

PLACES = 1 << 20  # in a block: the low bits of an id
_CARRIED_BIT = 1 << 53  # see above
_RANDOM_MASK = _CARRIED_BIT - PLACES  # the bits between the two
_PRIORITY_SHIFT = 54  # bits
_UUID7 = 0x7 << 76 | 0b10 << 62  # version and variant
_READY_SUFFIXES = 1000  # made once: as many as a block has messages
_SHAPE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Ids:
    """Makes block ids that only go up, whatever the clock does. One per process and store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def block(self, now: float, priority: int = 0, *, carried: bool = False) -> int:
        """A fresh block id: time-ordered, above every earlier one of this maker."""
        with self._lock:
            self._last = tick = max(self._last + 1, int(now * 1000) << 12)
        random = int.from_bytes(os.urandom(5)) << 20 & _RANDOM_MASK
        number = (tick >> 12) << 80 | _UUID7 | (tick & 0xFFF) << 64
        return number | priority << _PRIORITY_SHIFT | (_CARRIED_BIT if carried else 0) | random


def text(number: int) -> str:
    """The id as users see it."""
    h = f"{number:032x}"
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def texts(block: int, count: int) -> list[str]:
    """The ids of a whole block, in order of place."""
    prefix = text(block)[:-5]
    ends = suffixes() if count <= _READY_SUFFIXES else [f"{place:05x}" for place in range(count)]
    return [prefix + end for end in ends[:count]]


@functools.cache
def suffixes() -> list[str]:
    """The last digits of the first places, made once: every message needs them, in and out."""
    return [f"{place:05x}" for place in range(_READY_SUFFIXES)]


def is_id(text: str) -> bool:
    """Whether it could be an id: anything else, however long or strange, is nobody's and no store is asked for it."""
    return _SHAPE.fullmatch(text) is not None


def number(id: str) -> int | None:
    """The number behind an id, or None when the text is no id of ours."""
    return int(id.replace("-", ""), 16) if _SHAPE.fullmatch(id) else None


def block_of(number: int) -> int:
    return number & -PLACES


def place_of(number: int) -> int:
    return number & (PLACES - 1)


def priority_of(number: int) -> int:
    return number >> _PRIORITY_SHIFT & 0xFF


def shared_priority(ids: Collection[str]) -> int | None:
    """The priority of them all; None when they differ, or when a text is no id of ours."""
    if not all(map(_SHAPE.fullmatch, ids)):
        return None
    found = {int(digits, 16) >> 2 & 0xFF for digits in {id[19:22] for id in ids}}  # below: carried, one random bit
    return found.pop() if len(found) == 1 else None


def is_carried(number: int) -> bool:
    return bool(number & _CARRIED_BIT)


def born_at(number: int) -> float:
    """The store time in the id, in seconds."""
    return (number >> 80) / 1000


def derived(number: int, purpose: str) -> int:
    """The id of a copy: the same for the same original and purpose, with the same time, priority and place."""
    block = block_of(number)
    digest = hashlib.blake2b(block.to_bytes(16) + purpose.encode(), digest_size=8).digest()
    return (number & ~_RANDOM_MASK) | (int.from_bytes(digest) << 20 & _RANDOM_MASK) | _CARRIED_BIT


def named(instant: float, priority: int, digest: int) -> int:
    """The id of what has a name of its own: an instant, and 128 bits that stand for it."""
    number = int(instant * 1000) << 80 | _UUID7 | (digest >> 64 & 0xFFF) << 64
    return number | priority << _PRIORITY_SHIFT | _CARRIED_BIT | digest & _RANDOM_MASK
