"""Messages of a queue that ended, page by page: what dead letters and the archive share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from . import config
from .deliveries import Record
from .errors import ConfigError
from .ids import is_id
from .stores.base import PAGE_ROWS
from .stores.records import Stored

if TYPE_CHECKING:
    from .queue import Queue

T = TypeVar("T")


class Ended(Generic[T]):
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
        while page := await self._queue.store.scan(self._queue.name, self._view, after=after, limit=PAGE_ROWS):
            yield page
            after = page[-1].id

    async def _replay(self, ids: Sequence[str]) -> int:
        return await self._queue.store.replay(self._queue.name, self._view, ids) if ids else 0

    async def _replay_these(self, ids: Iterable[str]) -> int:
        given = _ids(ids)
        return sum([await self._replay(given[start : start + PAGE_ROWS]) for start in range(0, len(given), PAGE_ROWS)])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._queue.name!r})"


def _ids(ids: Iterable[str]) -> Sequence[str]:
    """Those of them that a message can have."""
    given = [_id(ids)] if isinstance(ids, str) or not isinstance(ids, Iterable) else [_id(id) for id in ids]
    return [id for id in given if is_id(id)]


def _id(id: object) -> str:
    if not isinstance(id, str):
        raise ConfigError(f"an id is text, not {id!r}")
    return id
