"""`queue.archive`: messages that are settled."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

from .ended import Ended, Replayed
from .errors import ConfigError
from .messages import instant

T = TypeVar("T")


class Archive(Ended[T]):
    """Messages that are settled: completed, failed or cancelled ones."""

    _view = "archive"

    async def count(self) -> int:
        """How many there are."""
        return (await self._queue.stats()).archived

    async def replay(
        self, ids: Iterable[str] | None = None, *, since: datetime | None = None, until: datetime | None = None
    ) -> Replayed:
        """Copy these, or what ended from `since` until before `until`, back into the queue; how many."""
        if ids is not None:
            if since is not None or until is not None:
                raise ConfigError("give ids, or since and until, not both")
            return await self._replay_these(ids)
        first = float("-inf") if since is None else instant("since", since)
        end = float("inf") if until is None else instant("until", until)
        copied = Replayed(0, {})
        async for page in self._pages():
            copied = await self._replay(copied, [one.id for one in page if first <= (one.finished_at or 0.0) < end])
        return copied
