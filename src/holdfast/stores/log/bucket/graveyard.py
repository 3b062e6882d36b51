"""Finished blocks on a bucket: deleted when nobody can create them any more, then forgotten with the next commit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ....errors import HoldfastError
from ....escaping import logger_named
from .. import names
from ..commit import Committer
from ..head import repeat
from ..head.state import Head
from .listing import Late

if TYPE_CHECKING:
    from .space import CloudSpace

_CROWD = 300  # buried blocks that are deleted at once, and again later: they lie in the first page of the inbox
_SOON = 1.0  # seconds to gather what can be deleted together
logger = logger_named("holdfast.stores.log")


class Undertaker:
    """One per log and process. Nobody waits for it."""

    def __init__(self, space: CloudSpace, committer: Committer, late: Late) -> None:
        self._space = space
        self._committer = committer
        self._late = late
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._early: set[str] = set()
        self._head = Head()  # as last committed

    def look(self, head: Head) -> None:
        """After every commit."""
        late, self._head = self._late, head
        if self._task is not None:
            return
        buried = [key for key in head.beyond.graveyard if not late.is_deleted(key)]
        if len(buried) > _CROWD:
            self._start()
        elif buried and self._timer is None:
            oldest = min(names.birth_of(key) or 0.0 for key in buried)
            wait = oldest + late.window + repeat.MARGIN - self._space.clock()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, wait) + _SOON, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self.bury()
        except HoldfastError as error:
            logger.warning("finished blocks of %s stay for now: %s", self._committer.address.text, error)
        finally:
            self._task = None

    async def bury(self, head: Head | None = None) -> int:
        """Delete what can be deleted, by this head or the last one committed here; how many deletions are final."""
        late, head, root = self._late, head or self._head, self._committer.root
        buried = [key for key in head.beyond.graveyard if not late.is_deleted(key)]
        self._committer.let_go(buried)
        final = set(repeat.deletable(head, self._space.clock(), late.window)) & set(buried)
        crowd = [key for key in buried if key not in final and key not in self._early] if len(buried) > _CROWD else []
        keys = [root + key for key in (*final, *crowd)]
        if keys:
            await self._space.remove(keys)
        late.deleted(sorted(final))
        self._early = (self._early | set(crowd)) & set(head.beyond.graveyard)
        return len(final)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            await asyncio.wait([self._task])
