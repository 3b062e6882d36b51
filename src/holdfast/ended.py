"""Messages of a queue that ended, page by page: what dead letters and the archive share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from . import config
from .deliveries import Record
from .errors import ConfigError
from .ids import derived, is_id, number, text
from .queue_state import shown
from .stores.base import PAGE_ROWS
from .stores.records import Stored

if TYPE_CHECKING:
    from .queue import Queue

T = TypeVar("T")
_TOLD_IDS = 10_000  # of one replay: more are a list that nobody reads


class Replayed(int):
    """How many were replayed, as a number; `ids` has the new id of each old one.

    Also of those that an earlier call had replayed, as far as their copies are known. None: there are more than 10,000.
    """

    ids: dict[str, str] | None

    def __new__(cls, count: int = 0, ids: dict[str, str] | None = None) -> Replayed:
        made = super().__new__(cls, count)
        made.ids = ids
        return made

    @property
    def count(self) -> int:
        return int(self)

    def and_more(self, other: Replayed) -> Replayed:
        """Both together."""
        if self.ids is None or other.ids is None or len(self.ids) + len(other.ids) > _TOLD_IDS:
            return Replayed(self + other)
        return Replayed(self + other, self.ids | other.ids)

    def __repr__(self) -> str:
        return f"Replayed({int(self)})"

    def __str__(self) -> str:
        return int.__repr__(self)  # in texts it is the number


class Ended(Generic[T]):
    """Ended messages of one queue."""

    _view: Literal["dead", "archive"]

    def __init__(self, queue: Queue[T]) -> None:
        self._queue = queue

    async def list(self, limit: int = 100, after: str | None = None) -> list[Record[T]]:
        """One page in id order; pass the last id as `after` for the next."""
        config.whole("limit", limit)
        if after is not None and not is_id(_id(after)):
            raise ConfigError(f"after: {shown(after)} is not an id")
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

    async def _replay(self, before: Replayed, ids: Sequence[str]) -> Replayed:
        """The sum of what was replayed before and of these."""
        if not ids:
            return before
        store, name = self._queue.store, self._queue.name
        count = await store.replay(name, self._view, ids)
        if before.ids is None:
            return Replayed(before + count)
        copies = {id: copy_of(id) for id in ids}
        if count < len(copies):
            found = await store.get(name, list(copies.values()))
            copies = {id: copy for (id, copy), stored in zip(copies.items(), found, strict=True) if stored is not None}
        return before.and_more(Replayed(count, copies))

    async def _replay_these(self, ids: Iterable[str]) -> Replayed:
        given, done = _ids(ids), Replayed(0, {})
        for start in range(0, len(given), PAGE_ROWS):
            done = await self._replay(done, given[start : start + PAGE_ROWS])
        return done

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._queue.name!r})"


def copy_of(id: str) -> str:
    """The id that a replay gives, on every store."""
    return text(derived(number(id) or 0, "replay"))


def _ids(ids: Iterable[str]) -> Sequence[str]:
    """Those of them that a message can have."""
    given = [_id(ids)] if isinstance(ids, str) or not isinstance(ids, Iterable) else [_id(id) for id in ids]
    return [id for id in given if is_id(id)]


def _id(id: object) -> str:
    if not isinstance(id, str):
        raise ConfigError(f"an id is text, not {id!r}")
    return id
