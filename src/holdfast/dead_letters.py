"""`queue.dead`: messages that failed for good."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from .ended import Ended, Replayed

if TYPE_CHECKING:
    from .queue import Queue
    from .worker import Worker

T = TypeVar("T")


class DeadLetters(Ended[T]):
    """Messages that failed for good. They stay until they are replayed, processed or deleted."""

    _view = "dead"

    async def count(self) -> int:
        """How many there are."""
        return (await self._queue.stats()).dead

    async def replay(self, ids: Iterable[str] | None = None) -> Replayed:
        """Move these, or all, back into the queue with attempts from zero; how many. A repeat adds nothing."""
        if ids is not None:
            return await self._replay_these(ids)
        # What dies again while we replay is not ours to replay again.
        started = await self._queue.store.clock()
        moved = Replayed(0, {})
        async for page in self._pages():
            moved = await self._replay(moved, [one.id for one in page if (one.finished_at or 0.0) <= started])
        return moved

    def worker(self, handler: Callable[..., Any], **options: Any) -> Worker:
        """A worker on the dead letters: success ends one as completed, failure leaves it dead for a later look."""
        return self._as_queue().worker(handler, **options)

    def _as_queue(self) -> Queue[T]:
        """The dead letters as the queue they are for the store."""
        queue = copy.copy(self._queue)
        queue._opened = self._queue._opened.dead_letters()
        return queue
