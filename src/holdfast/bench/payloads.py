"""What the messages carry: bytes that do not compress, the same for everybody who is measured."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ..stores.base import PAGE_ROWS


def bodies(size: int, distinct: int = PAGE_ROWS) -> list[bytes]:
    """Random bytes, the same in every run."""
    maker = random.Random(size)
    return [maker.randbytes(size) for _ in range(max(1, min(distinct, (64 << 20) // max(size, 1))))]


def texts(size: int, distinct: int = PAGE_ROWS) -> list[str]:
    """Random text of the same length, for peers that take no bytes."""
    return [body.hex()[:size] for body in bodies(size, distinct)]


def batches(count: int, batch: int, size: int) -> Iterator[list[bytes]]:
    """`count` messages in lists of `batch`."""
    pool = bodies(size)
    pool = (pool * (batch // len(pool) + 1))[: max(batch, 1)]
    for start in range(0, count, batch):
        yield pool[: min(batch, count - start)]
