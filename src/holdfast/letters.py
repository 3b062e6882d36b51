"""`queue.dead` and `queue.archive`: what ended, page by page."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from . import config
from .deliveries import Record
from .envelopes import instant
from .errors import ConfigError
from .ids import is_id
from .messages import Stored

if TYPE_CHECKING:
    from .queue import Queue
    from .worker import Worker

T = TypeVar("T")

_PAGE = 1000


class _Letters(Generic[T]):
    """Ended messages of one queue."""

    _view: Literal["dead", "archive"]

    def __init__(self, queue: Queue[T]) -> None:
        self._queue = queue

    async def list(self, limit: int = 100, after: str | None = None) -> list[Record[T]]:
        """One page in id order; pass the last id as `after` for the next."""
        config.whole("limit", limit)
        if after is not None:
            _id(after)
        page = await self._queue.store.scan(self._queue.name, self._view, after=after, limit=limit)
        return [Record(stored, self._queue.codec) for stored in page]

    async def delete(self, ids: Iterable[str]) -> int:
        """Delete these; how many there were."""
        given = _ids(ids)
        return await self._queue.store.discard(self._queue.name, self._view, given) if given else 0

    async def purge(self) -> int:
        """Delete all; how many there were."""
        return await self._queue.store.discard(self._queue.name, self._view)

    async def _pages(self) -> AsyncIterator[Sequence[Stored]]:
        after: str | None = None
        while page := await self._queue.store.scan(self._queue.name, self._view, after=after, limit=_PAGE):
            yield page
            after = page[-1].id

    async def _replay(self, ids: Sequence[str]) -> int:
        return await self._queue.store.replay(self._queue.name, self._view, ids) if ids else 0

    async def _replay_these(self, ids: Iterable[str]) -> int:
        given = _ids(ids)
        return sum([await self._replay(given[start : start + _PAGE]) for start in range(0, len(given), _PAGE)])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._queue.name!r})"


class DeadLetters(_Letters[T]):
    """Messages that failed for good. They stay until they are replayed, processed or deleted."""

    _view = "dead"

    async def count(self) -> int:
        """How many there are."""
        return (await self._queue.stats()).dead

    async def replay(self, ids: Iterable[str] | None = None) -> int:
        """Move these, or all, back into the queue with attempts from zero; how many. A repeat adds nothing."""
        if ids is not None:
            return await self._replay_these(ids)
        # What dies again while we replay is not ours to replay again.
        started = await self._queue.store.clock()
        moved = 0
        async for page in self._pages():
            moved += await self._replay([one.id for one in page if (one.finished_at or 0.0) <= started])
        return moved

    def worker(self, handler: Callable[..., Any], **options: Any) -> Worker:
        """A worker on the dead letters: success ends one as completed, failure leaves it dead for a later look."""
        return self._as_queue().worker(handler, **options)

    def _as_queue(self) -> Queue[T]:
        """The dead letters as the queue they are for the store."""
        queue = copy.copy(self._queue)
        queue._opened = self._queue._opened.dead_letters()
        return queue


class Archive(_Letters[T]):
    """Messages that are settled: completed, failed or cancelled ones."""

    _view = "archive"

    async def count(self) -> int:
        """How many there are."""
        return (await self._queue.stats()).archived

    async def replay(
        self, ids: Iterable[str] | None = None, *, since: datetime | None = None, until: datetime | None = None
    ) -> int:
        """Copy these, or what ended from `since` until before `until`, back into the queue; how many."""
        if ids is not None:
            if since is not None or until is not None:
                raise ConfigError("give ids, or since and until, not both")
            return await self._replay_these(ids)
        first = float("-inf") if since is None else instant("since", since)
        end = float("inf") if until is None else instant("until", until)
        copied = 0
        async for page in self._pages():
            copied += await self._replay([one.id for one in page if first <= (one.finished_at or 0.0) < end])
        return copied


def _ids(ids: Iterable[str]) -> Sequence[str]:
    """Those of them that a message can have."""
    given = [_id(ids)] if isinstance(ids, str) or not isinstance(ids, Iterable) else [_id(id) for id in ids]
    return [id for id in given if is_id(id)]


def _id(id: object) -> str:
    if not isinstance(id, str):
        raise ConfigError(f"an id is text, not {id!r}")
    return id
