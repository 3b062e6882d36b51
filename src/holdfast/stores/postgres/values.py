"""Values in PostgreSQL: a row each."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import QueueNotFound
from ..values import ABSENT, Value, check_keys, checked_expiry, new_version
from .pool import Pool
from .schema import Schema
from .statements import Statements


class PostgresValues:
    """See `stores/values.py` for the promises."""

    def __init__(self, pool: Pool, schema: Schema) -> None:
        self._pool = pool
        self._sql = Statements(schema.name)

    async def get(self, keys: Sequence[str]) -> list[Value | None]:
        check_keys(keys)
        rows = await self._pool.fetch(self._sql["values_get"], list(keys))
        found = {row[0]: Value(row[1], row[2]) for row in rows}
        return [found.get(key) for key in keys]

    async def put(
        self, key: str, data: bytes, *, expected: str | None = None, expires_in: float | None = None
    ) -> str | None:
        check_keys([key])
        seconds = checked_expiry(expires_in)
        name = "value_replace" if expected else "value_put"
        last = expected if expected else expected == ABSENT
        rows = await self._pool.fetch(self._sql[name], key, data, new_version(), seconds, last)
        return rows[0][0] if rows else None

    async def delete(self, keys: Sequence[str]) -> None:
        check_keys(keys)
        await self._pool.fetch(self._sql["values_delete"], list(keys))

    async def sweep(self) -> int:
        try:
            [(swept,)] = await self._pool.fetch(self._sql["values_sweep"])
        except QueueNotFound:  # nothing is installed
            return 0
        return int(swept)
