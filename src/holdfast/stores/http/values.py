"""Values of a served store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ..values import Value, check_keys, checked_expiry

# mypy: no-warn-return-any
# What comes back is of the type that `wire.VERBS` reads it as.


class HttpValues:
    """See `stores/values.py` for the promises."""

    def __init__(self, ask: Callable[..., Awaitable[Any]]) -> None:
        self._ask = ask

    async def get(self, keys: Sequence[str]) -> list[Value | None]:
        check_keys(keys)
        return await self._ask("values_get", list(keys))

    async def put(
        self, key: str, data: bytes, *, expected: str | None = None, expires_in: float | None = None
    ) -> str | None:
        check_keys([key])
        return await self._ask("values_put", key, data, expected, checked_expiry(expires_in))

    async def delete(self, keys: Sequence[str]) -> None:
        check_keys(keys)
        await self._ask("values_delete", list(keys))

    async def sweep(self) -> int:
        return await self._ask("values_sweep")
