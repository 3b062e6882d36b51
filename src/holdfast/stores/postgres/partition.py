"""Everything one queue needs in one process, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..records import Envelope
from .appending import Appender, Batch, News
from .claiming import Claimer
from .living_keys import LivingKeys
from .lookup import Letters
from .named_calls import NamedCalls
from .pool import Pool
from .registry import Registry
from .schema import Schema
from .settling import Settler
from .statements import Statements


class Topic:
    """The parts of one queue; `find` gives those of another."""

    def __init__(
        self,
        pool: Pool,
        registry: Registry,
        queue: str,
        *,
        schema: Schema,
        number: Callable[[], int],
        heard: Callable[[float], None],
        news: News,
        find: Callable[[str], Topic],
    ) -> None:
        self._registry = registry
        self._queue = queue
        self._find = find
        self.sql = Statements(schema.name, queue, history=schema.has_history)
        self.settler = Settler(
            pool, self.sql, queue, keeps=self._keeps, moves=self._moves, refresh=self._refresh, move=self._move
        )
        self.claimer = Claimer(pool, self.sql, queue, self.settler, heard=heard)
        self.letters = Letters(pool, self.sql, queue)
        self.appender = Appender(
            pool, self.sql, queue, number=number, heard=heard, news=news, dedup_window=self._dedup_window
        )
        self.named_calls = NamedCalls(pool, self.sql, queue, self.appender, news)
        self.living_keys = LivingKeys(pool, self.sql, queue, self.appender)

    def _keeps(self) -> bool:
        info = self._registry.infos.get(self._queue)
        return info is None or info.options.archive

    def _moves(self) -> bool:
        info = self._registry.infos.get(self._queue)
        return info is None or isinstance(info.options.dead_letter, str)

    async def _refresh(self) -> None:
        await self._registry.find(self._queue)

    async def _dedup_window(self) -> float:
        return (await self._registry.known(self._queue)).options.dedup_window

    async def _move(self, connection: Any, target: str, id: str, message: Envelope) -> None:
        """A dead letter arrives in another queue, which is made when absent."""
        await self._registry.make_within(connection, target)
        await self._find(target).appender.insert(connection, Batch([message], [id]))
