"""Objects on a bucket that a crash left: parts that no bundle names, results that no head speaks of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .. import bundles, names
from ..cache import BlockCache
from ..commit import Committer
from ..lookup import Glance
from ..space import ORPHAN_SECONDS, Reading

if TYPE_CHECKING:
    from .space import CloudSpace

_PAGE = 1000


async def sweep(
    space: CloudSpace, committer: Committer, cache: BlockCache, *, older_than: float = ORPHAN_SECONDS
) -> int:
    """Remove those of a log; how many."""

    def look(view: Reading) -> list[str]:
        seen = committer.look(view)
        old = {
            key
            for folder in (bundles.FOLDER, "results/")
            for key in keys_below(seen.root + folder, view)
            if _age_of(view, key) > older_than
        }
        if not old:
            return []
        glance = Glance(view, seen, cache)
        late = [*seen.head.beyond.aside, *glance.strangers("inbox/").late]
        parts = [key for key, _ in bundles.expanded(view, seen.root, late)]
        named = [*(block.key for block in glance.blocks()), *parts]
        return sorted(old - {seen.root + key for key in (*named, *seen.head.beyond.graveyard)})

    orphans = await space.read(look)
    if orphans:
        await space.remove(orphans)
    return len(orphans)


def _age_of(view: Reading, key: str) -> float:
    """By the time in its name, if there is one, and by its date: one that was just copied may lack what names it."""
    made = view.made(key)
    return -math.inf if made is None else view.now - max(made, names.birth_of(key) or 0.0)


def keys_below(folder: str, view: Reading) -> list[str]:
    found: list[str] = []
    while page := view.list(folder, after=found[-1] if found else "", limit=_PAGE):
        found += page
    return found
