"""Late blocks on a bucket are kept, not delivered: named in the head, copied under `late/`, then buried.

Written after its window, a block may be one that was finished and forgotten long ago. Or its object was copied,
restored or rewritten since, and it is waiting to be delivered. No date tells, so nothing is deleted on the word of one.
Naming it in the head comes first, in one swap: processes may know different epochs, and none may absorb what another
moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from ....errors import HoldfastError, StoreError
from ....escaping import logger_named
from .. import bundles, lapsing, names, queues
from ..cache import BlockCache
from ..commit import Committer
from ..head import repeat
from ..head.state import NEVER, Bury, Expire, Head, SetAside
from ..lookup import Glance
from ..space import Reading
from ..unfinished import unfinished_of
from .listing import Late

if TYPE_CHECKING:
    from .space import CloudSpace

_NAMED_MOST = 200  # blocks in the head at a time: it is rewritten with every commit
_AT_ONCE = 16  # blocks that are copied together
logger = logger_named("holdfast.stores.log")


class Quarantine:
    """One per log and process."""

    def __init__(self, space: CloudSpace, committer: Committer, cache: BlockCache, late: Late) -> None:
        self._space = space
        self._committer = committer
        self._late = late
        self._cache = cache
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self.has_copies = False  # under `late/`, at the last look
        self.lapses_at = NEVER  # when the next message of the log expires, at the last look

    def look(self) -> None:
        """After every claim: has its list shown late blocks? Nobody waits for what is done with them."""
        if self._late.suspects and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self.tend()
        except HoldfastError as error:
            logger.warning("late blocks of %s are not set aside yet: %s", self._committer.address.text, error)
        finally:
            self._task = None

    async def tend(self) -> int:
        """Set aside what is late, as listed now, and finish what others have begun; how many blocks were set aside."""
        async with self._turn:
            suspects, is_begun = await self._space.read(self._look)
            if not suspects and not is_begun:
                self._forget_suspects()
                return 0
            await self._space.identify()  # by a later epoch they may be none
            count = 0
            while suspects := (await self._space.read(self._look))[0]:
                count += cast(int, (await self._committer.ask(SetAside(suspects))).results[0])
                if not await self._keep():
                    break
            await self._keep()
            self._forget_suspects()
        if count:
            text = self._committer.address.text
            logger.warning("%d blocks of %s were written late and are set aside: see `holdfast recover`", count, text)
        return count

    def _look(self, view: Reading) -> tuple[dict[str, float], bool]:
        """Late blocks by the epoch as it is known, some when there are many; and whether the head has named others."""
        glance = Glance(view, self._committer.look(view), self._cache)
        self.has_copies = next(iter(glance.keys(names.LATE)), None) is not None
        seen, late = glance.seen, glance.late()
        self.lapses_at = lapsing.soonest(glance)  # from the same lists
        if late:  # what a flush left behind is for whoever finishes it: its rows are in a head
            unfinished = unfinished_of(view, seen.root, seen.head, queues.beside(seen.root, seen.config), late)
            late = {key: made for key, made in late.items() if key not in unfinished}
        return dict(list(late.items())[:_NAMED_MOST]), bool(seen.head.beyond.aside)

    async def _keep(self) -> int:
        """Copy what the head has set aside, read the copies, and only then let the graveyard have it."""
        head: Head = (await self._committer.ask(Expire())).head
        if not head.beyond.aside:
            return 0
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(key: str, made: float) -> list[str]:
            async with limit:
                return await self._copy(key, made)

        aside = head.beyond.aside
        parts = await asyncio.gather(*(one(key, made) for key, made in aside.items()))
        bury = Bury(list(aside), [part for some in parts for part in some])
        self.has_copies = True
        return cast(int, (await self._committer.ask(bury)).results[0])

    async def _copy(self, key: str, made: float) -> list[str]:
        """One block, or the parts that a bundle names; those parts."""
        root = self._committer.root
        parts: Sequence[str] = ()
        if bundles.is_bundle(key):
            parts = await self._space.read(lambda view: bundles.parts(view, root, key))
        for block in parts if bundles.is_bundle(key) else [key]:
            await self._copy_block(root + block, root + names.late_key(block, made))
        return list(parts)

    async def _copy_block(self, source: str, target: str) -> None:
        found = await self._space.read(lambda view: view.get(source))
        if found is None:
            return  # finished and deleted since it was listed
        await self._space.write_file(target, found.data)
        copy = await self._space.read(lambda view: view.get(target))
        if copy is None or copy.data != found.data:
            raise StoreError(f"the copy of {source} under {names.LATE} is not what was written")

    def _forget_suspects(self) -> None:
        """They are known by now, or pass by a later epoch: the next claim lists anew."""
        if self._late.suspects:
            self._late.suspects = {}
            self._late.unlist()

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])


def passes(key: str, made: float, epoch: float) -> bool:
    """Whether a later epoch shows that a copy under `late/` was no late write."""
    birth = names.birth_of(key)
    return birth is not None and birth < epoch and made <= epoch + repeat.MARGIN
