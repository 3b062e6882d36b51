"""Blocks that a pipeline stages and then shows, all in one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ... import ids
from ...ids import Ids
from ..batches import Staged
from . import append, names, rows
from .edit import Session
from .names import parse_block
from .space import Space, Transaction


class Staging(Protocol):
    """Of one partition."""

    def folder(self, number: int) -> str:
        """Where the blocks of one task lie until they are shown; empty: where they belong."""

    async def check(self, staged: Sequence[Staged]) -> None:
        """StoreError: some are gone."""

    def show(self, session: Session, staged: Sequence[Staged]) -> None:
        """Make them messages."""

    async def sweep(self, older_than: float) -> int:
        """Remove those that were never shown, older than so many seconds; how many blocks."""


class StagedInPlace:
    """Where a file is no object until a transaction adopts it. What is remembered by its dedup key is left out."""

    def __init__(self, space: Space, maker: Ids) -> None:
        self.sweep = space.sweep
        self._ids = maker

    def folder(self, number: int) -> str:
        return ""

    async def check(self, staged: Sequence[Staged]) -> None:
        return None

    def show(self, session: Session, staged: Sequence[Staged]) -> None:
        for each in staged:
            session.tx.adopt(session.seen.root + each.key)
            if each.keys is not None:
                _deduplicated(session, each, each.keys, self._ids)


def _deduplicated(session: Session, each: Staged, keys: Sequence[str | None], maker: Ids) -> None:
    """Leave out what is remembered, and remember the rest."""
    tx, root, name = session.tx, session.seen.root, parse_block(each.key)
    window = session.seen.config.options.dedup_window
    new, seen = [], set()
    for place, key in enumerate(keys):
        if key is None or not (key in seen or _is_remembered(tx, root, key, window)):
            new.append(place)
            seen.add(key)
    if len(new) < each.rows:
        found = tx.get(root + each.key)
        assert found is not None  # it was adopted above
        tx.delete(root + each.key)
        block = maker.block(tx.now, name.priority, carried=ids.is_carried(int(name.block, 16)))
        kept = msgspec.structs.replace(name, count=len(new), block=f"{block:032x}")
        if new:
            tx.create(root + each.key.replace(name.text(), kept.text()), rows.some(found.data, new))
        name = kept
    for place, id in zip(new, ids.texts(int(name.block, 16), len(new)), strict=True):
        if (key := keys[place]) is not None:
            tx.put(names.dedup_key(root, key), msgspec.msgpack.encode((tx.now, id)))


def _is_remembered(tx: Transaction, root: str, key: str, window: float) -> bool:
    return append.remembered(tx, root, key, window) is not None
