"""A mark of the last planned read of the archive: merging waits for it, so that the read finds its files."""

from __future__ import annotations

import msgspec

from . import damage
from .space import Reading, Transaction

SECONDS = 3600.0  # a read has so long
MANY = 500  # small files that are merged all the same: reads may follow each other for ever
_AGAIN = 60.0  # seconds after which the mark is written again
_NAME = "scanned"


def pin(tx: Transaction, root: str) -> None:
    """Note that a read was planned now."""
    at = _at(tx, root)
    if at is None or tx.now - at > _AGAIN:
        tx.put(root + _NAME, msgspec.msgpack.encode(tx.now))


def is_pinned(view: Reading, root: str) -> bool:
    """Whether a read that was planned not long ago may still need the files it saw."""
    at = _at(view, root)
    return at is not None and view.now - at < SECONDS + _AGAIN


def _at(view: Reading, root: str) -> float | None:
    return damage.note(view, root + _NAME, float)
