"""The queues of a database: made, changed, listed, deleted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ...config import QueueOptions
from ...errors import QueueExists, QueueNotEmpty, QueueNotFound
from ...retry import NoRetry
from ..base import QueueInfo
from . import names, rows
from .pool import Pool
from .schema import Schema
from .statements import Statements

_decode = msgspec.json.Decoder(QueueOptions).decode
_encode = msgspec.json.Encoder().encode


class Registry:
    """`infos` remembers what was last heard of each queue."""

    def __init__(self, pool: Pool, schema: Schema) -> None:
        self._pool = pool
        self._schema = schema
        self._sql = Statements(schema.name)
        self.infos: dict[str, QueueInfo] = {}

    async def create(self, name: str, options: QueueOptions) -> QueueInfo:
        """Installs first where nothing is installed yet."""
        if not self.infos and await self._schema.applied() is None:
            await self._schema.install()
        sql = self._sql["create_queue"]
        [(id,)], again = await self._pool.fetch_doubting(sql, name, names.slug(name), *columns(options))
        if id is None and not again:
            raise QueueExists(f"there is a queue {name!r} already")
        return await self.must(name)

    async def make_within(self, connection: Any, name: str) -> None:
        """The queue exists after this, in the transaction of the connection."""
        if not await connection.fetch(self._sql["queues"], name):
            await connection.fetch(self._sql["create_queue"], name, names.slug(name), *columns(QueueOptions()))

    async def configure(self, name: str, options: QueueOptions) -> QueueInfo:
        found = await self._pool.fetch(self._sql["configure"], name, *columns(options), queue=name)
        if not found:
            raise self.missing(name)
        return self._heard(found[0])

    async def all(self) -> list[QueueInfo]:
        try:
            found = await self._pool.fetch(self._sql["queues"], None, queue="")
        except QueueNotFound:  # nothing is installed
            return []
        return [self._heard(row) for row in found]

    async def find(self, name: str) -> QueueInfo | None:
        try:
            found = await self._pool.fetch(self._sql["queues"], name, queue=name)
        except QueueNotFound:  # nothing is installed
            return None
        return self._heard(found[0]) if found else None

    async def known(self, name: str) -> QueueInfo:
        """As last heard; QueueNotFound."""
        return self.infos.get(name) or await self.must(name)

    async def must(self, name: str) -> QueueInfo:
        """As it is now; QueueNotFound."""
        info = await self.find(name)
        if info is None:
            raise self.missing(name)
        return info

    async def must_unless_ours(self, name: str, ids: Iterable[str]) -> None:
        """QueueNotFound; asked only where no id is one of ours, since every statement would say so itself."""
        if not any(rows.rank(id) is not None for id in ids):
            await self.must(name)

    async def delete(self, name: str, *, force: bool) -> None:
        if not force and await self.find(name) is not None:
            [(holds,)] = await self._pool.fetch(Statements(self._schema.name, name)["holds"], queue=name)
            if holds:
                raise QueueNotEmpty(f"queue {name!r} still holds messages; use force=True")
        self.infos.pop(name, None)
        [(gone,)], again = await self._pool.fetch_doubting(self._sql["drop_queue"], name, queue=name)
        if not gone and not again:
            raise self.missing(name)

    async def pause(self, name: str, paused: bool) -> None:
        if not await self._pool.fetch(self._sql["pause"], name, paused, queue=name):
            raise self.missing(name)

    def missing(self, name: str) -> QueueNotFound:
        return QueueNotFound(f"there is no queue {name!r}")

    def _heard(self, row: Any) -> QueueInfo:
        name, options, paused, created_at = row
        info = self.infos[name] = QueueInfo(name, _decode(options), paused, created_at)
        return info


def columns(options: QueueOptions) -> tuple[str, int, bool, bool, str | None]:
    """Options as the client reads them, and what SQL needs of them."""
    target = options.dead_letter
    letters = target if isinstance(target, str) else None if target else ""
    return (
        _encode(options).decode(),
        options.max_attempts,
        isinstance(options.retry, NoRetry),
        options.archive,
        letters,
    )
