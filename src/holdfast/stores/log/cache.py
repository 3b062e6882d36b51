"""Decoded blocks at hand. Blocks never change and keys are never reused, so nothing here can be stale."""

from __future__ import annotations

import threading
from collections import OrderedDict

from ...errors import Damaged
from . import damage, rows
from .rows import Rows
from .space import Buffer, Reading

_SMALL = 64 * 1024


class BlockCache:
    """The most recently used blocks, up to a number of bytes; shared by the threads of a store."""

    def __init__(self, budget: int = 64 << 20) -> None:
        self._budget = budget
        self._used = 0
        self._blocks: OrderedDict[str, tuple[Rows, int]] = OrderedDict()
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def get(self, key: str) -> Rows | None:
        with self._lock:
            entry = self._blocks.get(key)
            if entry is None:
                return None
            self._blocks.move_to_end(key)
            return entry[0]

    def load(self, view: Reading, key: str) -> Rows | None:
        """From here or from the space; None: the object is gone, so the caller's view is old. Raises Damaged."""
        found = self.get(key)
        if found is None:
            stored = view.get(key)
            if stored is None:
                return None
            found = damage.read_block(key, rows.decode, stored.data)
            self._add(key, found, len(stored.data))
        return found

    def offer(self, key: str, data: Buffer) -> None:
        """A small block that was just written: most likely it is wanted soon."""
        if len(data) <= _SMALL:
            self._add(key, rows.decode(bytes(data)), len(data))

    def substitute(self, error: Damaged, *, twice: bool = False) -> Rows:
        """What stands for a block that cannot be read, which is told once; `twice`: a second look decides.

        Then the first raises.
        """
        with self._lock:
            known = error.key in self._told
            self._told.add(error.key)
        if not known and twice:
            raise error
        if not known or twice:
            damage.tell(error)
        return damage.substitute(error.key, error)

    def forget(self, key: str) -> None:
        with self._lock:
            entry = self._blocks.pop(key, None)
            self._used -= entry[1] if entry else 0

    def _add(self, key: str, block: Rows, size: int) -> None:
        size += 100 * len(block)
        with self._lock:
            if key not in self._blocks:
                self._blocks[key] = (block, size)
                self._used += size
            while self._used > self._budget and len(self._blocks) > 1:
                self._used -= self._blocks.popitem(last=False)[1][1]
