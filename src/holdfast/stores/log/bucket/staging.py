"""Staging on a bucket, where a file is an object at once: blocks lie where nobody looks, and showing absorbs them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ....errors import StoreError
from ...batches import Staged
from .. import bundles, names
from ..cache import BlockCache
from ..head.state import Absorb
from .orphans import keys_below, sweep

if TYPE_CHECKING:
    from ..commit import Committer
    from ..edit import Session
    from .space import CloudSpace

_STALE_S = 3000.0  # after which staged blocks may be about to be swept


class StagedApart:
    """See `Staging`."""

    def __init__(self, space: CloudSpace, committer: Committer, cache: BlockCache) -> None:
        self._space = space
        self._committer = committer
        self._cache = cache

    def folder(self, number: int) -> str:
        return f"{bundles.FOLDER}{number:032x}/"

    async def check(self, staged: Sequence[Staged]) -> None:
        """The head must never speak of a block that is not there."""
        folders = {each.root + each.key[: each.key.index("/", len(bundles.FOLDER)) + 1] for each in staged}
        listed = await asyncio.gather(*(self._space.read(partial(keys_below, folder)) for folder in folders))
        there = {key for keys in listed for key in keys}
        if any(each.root + each.key not in there for each in staged):
            raise StoreError("staged messages are gone: they were swept after an hour, or deleted; write them again")

    def show(self, session: Session, staged: Sequence[Staged]) -> None:
        """One replaced object has to be enough: the head takes the blocks in, and the sink's mark with them."""
        for each in staged:
            if session.tx.now - (names.birth_of(each.key) or 0.0) > _STALE_S:
                raise StoreError(f"messages for queue {each.queue!r} were staged too long ago: write them again")
        if staged:
            session.do([Absorb([each.key for each in staged], "own")])

    async def sweep(self, older_than: float) -> int:
        return await sweep(self._space, self._committer, self._cache, older_than=older_than)
