"""Which appends were made before: a named call is kept among the dedup keys, in the step that writes its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from ..base import CALL_S, CallName, other_messages
from . import damage, names
from .space import Transaction

_PLACE_DIGITS = 5  # of an id: the rest is its block's

Runs: TypeAlias = list[tuple[str, int, int]]  # block, first place, how many


class Known(Exception):
    """A call among these was made before."""


class _Made(msgspec.Struct, frozen=True, array_like=True):
    at: float  # as if it were a dedup key, which is forgotten a window after it
    until: float
    digest: str
    runs: Runs


_read_made = msgspec.msgpack.Decoder(_Made).decode


def find(tx: Transaction, root: str, call: CallName) -> list[str] | None:
    """The ids that the call was answered with; None: it is new. ConfigError when it brought other messages."""
    found = tx.get(key := _key(root, call))
    made = None if found is None else damage.read(key, _read_made, found.data)
    if made is None or made.until <= tx.now:
        return None
    if made.digest != call.digest:
        raise other_messages(call)
    return unpacked(made.runs)


def note(tx: Transaction, root: str, call: CallName, ids: Sequence[str], *, window: float) -> None:
    """It is made now; `window` is that of the queue's dedup keys."""
    until = tx.now + CALL_S
    tx.put(_key(root, call), msgspec.msgpack.encode(_Made(until - window, until, call.digest, packed(ids))))


def _key(root: str, call: CallName) -> str:
    return names.dedup_key(root, f"\0call {call.name}")  # no dedup key has a NUL


def packed(ids: Sequence[str]) -> Runs:
    """Ids in a row of one block become one entry."""
    runs: Runs = []
    for id in ids:
        block, place = id[:-_PLACE_DIGITS], int(id[-_PLACE_DIGITS:], 16)
        if runs and runs[-1][0] == block and runs[-1][1] + runs[-1][2] == place:
            runs[-1] = (block, runs[-1][1], runs[-1][2] + 1)
        else:
            runs.append((block, place, 1))
    return runs


def unpacked(runs: Runs) -> list[str]:
    return [f"{block}{place:05x}" for block, first, count in runs for place in range(first, first + count)]
